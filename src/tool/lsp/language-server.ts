import { pathToFileURL } from "node:url";
import { type DataCallback, StreamMessageReader, StreamMessageWriter } from "vscode-jsonrpc/node";
import {
  type CancellationToken,
  CancellationTokenSource,
  type ClientCapabilities,
  ConfigurationRequest,
  createProtocolConnection,
  DefinitionRequest,
  Diagnostic,
  DidChangeTextDocumentNotification,
  DidCloseTextDocumentNotification,
  DidOpenTextDocumentNotification,
  DidSaveTextDocumentNotification,
  DocumentDiagnosticRequest,
  ExecuteCommandRequest,
  ExitNotification,
  Hover,
  HoverRequest,
  InitializedNotification,
  InitializeRequest,
  type ProtocolConnection,
  PublishDiagnosticsNotification,
  ReferencesRequest,
  RegistrationRequest,
  ResponseError,
  type ServerCapabilities,
  ShutdownRequest,
  SymbolKind,
  UnregistrationRequest,
  WorkDoneProgressCreateRequest,
  WorkspaceFoldersRequest,
  WorkspaceSymbolRequest,
} from "vscode-languageserver-protocol/node";
import { AgentError, invalidField } from "../../chat/error.ts";
import { harmlessText } from "../bounded-text.ts";
import { isRecord } from "../check-value.ts";
import { ProgramRefusedError, type Sandbox, SandboxUnavailableError } from "../sandbox/sandbox.ts";
import type { SupervisedProcess } from "../supervise.ts";
import { openFileBeneath, WorkspacePathError } from "../workspace.ts";
import type { Language, LanguageProgram } from "./language-programs.ts";
import {
  diagnosticFrom,
  diagnosticsFromTsserver,
  type FileLocation,
  type FilePosition,
  type FoundDiagnostic,
  type FoundHover,
  type FoundSymbol,
  hoverFrom,
  locationsFrom,
  symbolsFrom,
} from "./lsp-words.ts";

export interface LanguageServerLimits {
  /** Longest greeting. */
  readonly startMs: number;
  /** Longest answer. */
  readonly requestMs: number;
  /** Time it has to end by itself. */
  readonly stopMs: number;
  /** Largest message taken, and largest file shown to it. */
  readonly messageBytes: number;
  readonly fileBytes: number;
  /** Files it has open at the same time; the one not asked about for longest is closed. */
  readonly openFiles: number;
}

export const defaultLanguageServerLimits: LanguageServerLimits = {
  startMs: 20_000,
  requestMs: 10_000,
  stopMs: 1000,
  messageBytes: 32 * 1024 * 1024,
  fileBytes: 4 * 1024 * 1024,
  openFiles: 50,
};

export interface LanguageServerOptions {
  readonly language: Language;
  readonly program: LanguageProgram;
  /** Absolute path without links; the server looks at nothing else by itself. */
  readonly root: string;
  readonly sandbox: Sandbox;
  /** What we say we are. */
  readonly version: string;
  readonly limits: LanguageServerLimits;
  /** Called once, when it has ended without being asked to. */
  readonly onEnd: (reason: string) => void;
}

/** A file as the server knows it. */
interface OpenFile {
  readonly path: string;
  readonly uri: string;
  readonly version: number;
  /** Size and time of change: what differs is read again. */
  readonly stamp: string;
  readonly text: string;
}

/** Files whose findings are kept. */
const maxKnownFiles = 2000;
const maxFindings = 10_000;
const lastWordsBytes = 4096;
/** How long a program may live without an output. */
const closedMs = 500;
/** What may wait for a program that does not read. */
const unreadLimitBytes = 64 * 1024 * 1024;

const capabilities: ClientCapabilities = {
  general: { positionEncodings: ["utf-16"] },
  workspace: {
    workspaceFolders: true,
    configuration: true,
    symbol: { symbolKind: { valueSet: Object.values(SymbolKind) } },
  },
  textDocument: {
    synchronization: { didSave: true },
    hover: { contentFormat: ["markdown", "plaintext"] },
    definition: { linkSupport: true },
    references: {},
    publishDiagnostics: { versionSupport: true },
    diagnostic: {},
  },
  window: { workDoneProgress: true },
};

