import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { type Client, createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { CodeAgentService, type GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { end, firstLine, type ServerProcess, startServer } from "../session/kill-loop.ts";
import type { CountedLog } from "./counted-log.ts";

/** A gRPC connection of its own. */
export interface Connection {
  readonly transport: Transport;
  readonly client: Client<typeof CodeAgentService>;
  /** Cuts it, with every call on it. */
  cut(): void;
}

export interface Replica extends Connection {
  readonly process: ServerProcess;
  readonly url: string;
  /** Ends its process at once and waits until it has ended. */
  kill(): Promise<void>;
}

/** A folder where servers work that are to be killed, and the list of what their tools did. */
export interface BlowGround {
  readonly folder: string;
  /** Starts a server and waits until it listens. */
  start(name: string): Promise<Replica>;
  /** Calls of the changing tool that began, and how often one began again. */
  tools(): { readonly toolsBegun: number; readonly toolsTwice: number };
  /** Ends what runs and removes the folder. */
  close(): Promise<void>;
}

/** @param env settings that all of the servers share */
export function blowGround(script: string, env: Readonly<Record<string, string>> = {}): BlowGround {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-kill-"));
  const effectsFile = join(folder, "effects");
  writeFileSync(effectsFile, "");
  writeFileSync(join(folder, "script.yaml"), script);
  const running = new Set<ServerProcess>();
  return {
    folder,
    async start(name) {
      const process = startServer(folder, effectsFile, { ...env, CODEAGENT_DATA_DIR: join(folder, name) });
      running.add(process);
      const url = await firstLine(process);
      const connection = connect(url);
      const kill = async () => {
        await end(process, "SIGKILL");
        running.delete(process);
        connection.cut();
      };
      return { ...connection, process, url, kill };
    },
    tools() {
      const begun = readFileSync(effectsFile, "utf8")
        .split("\n")
        .filter((line) => line.startsWith("begin change"));
      return { toolsBegun: begun.length, toolsTwice: begun.length - new Set(begun).size };
    },
    async close() {
      await Promise.all([...running].map((process) => end(process, "SIGKILL")));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function connect(url: string): Connection {
  const sessionManager = new Http2SessionManager(url);
  const transport = createGrpcTransport({ baseUrl: url, sessionManager });
  return { transport, client: createClient(CodeAgentService, transport), cut: () => sessionManager.abort() };
}

/** Most events a reader takes from one stream before it cuts its connection; a turn has some seventy. */
const mostAtOnce = 120;
const turnLimitMs = 60_000;

/**
 * Reads a session on from where its log stands, until a turn ends, and cuts its own connection after a random number of
 * events, again and again.
 * @param see is shown what the log is shown
 * @throws {ConnectError} when a stream breaks; the log knows where to go on.
 */
export async function readTurn(
  url: string,
  sessionId: string,
  log: CountedLog,
  random: () => number,
  see: (chunk: GenerateChunk) => void = () => undefined,
): Promise<void> {
  const signal = AbortSignal.timeout(turnLimitMs);
  for (;;) {
    const { client, cut } = connect(url);
    let left = 1 + Math.floor(random() * mostAtOnce);
    let ended = false;
    try {
      const request = { sessionId, afterSeq: log.lastSeq, follow: true };
      for await (const chunk of client.subscribeSession(request, { signal })) {
        log.add(chunk);
        see(chunk);
        if (chunk.event.case === "turnFinished") {
          assert.equal(chunk.event.value.finishReason, "stop", JSON.stringify(chunk.event.value.error?.message));
          ended = true;
        }
        if (ended || --left === 0) break;
      }
    } finally {
      cut();
      if (!ended) log.cuts++;
    }
    if (ended) return;
  }
}

/** Measures from the latest blow to the first event that was added after it. */
export function takeoverTimes() {
  const tookMs: number[] = [];
  let struckMs: number | undefined;
  return {
    tookMs,
    /** Now, or at a time in milliseconds since 1970. */
    struck(atMs = Date.now()): void {
      struckMs = atMs;
    },
    see({ time }: GenerateChunk): void {
      const madeMs = time === undefined ? 0 : Number(time.seconds) * 1000 + time.nanos / 1e6;
      if (struckMs === undefined || madeMs <= struckMs) return;
      tookMs.push(Date.now() - struckMs);
      struckMs = undefined;
    },
  };
}

/** Does something after a while, unless it is cancelled before; `done` says whether it was. */
export function later(delayMs: number, action: () => Promise<void>) {
  const stop = new AbortController();
  const done = (async () => {
    try {
      await wait(delayMs, undefined, { signal: stop.signal });
    } catch {
      return false;
    }
    await action();
    return true;
  })();
  done.catch(() => undefined); // whoever asks hears of it
  return { done, cancel: () => stop.abort() };
}
