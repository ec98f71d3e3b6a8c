import assert from "node:assert/strict";
import { setTimeout as wait } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { blowGround, type Connection, later, readTurn, takeoverTimes } from "../support/blow-ground.ts";
import { type BlowReport, type CountedLog, countedLog } from "../support/counted-log.ts";
import { startPostgres } from "../support/postgres.ts";
import { user } from "../support/test-app.ts";
import { killScript } from "./kill-loop.ts";

/** How long a database that was killed may keep a turn from its reader. */
const outageLimitMs = 60_000;

/** Two servers run turns over a PostgreSQL that is killed at random moments and started again. */
export async function databaseKillLoop(kills: number, random: () => number): Promise<BlowReport> {
  const database = await startPostgres();
  const ground = blowGround(killScript, { DATABASE_URL: database.url });
  const sessionId = "over-a-database-that-dies";
  const log = countedLog();
  const takeover = takeoverTimes();
  let killed = 0;
  try {
    let [worker, reader] = await Promise.all([ground.start("a"), ground.start("b")]);
    await worker.client.createSession({ sessionId, permissions: { mode: "bypass" } });
    for (let turn = 1; killed < kills; turn++) {
      const request = { sessionId, messages: [user(`turn ${turn}`)], requestId: `turn ${turn}` };
      const killing = later(20 + random() * 400, async () => {
        takeover.struck();
        await database.kill();
        await database.restart();
      });
      const asked = insisting(() => worker.client.generate(request));
      await Promise.all([asked, insisting(() => readTurn(reader.url, sessionId, log, random, takeover.see))]);
      killing.cancel();
      if (await killing.done) killed++;
      [worker, reader] = [reader, worker];
    }
    const { turns, lastSeq, cuts, gaps, duplicates } = log;
    const counts = { times: killed, turns, events: Number(lastSeq), cuts, gaps, duplicates };
    return { ...counts, ...ground.tools(), takeoverMs: takeover.tookMs };
  } finally {
    await ground.close();
    await database.stop();
  }
}

/**
 * A turn waits to be allowed its tools while everything is killed: both servers and PostgreSQL. Everything is started again,
 * and the turn is allowed to go on by the server it was not asked at. Each turn asks twice.
 */
export async function approvalRestartLoop(restarts: number, random: () => number): Promise<BlowReport> {
  const database = await startPostgres();
  const ground = blowGround(killScript, { DATABASE_URL: database.url });
  const sessionId = "waits-for-days";
  const log = countedLog();
  const takeover = takeoverTimes();
  let times = 0;
  const startBoth = () => Promise.all([ground.start("a"), ground.start("b")]);
  try {
    let [asked, other] = await startBoth();
    await asked.client.createSession({ sessionId });
    for (let turn = 1; times < restarts; turn++) {
      const request = { sessionId, messages: [user(`turn ${turn}`)], requestId: `turn ${turn}` };
      asked.client.generate(request).catch(() => undefined); // read below, by cursor
      for (let approvals = 0; approvals < 2; approvals++) {
        const requestId = await readToRequest(other, sessionId, log, takeover.see);
        const begun = ground.tools().toolsBegun;
        await Promise.all([asked.kill(), other.kill(), database.kill()]);
        times++;
        await database.restart();
        [asked, other] = await startBoth();
        const { requests } = await other.client.listPendingRequests({});
        assert.deepEqual(
          requests.map((waiting) => waiting.requestId),
          [requestId],
          "it still waits",
        );
        assert.equal(ground.tools().toolsBegun, begun, "nothing ran that was not allowed");
        takeover.struck();
        const responses = [{ requestId, decision: "allow_once" }];
        await other.client.respondToRequest({ sessionId, responses });
      }
      await readTurn(other.url, sessionId, log, random, takeover.see);
      assert.equal(ground.tools().toolsBegun, 2 * log.turns, "each tool that was allowed ran");
    }
    const { turns, lastSeq, cuts, gaps, duplicates } = log;
    const counts = { times, turns, events: Number(lastSeq), cuts, gaps, duplicates };
    return { ...counts, ...ground.tools(), takeoverMs: takeover.tookMs };
  } finally {
    await ground.close();
    await database.stop();
  }
}

/** Reads on until the turn asks for something, and says what that is called. */
async function readToRequest(
  { client }: Connection,
  sessionId: string,
  log: CountedLog,
  see: (chunk: GenerateChunk) => void,
): Promise<string> {
  const signal = AbortSignal.timeout(outageLimitMs);
  for await (const chunk of client.subscribeSession({ sessionId, afterSeq: log.lastSeq, follow: true }, { signal })) {
    log.add(chunk);
    see(chunk);
    if (chunk.event.case === "requestOpened") return chunk.event.value.request?.requestId ?? "";
  }
  throw new Error("the stream ended before anything was asked");
}

/** Calls again while the service says that it can't at the moment. */
async function insisting<Answer>(call: () => Promise<Answer>): Promise<Answer> {
  const untilMs = performance.now() + outageLimitMs;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof ConnectError) || error.code !== Code.Unavailable) throw error;
      if (performance.now() > untilMs) throw error;
      await wait(50);
    }
  }
}
