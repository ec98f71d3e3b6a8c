import { type ToolResult, toolFailure } from "../../chat/tool-result.ts";
import type { FunctionContext } from "../function-provider.ts";
import type { McpConnection, McpConnectionEnvironment } from "./mcp-connection.ts";
import { toolResultFromMcp } from "./mcp-result.ts";
import type { McpServerConfig } from "./mcp-server-config.ts";
import { McpServerError, McpUnusableError } from "./mcp-server-error.ts";
import { type McpTool, readMcpTools } from "./mcp-tools.ts";

/**
 * `connecting`, `ready`, `failed` (tried again at `nextAttemptMs`) or `closed` (not tried again by itself).
 */
export type McpServerState = "connecting" | "ready" | "failed" | "closed";

/** Time, passed in. */
export interface McpClock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Runs something later, once; until the returned function is called. */
  after(ms: number, run: () => void): () => void;
}

export interface McpServerEnvironment extends Omit<McpConnectionEnvironment, "readsEnvironment"> {
  readonly clock: McpClock;
  readonly report: (level: "info" | "warn", message: string, facts?: Record<string, unknown>) => void;
}

/** Where a server was added. */
export type McpServerSource = "config" | "api";

/** How a server is. */
export interface McpServerView {
  readonly server: McpServerConfig;
  readonly source: McpServerSource;
  readonly state: McpServerState;
  /** One sentence on what went wrong last; empty while it is `ready`. */
  readonly error: string;
  /** Full names of the tools offered, in order. */
  readonly toolNames: readonly string[];
  /** What the server calls itself; empty before the first connection. */
  readonly serverInfo: string;
  readonly protocolVersion: string;
  /** When the connection that holds was made. */
  readonly connectMs?: number;
  readonly nextAttemptMs?: number;
}

const leastBackoffMs = 1000;
const mostBackoffMs = 60_000;
/** A connection that held for so long counts as a success: the next attempt after it comes soon. */
const stableMs = 60_000;
/** How long a call waits for a connection that is being made. */
const callPatienceMs = 3000;
/** Changes of the list are looked at one after another, so far apart. */
const listPauseMs = 250;
const progressPauseMs = 100;
const progressCharacters = 500;

/**
 * One MCP server over all its connections: made in the background, one attempt at a time, made again after 1 to 60 seconds
 * when it fails or breaks, until `close`.
 */
export class McpServer {
  readonly config: McpServerConfig;
  readonly source: McpServerSource;
  readonly #environment: McpServerEnvironment;
  readonly #onChange: () => void;
  #state: McpServerState = "connecting";
  #error = "";
  #tools: readonly McpTool[] = [];
  /** Of the last connection, for calls of functions that were there. */
  #connection: McpConnection | undefined;
  #serverInfo = "";
  #protocolVersion = "";
  #connectMs: number | undefined;
  #nextAttemptMs: number | undefined;
  #cancelAttempt: (() => void) | undefined;
  #failures = 0;
  #errorText = "";
  /** The attempt under way, or the last one. Never rejects. */
  #attempt: Promise<void> = Promise.resolve();
  #abort = new AbortController();
  #isClosed = false;
  #listing: Promise<void> | undefined;
  #isListStale = false;

  /** @param onChange called when the tools that are offered may have changed. */
  constructor(
    config: McpServerConfig,
    source: McpServerSource,
    environment: McpServerEnvironment,
    onChange: () => void,
  ) {
    this.config = config;
    this.source = source;
    this.#environment = environment;
    this.#onChange = onChange;
  }

  /** The tools offered: none unless it is `ready`. */
  get tools(): readonly McpTool[] {
    return this.#state === "ready" ? this.#tools : [];
  }

