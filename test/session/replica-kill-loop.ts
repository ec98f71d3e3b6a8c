import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { CodeAgentService, type GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { grammarCheck } from "../support/grammar.ts";
import { testDatabase } from "../support/postgres.ts";
import { user } from "../support/test-app.ts";
import { end, firstLine, killScript, type ServerProcess, startServer } from "./kill-loop.ts";

export interface ReplicaKillReport {
  readonly kills: number;
  readonly freezes: number;
  readonly turns: number;
  readonly events: number;
  /** Calls of the changing tool that began, and how often one began again. */
  readonly changes: number;
  readonly changedTwice: number;
  /** From a kill to the first event another server added, as its reader saw it. */
  readonly takeoverMs: readonly number[];
  readonly frozenTakeoverMs: readonly number[];
}

interface Replica {
  readonly process: ServerProcess;
  readonly client: Client<typeof CodeAgentService>;
  readonly close: () => void;
}

/** How a server is stopped: killed, or frozen until another one has taken its turn over. */
type Blow = "kill" | "freeze";

const frozenTtlMs = 2000;

/**
 * Two servers over one PostgreSQL. A turn is asked for at one and read at the other; the first is killed or frozen at a
 * random moment. Checks that the reader misses no event and sees none twice, that every turn finishes, and that no
 * changing tool begins twice.
 */
export async function replicaKillLoop(blows: readonly Blow[], random: () => number): Promise<ReplicaKillReport> {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-kill-"));
  const effectsFile = join(folder, "effects");
  writeFileSync(effectsFile, "");
  writeFileSync(join(folder, "script.yaml"), killScript);
  const env = {
    DATABASE_URL: await testDatabase(),
    ...(blows.includes("freeze") ? { CODEAGENT_POSTGRES_REPLICA_TTL_MS: String(frozenTtlMs) } : {}),
  };
  const all = new Set<Replica>();
  const start = async (name: string): Promise<Replica> => {
    const process = startServer(folder, effectsFile, { ...env, CODEAGENT_DATA_DIR: join(folder, name) });
    const url = await firstLine(process);
    const sessions = new Http2SessionManager(url);
    const client = createClient(CodeAgentService, createGrpcTransport({ baseUrl: url, sessionManager: sessions }));
    const replica = { process, client, close: () => sessions.abort() };
    all.add(replica);
    return replica;
  };
  const sessionId = "killed-often";
  const check = grammarCheck(1n);
  const tookMs: Record<Blow, number[]> = { kill: [], freeze: [] };
  let lastSeq = 0n;
  let struck = 0;
  try {
    let [worker, reader] = await Promise.all([start("a"), start("b")]);
    await worker.client.createSession({ sessionId, permissions: { mode: "bypass" }, requestId: "the session" });
    for (let turn = 1; struck < blows.length; turn++) {
      const request = { sessionId, messages: [user(`turn ${turn}`)], requestId: `turn ${turn}` };
      const ask = ({ client }: Replica) => void client.generate(request).catch(() => undefined); // read below, by cursor
      ask(worker);
      const blow = blows[struck] ?? "kill";
      const { struckAt, strike, cancel } = later(20 + random() * 400, async () => {
        await hit(worker.process, blow);
        ask(reader); // it may have been struck before the turn was admitted
      });
      let tookOver = false;
      const see = (chunk: GenerateChunk) => {
        check.add(chunk);
        if (chunk.seq > 0n) lastSeq = chunk.seq;
        const since = struckAt();
        const madeMs = chunk.time === undefined ? 0 : Number(chunk.time.seconds) * 1000 + chunk.time.nanos / 1e6;
        if (since === undefined || tookOver || madeMs <= since) return;
        tookOver = true;
        tookMs[blow].push(Date.now() - since);
      };
      const subscribed = reader.client.subscribeSession(
        { sessionId, afterSeq: lastSeq, follow: true },
        { signal: AbortSignal.timeout(60_000) },
      );
      for await (const chunk of subscribed) {
        see(chunk);
        if (chunk.event.case !== "turnFinished") continue;
        assert.equal(chunk.event.value.finishReason, "stop", JSON.stringify(chunk.event.value.error?.message));
        break;
      }
      cancel();
      if (!(await strike)) continue;
      struck++;
      if (blow === "freeze") {
        // The one that was taken for dead comes back, and goes on with nothing.
        worker.process.kill("SIGCONT");
        await worker.client.getSession({ sessionId }, { signal: AbortSignal.timeout(10_000) });
        [worker, reader] = [reader, worker];
      } else {
        worker.close();
        all.delete(worker);
        const fresh = await start(`again-${struck}`);
        [worker, reader] = [reader, fresh];
      }
    }
    check.end();
    const begun = readFileSync(effectsFile, "utf8")
      .split("\n")
      .filter((line) => line.startsWith("begin change"));
    return {
      kills: blows.filter((blow) => blow === "kill").length,
      freezes: blows.filter((blow) => blow === "freeze").length,
      turns: check.turns.length,
      events: Number(lastSeq),
      changes: begun.length,
      changedTwice: begun.length - new Set(begun).size,
      takeoverMs: tookMs.kill,
      frozenTakeoverMs: tookMs.freeze,
    };
  } finally {
    for (const { process, close } of all) {
      close();
      await end(process, "SIGKILL");
    }
    rmSync(folder, { recursive: true, force: true });
  }
}

async function hit(process: ServerProcess, blow: Blow): Promise<void> {
  if (blow === "kill") await end(process, "SIGKILL");
  else process.kill("SIGSTOP");
}

/** Does something after a while; `strike` says whether it was done, `struckAt` when, in milliseconds since 1970. */
function later(delayMs: number, action: () => Promise<void>) {
  const stop = new AbortController();
  let at: number | undefined;
  const strike = (async () => {
    try {
      await wait(delayMs, undefined, { signal: stop.signal });
    } catch {
      return false; // the turn ended first
    }
    at = Date.now();
    await action();
    return true;
  })();
  return { strike, struckAt: () => at, cancel: () => stop.abort() };
}

/** The middle and the end of some times, for people. */
export function spread(values: readonly number[]): { readonly p50: number; readonly max: number } {
  const sorted = values.toSorted((left, right) => left - right);
  return { p50: Math.round(sorted[sorted.length >> 1] ?? 0), max: Math.round(sorted.at(-1) ?? 0) };
}
