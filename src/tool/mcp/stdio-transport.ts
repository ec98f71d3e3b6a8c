import {
  deserializeMessage,
  type JSONRPCMessage,
  serializeMessage,
  type Transport,
} from "@modelcontextprotocol/client";
import type { SupervisedProcess } from "../supervise.ts";

export interface StdioTransportOptions {
  /** Starts the program with a pipe for its standard input. */
  readonly start: () => Promise<SupervisedProcess>;
  /** Longest message taken, in bytes; default 4 MiB. */
  readonly messageLimitBytes?: number;
  /** How long the program may take to end by itself once its input has ended; default 500. */
  readonly inputGraceMs?: number;
  /** How long it may take once it is asked to by a signal; default 2000. */
  readonly signalGraceMs?: number;
}

const newline = 0x0a;
/** What may come on the standard output between two messages: greetings, logs. */
const garbageLimitBytes = 1024 * 1024;
const keptErrorsBytes = 64 * 1024;
/** What may wait for a program that does not read. */
const unreadLimitBytes = 16 * 1024 * 1024;
/** Who says more is left waiting for a moment, so that others get their turn. */
const messagesAtOnce = 1000;
const restMs = 100;

/**
 * MCP over the standard input and output of a program: one JSON message a line, as the specification of 2025-11-25 says
 * (modelcontextprotocol.io, "Transports"). A line that is no message is passed over. A line that is too long, too much
 * that is no message, or a program that does not read ends the connection. `close` resolves when the program and all
 * it started are gone; it never rejects.
 */
export class StdioTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: ((message: JSONRPCMessage) => void) | undefined;
  readonly #options: StdioTransportOptions;
  #process: SupervisedProcess | undefined;
  #starting: Promise<SupervisedProcess> | undefined;
  /** The beginning of a line whose end has not come. */
  #pieces: Buffer[] = [];
  #lineBytes = 0;
  #garbageBytes = 0;
  #errors: Buffer[] = [];
  #errorBytes = 0;
  #messages = 0;
  #rest: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;
  #endReason: string | undefined;

  constructor(options: StdioTransportOptions) {
    this.#options = options;
  }

  /** Why the connection is over, as the end of a sentence about the program; `undefined` where `close` ended it. */
  get endReason(): string | undefined {
    return this.#endReason;
  }

  /** The end of what the program wrote to its standard error. */
  get errorText(): string {
    return Buffer.concat(this.#errors).subarray(-keptErrorsBytes).toString("utf8");
  }

  async start(): Promise<void> {
    this.#starting = this.#options.start();
    const process = await this.#starting;
    if (this.#closing !== undefined) throw new Error("the connection was closed");
    this.#process = process;
    process.stdin?.on("error", () => undefined);
    process.stdout.on("error", () => undefined);
    process.stderr.on("error", () => undefined);
    process.stdout.on("data", (bytes: Buffer) => this.#read(bytes));
    process.stderr.on("data", (bytes: Buffer) => this.#keep(bytes));
    process.ended.then(
      (code) => this.#end(`ended with exit code ${code}`),
      (error: unknown) => this.#end(`could not be started (${error instanceof Error ? error.message : "unknown"})`),
    );
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const stdin = this.#process?.stdin;
    if (stdin === undefined || this.#closing !== undefined) throw new Error("there is no connection");
    if (stdin.writableLength > unreadLimitBytes) {
      this.#end(`does not read what it is sent; ${unreadLimitBytes} bytes wait`);
      throw new Error("there is no connection");
    }
    stdin.write(serializeMessage(message));
  }

  close(): Promise<void> {
    this.#end(undefined);
    return this.#closing ?? Promise.resolve();
  }

  /** @param reason what the program did, which then gets no time to end by itself. */
  #end(reason: string | undefined): void {
    if (this.#closing !== undefined) return;
    this.#endReason = reason;
    this.#closing = this.#stop(reason === undefined);
  }

  async #stop(isPolite: boolean): Promise<void> {
    const { inputGraceMs = 500, signalGraceMs = 2000 } = this.#options;
    clearTimeout(this.#rest);
    this.#pieces = [];
    try {
      const process = this.#process ?? (await this.#starting?.catch(() => undefined));
      if (process !== undefined) {
        const { stdin, stdout } = process;
        stdout.removeAllListeners("data");
        stdout.resume();
        stdin?.end();
        if (isPolite) {
          const grace = Promise.withResolvers<void>();
          const timer = setTimeout(grace.resolve, inputGraceMs);
          await Promise.race([process.ended.catch(() => undefined), grace.promise]);
          clearTimeout(timer);
        }
        stdin?.destroy();
        await process.stop(isPolite ? signalGraceMs : 0);
      }
    } catch (error) {
      this.onerror?.(error instanceof Error ? error : new Error("the program could not be stopped"));
    }
    this.onclose?.();
  }

  #read(bytes: Buffer): void {
    const limit = this.#options.messageLimitBytes ?? 4 * 1024 * 1024;
    let start = 0;
    while (this.#closing === undefined) {
      const end = bytes.indexOf(newline, start);
      const piece = bytes.subarray(start, end === -1 ? bytes.length : end);
      this.#lineBytes += piece.length;
      if (this.#lineBytes > limit) {
        this.#end(`sent a message of more than ${limit} bytes`);
        return;
      }
      this.#pieces.push(piece);
      if (end === -1) break;
      const line = Buffer.concat(this.#pieces);
      this.#pieces = [];
      this.#lineBytes = 0;
      start = end + 1;
      this.#take(line);
    }
  }

  #take(line: Buffer): void {
    const text = line.toString("utf8").trim();
    if (text === "") return;
    let message: JSONRPCMessage;
    try {
      message = deserializeMessage(text);
    } catch {
      this.#garbageBytes += line.length;
      if (this.#garbageBytes > garbageLimitBytes)
        this.#end(`wrote more than ${garbageLimitBytes} bytes to its standard output that are no messages`);
      return;
    }
    this.#garbageBytes = 0;
    this.#messages++;
    this.#restAWhile();
    try {
      this.onmessage?.(message);
    } catch (error) {
      this.onerror?.(error instanceof Error ? error : new Error("a message could not be handled"));
    }
  }

  #restAWhile(): void {
    this.#rest ??= setTimeout(() => {
      this.#rest = undefined;
      this.#messages = 0;
      if (this.#closing === undefined) this.#process?.stdout.resume();
    }, restMs);
    if (this.#messages >= messagesAtOnce) this.#process?.stdout.pause();
  }

  #keep(bytes: Buffer): void {
    this.#errors.push(bytes);
    this.#errorBytes += bytes.length;
    if (this.#errorBytes < 2 * keptErrorsBytes && this.#errors.length < 1000) return;
    // A copy, so that the pieces it came in are not kept.
    const kept = Buffer.from(Buffer.concat(this.#errors).subarray(-keptErrorsBytes));
    this.#errors = [kept];
    this.#errorBytes = kept.length;
  }
}