/**
 * One running language server over its standard input and output, as "Language Server Protocol 3.18" has it
 * (microsoft.github.io/language-server-protocol). Files are shown to it as they are on disk when it is asked. Its maker
 * stops it.
 */
export class LanguageServer {
  readonly #options: LanguageServerOptions;
  readonly #process: SupervisedProcess;
  readonly #connection: ProtocolConnection;
  /** By path from the root; the one asked about last is the last. */
  readonly #files = new Map<string, OpenFile>();
  /** What was found last, by URI. */
  readonly #findings = new Map<string, { readonly version: number; readonly found: readonly FoundDiagnostic[] }>();
  readonly #published = new EventTarget();
  #capabilities: ServerCapabilities = {};
  #name: string;
  #version: string;
  #lastWords = "";
  /** Changes of what is open, one after another. Never rejects. */
  #synced: Promise<unknown> = Promise.resolve();
  #nextVersion = 1;
  #unreadBytes = 0;
  #endReason: string | undefined;
  #stopping: Promise<void> | undefined;

  private constructor(options: LanguageServerOptions, process: SupervisedProcess) {
    const { stdin, stdout, stderr } = process;
    if (stdin === undefined) throw new Error("a language server was started without an input");
    this.#options = options;
    this.#process = process;
    this.#name = options.language.program;
    this.#version = options.program.version;
    stdin.on("error", () => undefined);
    stdout.on("error", () => undefined);
    stderr.on("error", () => undefined);
    stderr.on("data", (bytes: Buffer) => {
      this.#lastWords = `${this.#lastWords}${bytes.toString("utf8")}`.slice(-lastWordsBytes);
    });
    stdout.on("data", (bytes: Buffer) => {
      this.#unreadBytes += bytes.length;
      const { messageBytes } = options.limits;
      if (this.#unreadBytes > messageBytes) this.#end(`sent a message of more than ${messageBytes} bytes`);
    });
    const reader = new CountingReader(stdout, () => {
      this.#unreadBytes = 0;
    });
    this.#connection = createProtocolConnection(reader, new StreamMessageWriter(stdin));
    this.#answer();
    this.#connection.listen();
    process.ended.then(
      (code) => this.#end(`ended with exit code ${code}`),
      (error: unknown) => this.#end(`could not be started (${error instanceof Error ? error.message : "unknown"})`),
    );
  }

  /**
   * Starts the program within the sandbox, without network and without the right to change anything, and greets it. It reads
   * its own files, those of the system and those below its root.
   * @throws {AgentError} `failed_precondition` when it can't be started or ends at once, `deadline` when it says nothing; the
   * signal's reason.
   */
  static async start(options: LanguageServerOptions, signal: AbortSignal): Promise<LanguageServer> {
    const { language, program, root, sandbox, limits } = options;
    signal.throwIfAborted();
    const process = await sandbox
      .start({
        program: program.program,
        args: program.args,
        cwd: root,
        env: {},
        stdin: "pipe",
        // What it can read, it can be made to tell: a file may import whatever its writer names.
        access: { writable: [], readable: [root, ...program.readable], network: false },
      })
      .catch((error: unknown) => {
        if (!(error instanceof SandboxUnavailableError || error instanceof ProgramRefusedError)) throw error;
        throw new AgentError("failed_precondition", error.message, { cause: error });
      });
    const server = new LanguageServer(options, process);
    try {
      await server.#greet(limits.startMs, signal);
      return server;
    } catch (error) {
      const reason = server.#endReason;
      const words = harmlessText(server.#lastWords.trim().split("\n").at(-1) ?? "").slice(0, 300);
      await server.stop();
      if (reason === undefined || signal.aborted) throw error;
      const said = words === "" ? "" : `; its last words: ${words}`;
      throw new AgentError("failed_precondition", `the language server of ${language.id} ${reason}${said}`, {
        cause: error,
      });
    }
  }

  get language(): Language {
    return this.#options.language;
  }

  get root(): string {
    return this.#options.root;
  }

  /** What it calls itself. */
  get name(): string {
    return this.#name;
  }

  /** Empty where it does not tell. */
  get version(): string {
    return this.#version;
  }

  get running(): boolean {
    return this.#endReason === undefined && this.#stopping === undefined;
  }

  /** @throws {AgentError} as all questions: see `#ask` and `#show`. */
  async hover(path: string, position: FilePosition, signal: AbortSignal): Promise<FoundHover | undefined> {
    this.#needs("hover", this.#capabilities.hoverProvider);
    const place = await this.#placeIn(path, position);
    const hover: unknown = await this.#ask(
      (token) => this.#connection.sendRequest(HoverRequest.type, place, token),
      signal,
    );
    return Hover.is(hover) ? hoverFrom(hover) : undefined;
  }

  async definition(path: string, position: FilePosition, signal: AbortSignal): Promise<FileLocation[]> {
    this.#needs("definitions", this.#capabilities.definitionProvider);
    const place = await this.#placeIn(path, position);
    return locationsFrom(
      await this.#ask((token) => this.#connection.sendRequest(DefinitionRequest.type, place, token), signal),
    );
  }

  async references(
    path: string,
    position: FilePosition,
    includeDeclaration: boolean,
    signal: AbortSignal,
  ): Promise<FileLocation[]> {
    this.#needs("references", this.#capabilities.referencesProvider);
    const place = await this.#placeIn(path, position);
    const params = { ...place, context: { includeDeclaration } };
    return locationsFrom(
      await this.#ask((token) => this.#connection.sendRequest(ReferencesRequest.type, params, token), signal),
    );
  }

  /** Symbols of all files it knows. */
  async symbols(query: string, signal: AbortSignal): Promise<FoundSymbol[]> {
    this.#needs("symbols", this.#capabilities.workspaceSymbolProvider);
    await this.#refresh();
    return symbolsFrom(
      await this.#ask((token) => this.#connection.sendRequest(WorkspaceSymbolRequest.type, { query }, token), signal),
    );
  }

  /** Whether it has been shown a file: some look for symbols only where one was. */
  get hasOpenFiles(): boolean {
    return this.#files.size > 0;
  }

  /** Shows it a file, so that it looks at the project that has it. */
  async open(path: string): Promise<void> {
    await this.#show(path);
  }

  /** What is wrong in a file as it is now. */
  async diagnostics(path: string, signal: AbortSignal): Promise<readonly FoundDiagnostic[]> {
    return this.#diagnose(await this.#show(path), signal);
  }

  /** What is wrong in all files that it was shown or has spoken of. */
  async allDiagnostics(signal: AbortSignal): Promise<readonly FoundDiagnostic[]> {
    await this.#refresh();
    const within = AbortSignal.any([signal, AbortSignal.timeout(this.#options.limits.requestMs)]);
    for (const file of this.#files.values()) {
      if (within.aborted) break;
      await this.#diagnose(file, within).catch((error: unknown) => {
        // What was found before is told where there is no time for more.
        if (!within.aborted || signal.aborted || !this.running) throw error;
      });
    }
    return [...this.#findings.values()].flatMap(({ found }) => found);
  }

  /** Ends it in good order, else kills it and all it started. Never rejects. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    const { stopMs } = this.#options.limits;
    if (this.#endReason === undefined) {
      const asked = this.#connection
        .sendRequest(ShutdownRequest.type)
        .then(() => this.#connection.sendNotification(ExitNotification.type))
        .catch(() => undefined);
      const limit = Promise.withResolvers<void>();
      const timer = setTimeout(limit.resolve, stopMs);
      const over = this.#process.ended.catch(() => undefined);
      await Promise.race([Promise.all([asked, over]), limit.promise]);
      clearTimeout(timer);
    }
    this.#connection.dispose();
    this.#process.stdin?.destroy();
    await this.#process.stop(stopMs).catch(() => undefined);
  }

  /** @param reason what it did, as the end of a sentence. */
  #end(reason: string): void {
    if (this.#endReason !== undefined || this.#stopping !== undefined) return;
    this.#endReason = reason;
    this.#connection.dispose();
    this.#process.stdin?.destroy();
    void this.#process.stop().catch(() => undefined);
    this.#options.onEnd(reason);
  }

  /** What servers ask of their clients. Nobody of them may change files or open windows. */
  #answer(): void {
    const connection = this.#connection;
    const folder = { uri: pathToFileURL(this.#options.root).href, name: "workspace" };
    connection.onRequest(ConfigurationRequest.type, ({ items }) => items.map(() => null));
    connection.onRequest(WorkspaceFoldersRequest.type, () => [folder]);
    connection.onRequest(WorkDoneProgressCreateRequest.type, () => undefined);
    connection.onRequest(RegistrationRequest.type, () => undefined);
    connection.onRequest(UnregistrationRequest.type, () => undefined);
    connection.onNotification(PublishDiagnosticsNotification.type, ({ uri, version, diagnostics }) => {
      const open = [...this.#files.values()].find((file) => file.uri === uri);
      const found = diagnostics.filter((one) => Diagnostic.is(one)).map((one) => diagnosticFrom(uri, one));
      // Who names no version speaks of what it was shown last.
      this.#keep(uri, version ?? open?.version ?? 0, found);
      this.#published.dispatchEvent(new Event(uri));
    });
    // A connection that breaks ends with its program.
    connection.onError(() => undefined);
    connection.onClose(() => {
      // Mostly because it ends; then its exit code says more.
      setTimeout(() => this.#end("closed its output"), closedMs).unref();
    });
  }

  async #greet(limitMs: number, signal: AbortSignal): Promise<void> {
    const { root, program, version } = this.#options;
    const uri = pathToFileURL(root).href;
    const params = {
      // Within walls there are no other processes to look for.
      processId: null,
      clientInfo: { name: "codeagent", version },
      rootUri: uri,
      workspaceFolders: [{ uri, name: "workspace" }],
      capabilities,
      ...(program.initializationOptions === undefined ? {} : { initializationOptions: program.initializationOptions }),
    };
    const greeting = await this.#ask(
      (token) => this.#connection.sendRequest(InitializeRequest.type, params, token),
      signal,
      limitMs,
    );
    if (!isRecord(greeting) || !isRecord(greeting.capabilities))
      throw new AgentError("failed_precondition", `the language server of ${this.language.id} greets in no known way`);
    this.#capabilities = greeting.capabilities;
    const { name, version: own } = greeting.serverInfo ?? {};
    if (typeof name === "string" && name !== "") this.#name = harmlessText(name).slice(0, 200);
    if (typeof own === "string") this.#version = harmlessText(own).slice(0, 100);
    await this.#connection.sendNotification(InitializedNotification.type, {});
  }

  #needs(what: string, capability: unknown): void {
    if (capability === undefined || capability === null || capability === false)
      throw new AgentError("unimplemented", `the language server of ${this.language.id} tells no ${what}`);
  }

  async #placeIn(path: string, { line, character }: FilePosition) {
    const { uri, text } = await this.#show(path);
    const lines = text.split(/\r\n|\r|\n/);
    const written = lines[line];
    if (written === undefined)
      throw invalidField("line", `is ${line}; the file has ${lines.length} lines, counted from 0`);
    // The protocol takes what is beyond the end of a line for its end; not all servers do.
    return { textDocument: { uri }, position: { line, character: Math.min(character, written.length) } };
  }

  /**
   * Asks and waits for the answer.
   * @throws {AgentError} `deadline`, `unavailable` when the server has ended or may answer later, `failed_precondition` with
   * what it says is wrong; the signal's reason.
   */
  async #ask<Answer>(
    send: (token: CancellationToken) => Promise<Answer>,
    signal: AbortSignal,
    limitMs = this.#options.limits.requestMs,
  ): Promise<Answer> {
    signal.throwIfAborted();
    if (!this.running) throw this.#hasEnded();
    const unread = this.#process.stdin?.writableLength ?? 0;
    if (unread > unreadLimitBytes) this.#end(`does not read what it is sent; ${unread} bytes wait`);
    const cancel = new CancellationTokenSource();
    const over = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      const what = `the language server of ${this.language.id} has not answered within ${limitMs} ms; try again`;
      over.reject(new AgentError("deadline", what));
    }, limitMs);
    const onAbort = () => over.reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([send(cancel.token), over.promise]);
    } catch (error) {
      cancel.cancel();
      signal.throwIfAborted();
      if (error instanceof AgentError) throw error;
      // It can't be written to, as it is ending.
      if (!this.running || !(error instanceof ResponseError)) throw this.#hasEnded(error);
      const said = harmlessText(error.message).slice(0, 500);
      const here = said.replaceAll(`${this.root}/`, "").replaceAll(this.root, ".");
      // LSP 3.18, "ErrorCodes": the content was modified, the server or the client has cancelled.
      const mayComeLater = error.code <= -32_800 && error.code >= -32_802;
      const what = `the language server of ${this.language.id} answered with an error: ${here}`;
      throw new AgentError(mayComeLater ? "unavailable" : "failed_precondition", what, { cause: error });
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      cancel.dispose();
    }
  }

  #hasEnded(cause?: unknown): AgentError {
    const how = this.#stopping === undefined ? (this.#endReason ?? "is gone") : "was stopped";
    const what = `the language server of ${this.language.id} ${how}; start it again with StartLspServer`;
    return new AgentError("unavailable", what, cause === undefined ? {} : { cause });
  }

  async #diagnose(file: OpenFile, signal: AbortSignal): Promise<readonly FoundDiagnostic[]> {
    const { uri, version } = file;
    if (this.language.diagnosesBy === "tsserver") {
      const found: FoundDiagnostic[] = [];
      for (const command of ["syntacticDiagnosticsSync", "semanticDiagnosticsSync", "suggestionDiagnosticsSync"]) {
        const params = {
          command: "typescript.tsserverRequest",
          arguments: [command, { file: `${this.root}/${file.path}` }],
        };
        const answer: unknown = await this.#ask(
          (token) => this.#connection.sendRequest(ExecuteCommandRequest.type, params, token),
          signal,
        );
        found.push(...diagnosticsFromTsserver(uri, answer));
      }
      return this.#keep(uri, version, found);
    }
    if (this.#capabilities.diagnosticProvider !== undefined) {
      const params = { textDocument: { uri } };
      const report: unknown = await this.#ask(
        (token) => this.#connection.sendRequest(DocumentDiagnosticRequest.type, params, token),
        signal,
      );
      const items: readonly unknown[] = isRecord(report) && Array.isArray(report["items"]) ? report["items"] : [];
      return this.#keep(
        uri,
        version,
        items.filter((one) => Diagnostic.is(one)).map((one) => diagnosticFrom(uri, one)),
      );
    }
    return this.#ask(() => this.#publishedOf(uri, version, signal), signal);
  }

  /** Waits until the server speaks of a version of a file by itself. */
  async #publishedOf(uri: string, version: number, signal: AbortSignal): Promise<readonly FoundDiagnostic[]> {
    const { requestMs } = this.#options.limits;
    const over = AbortSignal.any([signal, AbortSignal.timeout(requestMs)]);
    for (;;) {
      const known = this.#findings.get(uri);
      if (known !== undefined && known.version >= version) return known.found;
      if (!this.running) throw this.#hasEnded();
      const told = Promise.withResolvers<void>();
      const wake = () => told.resolve();
      this.#published.addEventListener(uri, wake);
      over.addEventListener("abort", wake);
      await told.promise;
      this.#published.removeEventListener(uri, wake);
      over.removeEventListener("abort", wake);
      over.throwIfAborted();
    }
  }

  #keep(uri: string, version: number, found: readonly FoundDiagnostic[]): readonly FoundDiagnostic[] {
    const kept = found.slice(0, maxFindings);
    this.#findings.delete(uri);
    this.#findings.set(uri, { version, found: kept });
    for (const [oldest] of this.#findings) {
      if (this.#findings.size <= maxKnownFiles) break;
      this.#findings.delete(oldest);
    }
    return kept;
  }

  /**
   * Shows the server a file as it is now, and what has changed in those it was shown before.
   * @throws {AgentError} `invalid_request` about `file_path` for what is not a regular file beneath the root or too large,
   * `not_found` for what is not there.
   */
  #show(path: string): Promise<OpenFile> {
    return this.#afterOthers(async () => {
      await this.#refreshAll();
      const file = await this.#update(path);
      const others = [...this.#files.keys()];
      for (const oldest of others.slice(0, Math.max(0, others.length - this.#options.limits.openFiles)))
        await this.#close(oldest);
      return file;
    });
  }

  #refresh(): Promise<void> {
    return this.#afterOthers(() => this.#refreshAll());
  }

  #afterOthers<Value>(work: () => Promise<Value>): Promise<Value> {
    const result = this.#synced.then(work);
    this.#synced = result.catch(() => undefined);
    return result;
  }

  async #refreshAll(): Promise<void> {
    for (const path of [...this.#files.keys()]) {
      try {
        await this.#update(path, false);
      } catch (error) {
        if (!(error instanceof AgentError) || !this.running) throw error;
        await this.#close(path);
      }
    }
  }

  /** @param asked it is asked about now, and not only looked at again. */
  async #update(given: string, asked = true): Promise<OpenFile> {
    if (!this.running) throw this.#hasEnded();
    const { path, stamp, text } = await this.#read(given);
    const known = this.#files.get(path);
    const uri = pathToFileURL(`${this.root}/${path}`).href;
    const isSame = known?.stamp === stamp && known.text === text;
    const file = known !== undefined && isSame ? known : { path, uri, stamp, text, version: this.#nextVersion++ };
    if (asked) this.#files.delete(path);
    this.#files.set(path, file);
    if (known === undefined) {
      const languageId = this.language.files[/\.[^./]+$/.exec(path)?.[0].toLowerCase() ?? ""] ?? this.language.id;
      await this.#connection.sendNotification(DidOpenTextDocumentNotification.type, {
        textDocument: { uri, languageId, version: file.version, text },
      });
    } else if (!isSame) {
      const textDocument = { uri, version: file.version };
      await this.#connection.sendNotification(DidChangeTextDocumentNotification.type, {
        textDocument,
        contentChanges: [{ text }],
      });
      // It is on disk already; some check only then.
      await this.#connection.sendNotification(DidSaveTextDocumentNotification.type, { textDocument: { uri } });
    }
    return file;
  }

  async #close(path: string): Promise<void> {
    const file = this.#files.get(path);
    if (file === undefined) return;
    this.#files.delete(path);
    this.#findings.delete(file.uri);
    await this.#connection.sendNotification(DidCloseTextDocumentNotification.type, { textDocument: { uri: file.uri } });
  }

  async #read(given: string): Promise<Pick<OpenFile, "path" | "stamp" | "text">> {
    const { fileBytes } = this.#options.limits;
    try {
      const { handle, stats, path } = await openFileBeneath(this.root, given);
      try {
        const stamp = `${stats.size} ${stats.mtimeMs} ${stats.ino}`;
        const known = this.#files.get(path);
        if (known?.stamp === stamp) return known;
        if (stats.size > fileBytes)
          throw invalidField("file_path", `names a file of ${stats.size} bytes; ${fileBytes} is the most`);
        const bytes = Buffer.alloc(stats.size);
        const { bytesRead } = await handle.read(bytes, 0, stats.size, 0);
        return { path, stamp, text: bytes.subarray(0, bytesRead).toString("utf8") };
      } finally {
        await handle.close();
      }
    } catch (error) {
      if (!(error instanceof WorkspacePathError)) throw error;
      if (error.problem !== "missing") throw invalidField("file_path", error.message);
      throw new AgentError("not_found", `file_path: ${error.message}`, {
        fieldViolations: [{ field: "file_path", description: error.message }],
        cause: error,
      });
    }
  }
}

/** Tells when a message has come in whole. */
class CountingReader extends StreamMessageReader {
  readonly #onMessage: () => void;

  constructor(readable: NodeJS.ReadableStream, onMessage: () => void) {
    super(readable);
    // Else it goes on telling for ever that half a message has come.
    this.partialMessageTimeout = 0;
    this.#onMessage = onMessage;
  }

  override listen(callback: DataCallback) {
    return super.listen((message) => {
      this.#onMessage();
      callback(message);
    });
  }
}
