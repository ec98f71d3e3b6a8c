import { AgentError, invalidField } from "../../chat/error.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { walkFiles } from "../walk-files.ts";
import { findLanguageProgram, type Language, languageNamed, languageOfFile, languages } from "./language-programs.ts";
import type { LanguageServer, LanguageServerLimits } from "./language-server.ts";
import type { FileLocation, FilePosition, FoundDiagnostic, FoundHover, FoundSymbol } from "./lsp-words.ts";

export interface LanguageServersOptions {
  readonly sandbox: Sandbox;
  /** The server's own PATH, in which programs are looked up. */
  readonly path: string | undefined;
  readonly version: string;
  readonly limits?: Partial<LanguageServerLimits>;
  readonly report: (level: "info" | "warn", message: string, facts?: Record<string, unknown>) => void;
}

export interface LanguageServerView {
  /** As it was named when it was started. */
  readonly language: string;
  readonly name: string;
  /** Empty where it does not tell. */
  readonly version: string;
  readonly running: boolean;
}

interface Started {
  readonly named: string;
  readonly server: LanguageServer;
}

const maxServers = 8;

/**
 * The language servers somebody has started, one of each language, shared by all callers. None is started by itself, and one
 * that has ended stays in the list until it is stopped or started again.
 */
export class LanguageServers {
  readonly #options: LanguageServersOptions;
  /** By id of the language. */
  readonly #started = new Map<string, Started>();
  readonly #closing = new AbortController();
  /** Starts and stops, one after another. Never rejects. */
  #changed: Promise<unknown> = Promise.resolve();

  constructor(options: LanguageServersOptions) {
    this.#options = options;
  }

