import { fileURLToPath } from "node:url";
import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import type { LanguageServerView } from "../../tool/lsp/language-servers.ts";
import type { FileLocation, FilePosition } from "../../tool/lsp/lsp-words.ts";
import { checkLength } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";

const maxPathCharacters = 4096;
const maxQueryCharacters = 1000;
const defaultSymbols = 100;
const maxSymbols = 1000;
/** Most places in one answer: those of a name like `toString` would fill it. */
const maxLocations = 10_000;
/** LSP 3.18, `uinteger`. */
const mostInteger = 2 ** 31 - 1;

/**
 * Of the earlier service: language servers. They are started and stopped by whoever may administer the server, and asked
 * by all. Lines and columns are counted from 0, columns in UTF-16 units, as in the Language Server Protocol.
 */
export function languageServerHandlers({ languageServers, admin, workspaceFrom }: LegacyCore) {
  return {
    async startLspServer({ language, rootUri }, context) {
      admin(context);
      checkLength(language, 100, "language");
      // Some clients send a path.
      const isPath = rootUri === "" || rootUri.startsWith("/");
      const root = await workspaceFrom(isPath ? rootUri : pathFrom(rootUri, "root_uri"), "root_uri");
      const view = await languageServers.start(language, root, context.signal);
      const message = `${view.name}${view.version === "" ? "" : ` ${view.version}`} runs`;
      return { success: true, message, serverInfo: viewToProto(view) };
    },
    async stopLspServer({ language }, context) {
      admin(context);
      checkLength(language, 100, "language");
      await languageServers.stop(language);
      return { success: true };
    },
    async listLspServers() {
      return { servers: languageServers.views().map(viewToProto) };
    },
    async lspHover(request, { signal }) {
      const found = await languageServers.hover(filePathFrom(request.filePath), positionFrom(request), signal);
      if (found === undefined) return { found: false };
      const { content, range } = found;
      return { found: true, content, ...(range === undefined ? {} : { range }) };
    },
    async lspDefinition(request, { signal }) {
      const found = await languageServers.definition(filePathFrom(request.filePath), positionFrom(request), signal);
      return { locations: locationsToProto(found) };
    },
    async lspReferences(request, { signal }) {
      const { filePath, includeDeclaration } = request;
      const path = filePathFrom(filePath);
      const found = await languageServers.references(path, positionFrom(request), includeDeclaration, signal);
      return { locations: locationsToProto(found) };
    },
    async lspSymbols({ query, limit }, { signal }) {
      checkLength(query, maxQueryCharacters, "query");
      if (limit > maxSymbols) throw invalidField("limit", `is ${limit}; ${maxSymbols} is the most`);
      return { symbols: await languageServers.symbols(query, limit || defaultSymbols, signal) };
    },
    async lspDiagnostics({ filePath }, { signal }) {
      const path = filePath === undefined ? undefined : filePathFrom(filePath);
      return { diagnostics: [...(await languageServers.diagnostics(path, signal))] };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function viewToProto({ language, name, version, running }: LanguageServerView) {
  return { language, name, running, ...(version === "" ? {} : { version }) };
}

function locationsToProto(found: readonly FileLocation[]): FileLocation[] {
  return found.slice(0, maxLocations);
}

function filePathFrom(value: string): string {
  if (value === "") throw invalidField("file_path", "is empty; name a file");
  checkLength(value, maxPathCharacters, "file_path");
  return value.startsWith("file:") ? pathFrom(value, "file_path") : value;
}

function pathFrom(uri: string, field: string): string {
  checkLength(uri, maxPathCharacters, field);
  try {
    return fileURLToPath(uri);
  } catch {
    throw invalidField(field, "is no file: URI of this machine, such as file:///home/me/project");
  }
}

function positionFrom({ line, column }: { readonly line: number; readonly column: number }): FilePosition {
  for (const [field, value] of Object.entries({ line, column })) {
    if (value > mostInteger) throw invalidField(field, `is ${value}; ${mostInteger} is the most`);
  }
  return { line, character: column };
}