  get view(): McpServerView {
    return {
      server: this.config,
      source: this.source,
      state: this.#state,
      error: this.#state === "ready" ? "" : this.#error,
      toolNames: this.tools.map(({ definition }) => definition.name).sort(),
      serverInfo: this.#serverInfo,
      protocolVersion: this.#protocolVersion,
      ...(this.#state === "ready" && this.#connectMs !== undefined ? { connectMs: this.#connectMs } : {}),
      ...(this.#nextAttemptMs === undefined ? {} : { nextAttemptMs: this.#nextAttemptMs }),
    };
  }

  /** The end of what its program wrote to its standard error, in this connection or the last; for the operator. */
  get errorText(): string {
    return this.#connection?.errorText ?? this.#errorText;
  }

  /** Ends the connection, where there is one, and makes a new one in the background. */
  connect(): void {
    if (this.#isClosed) return;
    this.#cancelAttempt?.();
    this.#cancelAttempt = undefined;
    this.#nextAttemptMs = undefined;
    this.#abort.abort(new Error("begun anew"));
    const abort = new AbortController();
    this.#abort = abort;
    const before = this.#attempt;
    this.#become("connecting");
    this.#attempt = this.#connect(before, abort.signal);
  }

  /** Resolves when the attempt under way is over, or after a time. */
  async settled(limitMs: number, signal?: AbortSignal): Promise<void> {
    const limit = Promise.withResolvers<void>();
    const cancel = this.#environment.clock.after(limitMs, limit.resolve);
    const onAbort = () => limit.resolve();
    signal?.addEventListener("abort", onAbort, { once: true });
    await Promise.race([this.#attempt, limit.promise]);
    signal?.removeEventListener("abort", onAbort);
    cancel();
  }

  /** Calls a tool, by the server's name for it. What goes wrong is a failed result. @throws the reason of the signal. */
  async call(tool: string, args: Readonly<Record<string, unknown>>, context: FunctionContext): Promise<ToolResult> {
    const { name } = this.config;
    if (this.#state === "connecting") await this.settled(callPatienceMs, context.signal);
    context.signal.throwIfAborted();
    const connection = this.#connection;
    if (this.#state !== "ready" || connection === undefined) return toolFailure(`${this.#unavailable()}`);
    if (!this.#tools.some((each) => each.name === tool))
      return toolFailure(`the MCP server ${name} no longer has this tool; its tools have changed`);
    let toldMs = Number.NEGATIVE_INFINITY;
    try {
      const result = await connection.callTool(tool, args, {
        signal: context.signal,
        timeoutMs: this.config.timeoutMs,
        ...(context.onOutput === undefined
          ? {}
          : {
              onProgress: ({ progress, total, message }) => {
                const nowMs = this.#environment.clock.now();
                if (nowMs - toldMs < progressPauseMs && progress !== total) return;
                toldMs = nowMs;
                const count = total === undefined ? `${progress}` : `${progress}/${total}`;
                const text = message === undefined ? count : `${count} ${message}`;
                context.onOutput?.("progress", text.slice(0, progressCharacters));
              },
            }),
      });
      return toolResultFromMcp(name, result);
    } catch (error) {
      if (!(error instanceof McpServerError)) throw error;
      return toolFailure(`the MCP server ${name} ${error.message}`);
    }
  }

  /** Ends the connection and tries no more. Resolves when a program is gone. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#cancelAttempt?.();
      this.#nextAttemptMs = undefined;
      this.#error = "it was closed";
      this.#abort.abort(new Error("closed"));
      this.#become("closed");
    }
    await this.#attempt;
    await this.#connection?.close();
  }

  async #connect(before: Promise<void>, signal: AbortSignal): Promise<void> {
    await before;
    await this.#connection?.close();
    // Its library is large, and many a service has no MCP server.
    const { McpConnection } = await import("./mcp-connection.ts");
    if (signal.aborted) return;
    const { connectTimeoutMs } = this.config;
    const limit = new AbortController();
    const cancelLimit = this.#environment.clock.after(connectTimeoutMs, () =>
      limit.abort(new McpServerError(`was not ready within ${connectTimeoutMs} ms`)),
    );
    let connection: McpConnection | undefined;
    try {
      connection = McpConnection.prepare(
        this.config,
        { ...this.#environment, readsEnvironment: this.source === "config" },
        () => this.#listChanged(),
        () => this.#lost(connection),
      );
      this.#connection = connection;
      const stop = AbortSignal.any([signal, limit.signal]);
      await connection.open(stop, connectTimeoutMs);
      await this.#list(connection, stop);
      signal.throwIfAborted();
      this.#connectMs = this.#environment.clock.now();
      this.#serverInfo = connection.serverInfo;
      this.#protocolVersion = connection.protocolVersion;
      this.#become("ready");
    } catch (error) {
      const closing = connection?.close();
      if (!signal.aborted) this.#failed(limit.signal.aborted ? limit.signal.reason : error, connection);
      await closing;
    } finally {
      cancelLimit();
    }
  }

  async #list(connection: McpConnection, signal: AbortSignal): Promise<void> {
    const listed = await connection.listTools(signal, this.config.connectTimeoutMs);
    const { tools, diagnostics } = await readMcpTools(listed, this.config);
    this.#tools = tools;
    if (diagnostics.length > 0)
      this.#environment.report("warn", `tools of the MCP server ${this.config.name} are left out`, { diagnostics });
  }

  /** The server's tools are others: asked for once, and once more for what came meanwhile. */
  #listChanged(): void {
    this.#isListStale = true;
    this.#listing ??= this.#listAgain();
  }

  async #listAgain(): Promise<void> {
    const signal = this.#abort.signal;
    await this.#attempt;
    try {
      while (this.#isListStale && this.#state === "ready" && !signal.aborted && this.#connection !== undefined) {
        this.#isListStale = false;
        const before = JSON.stringify(this.#tools);
        await this.#list(this.#connection, signal);
        if (JSON.stringify(this.#tools) !== before) this.#onChange();
        const pause = Promise.withResolvers<void>();
        this.#environment.clock.after(listPauseMs, pause.resolve);
        await pause.promise;
      }
    } catch (error) {
      // What the list was before holds on.
      if (!signal.aborted)
        this.#environment.report("warn", `the MCP server ${this.config.name} changed its tools, but can't tell them`, {
          error,
        });
    } finally {
      this.#listing = undefined;
    }
  }

  /** The connection is over though nobody ended it. */
  #lost(connection: McpConnection | undefined): void {
    if (connection === undefined || connection !== this.#connection || this.#state !== "ready") return;
    const heldMs = this.#environment.clock.now() - (this.#connectMs ?? 0);
    if (heldMs >= stableMs) this.#failures = 0;
    this.#failed(new McpServerError(connection.endReason), connection);
  }

  #failed(error: unknown, connection: McpConnection | undefined): void {
    this.#errorText = connection?.errorText ?? "";
    const why = error instanceof Error ? error.message : "failed";
    if (error instanceof McpUnusableError) {
      this.#error = why;
      this.#become("closed");
      this.#environment.report("warn", `the MCP server ${this.config.name} can't be used`, { error: why });
      return;
    }
    this.#error = error instanceof McpServerError ? `the server ${why}` : `the server failed: ${why}`;
    const longestMs = Math.min(mostBackoffMs, leastBackoffMs * 2 ** this.#failures);
    const waitMs = Math.round(Math.max(leastBackoffMs, longestMs * (0.5 + this.#environment.random() / 2)));
    this.#failures = Math.min(this.#failures + 1, 10);
    this.#nextAttemptMs = this.#environment.clock.now() + waitMs;
    this.#cancelAttempt = this.#environment.clock.after(waitMs, () => this.connect());
    this.#become("failed");
    this.#environment.report("warn", `the MCP server ${this.config.name} is not there`, {
      error: this.#error,
      nextAttemptInMs: waitMs,
    });
  }

  #become(state: McpServerState): void {
    if (this.#isClosed && state !== "closed") return;
    const offered = this.tools.length;
    this.#state = state;
    if (offered > 0 || this.tools.length > 0) this.#onChange();
  }

  #unavailable(): string {
    const { name } = this.config;
    const next = this.#nextAttemptMs;
    if (this.#state === "connecting") return `the MCP server ${name} is being connected to; call again in a moment`;
    if (this.#state !== "failed" || next === undefined)
      return `the MCP server ${name} is not connected: ${this.#error}`;
    const seconds = Math.max(1, Math.ceil((next - this.#environment.clock.now()) / 1000));
    return `the MCP server ${name} is not connected: ${this.#error}; it is tried again in ${seconds} s`;
  }
}