  /**
   * Starts the server of a language; one that runs over the same folder already is told of as it is.
   * @param root absolute path without links
   * @throws {AgentError} `unimplemented` for a language nobody has a program for, `failed_precondition` where the program is not
   * there, runs over another folder or can't be started, `resource_exhausted`, `deadline`; the signal's reason.
   */
  start(named: string, root: string, signal: AbortSignal): Promise<LanguageServerView> {
    const language = knownLanguage(named);
    return this.#afterOthers(async () => {
      const running = this.#started.get(language.id);
      if (running?.server.running) {
        if (running.server.root === root) return viewOf(running);
        throw new AgentError(
          "failed_precondition",
          `a language server of ${language.id} runs over another folder; stop it first with StopLspServer`,
        );
      }
      if (running === undefined && this.#started.size >= maxServers)
        throw new AgentError("resource_exhausted", `there are ${maxServers} language servers, the most there can be`);
      const { sandbox, path, version, limits, report } = this.#options;
      const program = findLanguageProgram(language, path, root);
      if (program === undefined)
        throw new AgentError(
          "failed_precondition",
          `${language.program} is not installed where the server runs; install it there (${language.install})`,
          { reason: "NO_LANGUAGE_SERVER" },
        );
      await running?.server.stop();
      // What speaks the protocol is loaded when it is first needed.
      const { LanguageServer, defaultLanguageServerLimits } = await import("./language-server.ts");
      const server = await LanguageServer.start(
        {
          ...{ language, program, root, sandbox, version },
          limits: { ...defaultLanguageServerLimits, ...limits },
          onEnd: (reason) => report("warn", `the language server of ${language.id} ${reason}`),
        },
        AbortSignal.any([signal, this.#closing.signal]),
      );
      const started = { named: named.trim().toLowerCase(), server };
      this.#started.set(language.id, started);
      return viewOf(started);
    });
  }

  /** Resolves when the program is gone. @throws {AgentError} `unimplemented`, `not_found`. */
  stop(named: string): Promise<void> {
    const language = knownLanguage(named);
    return this.#afterOthers(async () => {
      const started = this.#started.get(language.id);
      if (started === undefined)
        throw new AgentError("not_found", `there is no language server of ${language.id} to stop`);
      this.#started.delete(language.id);
      await started.server.stop();
    });
  }

  views(): LanguageServerView[] {
    return [...this.#started.values()].map(viewOf);
  }

  /**
   * @param path absolute or from the root of the server, within it
   * @returns undefined where there is nothing to tell
   * @throws {AgentError} `failed_precondition` when no server of the file's language runs; as `LanguageServer`.
   */
  async hover(path: string, position: FilePosition, signal: AbortSignal): Promise<FoundHover | undefined> {
    return this.#of(path).hover(path, position, signal);
  }

  /** @throws {AgentError} as `hover`. */
  async definition(path: string, position: FilePosition, signal: AbortSignal): Promise<FileLocation[]> {
    return this.#of(path).definition(path, position, signal);
  }

  /** @throws {AgentError} as `hover`. */
  async references(
    path: string,
    position: FilePosition,
    includeDeclaration: boolean,
    signal: AbortSignal,
  ): Promise<FileLocation[]> {
    return this.#of(path).references(path, position, includeDeclaration, signal);
  }

  /** Symbols of all running servers. @throws {AgentError} `failed_precondition` when none runs; as `LanguageServer`. */
  async symbols(query: string, limit: number, signal: AbortSignal): Promise<FoundSymbol[]> {
    const found: FoundSymbol[] = [];
    for (const server of this.#running()) {
      if (!server.hasOpenFiles) await wake(server, signal);
      found.push(...(await server.symbols(query, signal)));
    }
    return found.slice(0, limit);
  }

  /** @param path absent for all files that are known. @throws {AgentError} as `hover`. */
  async diagnostics(path: string | undefined, signal: AbortSignal): Promise<readonly FoundDiagnostic[]> {
    if (path !== undefined) return this.#of(path).diagnostics(path, signal);
    const found: FoundDiagnostic[] = [];
    for (const server of this.#running()) found.push(...(await server.allDiagnostics(signal)));
    return found;
  }

  /** Stops all, also those that are being started. */
  async close(): Promise<void> {
    this.#closing.abort(new AgentError("unavailable", "the service is stopping"));
    await this.#changed;
    const all = [...this.#started.values()];
    this.#started.clear();
    await Promise.all(all.map(({ server }) => server.stop()));
  }

  #afterOthers<Value>(work: () => Promise<Value>): Promise<Value> {
    const result = this.#changed.then(() => {
      this.#closing.signal.throwIfAborted();
      return work();
    });
    this.#changed = result.catch(() => undefined);
    return result;
  }

  #of(path: string): LanguageServer {
    const found = languageOfFile(path);
    if (found === undefined)
      throw invalidField("file_path", "names a file of no language there is a server for, by the end of its name");
    const started = this.#started.get(found.language.id);
    if (started === undefined) throw noServer(`no language server of ${found.language.id} runs`);
    return started.server;
  }

  #running(): LanguageServer[] {
    const running = [...this.#started.values()].map(({ server }) => server).filter((server) => server.running);
    if (running.length === 0) throw noServer("no language server runs");
    return running;
  }
}

function noServer(what: string): AgentError {
  return new AgentError("failed_precondition", `${what}; start it with StartLspServer`, {
    reason: "NO_LANGUAGE_SERVER",
  });
}

function knownLanguage(named: string): Language {
  const language = languageNamed(named);
  if (language !== undefined) return language;
  if (named.trim() === "") throw invalidField("language", "is empty; name a language");
  const known = languages.map(({ id }) => id).join(", ");
  throw new AgentError(
    "unimplemented",
    `no language server is known for ${JSON.stringify(named.slice(0, 50))}; there are those of ${known}`,
  );
}

function viewOf({ named, server }: Started): LanguageServerView {
  return { language: named, name: server.name, version: server.version, running: server.running };
}

/** Shows a server the first file of its language: some look for symbols only in projects of which they have seen one. */
async function wake(server: LanguageServer, signal: AbortSignal): Promise<void> {
  for await (const walked of walkFiles(server.root, { signal, maxMs: 2000, maxEntries: 20_000 })) {
    if (walked.type !== "directory") continue;
    for (const name of walked.names) {
      if (languageOfFile(name)?.language !== server.language) continue;
      const { path } = walked.directory;
      await server.open(path === "." ? name : `${path}/${name}`).catch((error: unknown) => {
        if (!(error instanceof AgentError) || !server.running) throw error;
      });
      if (server.hasOpenFiles) return;
    }
  }
}
