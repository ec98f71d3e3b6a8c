import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { grammarCheck } from "../support/grammar.ts";
import { user } from "../support/test-app.ts";

/** Two steps with tools that change something and that look, and an end. */
export const killScript = `
- when: { nth: 1 }
  thinking: a change and two looks are needed
  text: I begin.
  chunk: 3
  delay_ms: 2
  tool_calls: [{ name: look, arguments: {} }, { name: change, arguments: {} }, { name: look, arguments: {} }]
- when: { nth: 2 }
  text: One more change.
  chunk: 3
  delay_ms: 2
  tool_calls: [{ name: change, arguments: {} }]
- when: { nth: 3 }
  text: All is done now, and this is the end of it.
  chunk: 3
  delay_ms: 2
`;

export interface KillReport {
  readonly kills: number;
  readonly turns: number;
  readonly events: number;
  /** Calls of the changing tool that began, and how often one began again. */
  readonly changes: number;
  readonly changedTwice: number;
  /** From the start of a process to its first line, in milliseconds. */
  readonly startMs: readonly number[];
}

/**
 * Kills the service with SIGKILL at random moments of its turns, starts it again, goes on reading from the last event
 * seen, and checks: no event is lost or comes twice, every turn finishes, no finished or changing tool runs twice.
 */
export async function killLoop(kills: number, random: () => number): Promise<KillReport> {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-kill-"));
  const effectsFile = join(folder, "effects");
  writeFileSync(effectsFile, "");
  writeFileSync(join(folder, "script.yaml"), killScript);
  const startMs: number[] = [];
  const sessionId = "killed-often";
  const check = grammarCheck(1n);
  let child: ServerProcess | undefined;
  let lastSeq = 0n;
  let killed = 0;
  try {
    for (let turn = 1; killed < kills; turn++) {
      let finished = false;
      while (!finished) {
        const began = performance.now();
        child ??= startServer(folder, effectsFile);
        const url = await firstLine(child);
        startMs.push(performance.now() - began);
        const sessions = new Http2SessionManager(url);
        const client = createClient(CodeAgentService, createGrpcTransport({ baseUrl: url, sessionManager: sessions }));
        const running = child;
        const stop = new AbortController();
        const killing = killed < kills ? killAfter(running, 20 + random() * 250, stop.signal) : Promise.resolve(false);
        try {
          finished = await readTurn(client, sessionId, turn, lastSeq, (chunk) => {
            check.add(chunk);
            if (chunk.seq > 0n) lastSeq = chunk.seq;
          });
        } catch (error) {
          assert.ok(running.killed, `the stream broke without a kill: ${error}`);
        } finally {
          stop.abort();
          sessions.abort();
        }
        if (await killing) {
          killed++;
          child = undefined;
        } else if (finished) {
          await end(running, "SIGTERM");
          child = undefined;
        }
      }
    }
    check.end();
    const effects = readFileSync(effectsFile, "utf8").split("\n");
    const begun = effects.filter((line) => line.startsWith("begin change"));
    const repeated = begun.length - new Set(begun).size;
    return {
      kills: killed,
      turns: check.turns.length,
      events: Number(lastSeq),
      changes: begun.length,
      changedTwice: repeated,
      startMs,
    };
  } finally {
    if (child !== undefined) await end(child, "SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Asks for the turn, or joins it, and reads on from the cursor; true once its end was seen. */
async function readTurn(
  client: Client<typeof CodeAgentService>,
  sessionId: string,
  turn: number,
  afterSeq: bigint,
  see: (chunk: Parameters<ReturnType<typeof grammarCheck>["add"]>[0]) => void,
): Promise<boolean> {
  await client.createSession({ sessionId, permissions: { mode: "bypass" }, requestId: "the session" });
  const asking = client.generate({ sessionId, messages: [user(`turn ${turn}`)], requestId: `turn ${turn}` });
  asking.catch(() => undefined); // read below, by cursor
  for await (const chunk of client.subscribeSession({ sessionId, afterSeq, follow: true })) {
    see(chunk);
    if (chunk.event.case !== "turnFinished") continue;
    assert.equal(chunk.event.value.finishReason, "stop", JSON.stringify(chunk.event.value.error?.message));
    return true;
  }
  return false;
}

export type ServerProcess = ChildProcessByStdio<null, Readable, null>;

export function startServer(
  folder: string,
  effectsFile: string,
  env: Readonly<Record<string, string>> = {},
): ServerProcess {
  const entry = fileURLToPath(new URL("../support/serve-effects.ts", import.meta.url));
  return spawn(process.execPath, ["--disable-warning=ExperimentalWarning", entry], {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      EFFECTS_FILE: effectsFile,
      CODEAGENT_PORT: "0",
      CODEAGENT_DATA_DIR: join(folder, "data"),
      CODEAGENT_SCRIPTED_FILE: join(folder, "script.yaml"),
      CODEAGENT_MODEL: "scripted/test",
      ...env,
    },
  });
}

export async function firstLine(child: ServerProcess): Promise<string> {
  let text = "";
  for await (const piece of child.stdout.iterator({ destroyOnReturn: false })) {
    text += String(piece);
    if (text.includes("\n")) return text.trim();
  }
  throw new Error("the server ended before it listened");
}

async function killAfter(child: ServerProcess, delayMs: number, stop: AbortSignal): Promise<boolean> {
  try {
    await wait(delayMs, undefined, { signal: stop });
  } catch {
    return false; // the turn ended first
  }
  await end(child, "SIGKILL");
  return true;
}

export async function end(child: ServerProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
}

/** Random numbers from 0 to 1 that are the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
