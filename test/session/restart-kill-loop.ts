import assert from "node:assert/strict";
import { blowGround, later, type Replica, readTurn, takeoverTimes } from "../support/blow-ground.ts";
import { type BlowReport, countedLog } from "../support/counted-log.ts";
import { user } from "../support/test-app.ts";
import { end, killScript } from "./kill-loop.ts";

/** Kills in a row before anything was reached; after more of them the service would hold the session back. */
const mostFruitless = 2;
const progressCases: ReadonlySet<string | undefined> = new Set(["stepFinished", "toolFinished", "turnFinished"]);

/**
 * Kills the service over its SQLite file with SIGKILL at random moments of its turns, starts it again and goes on reading
 * from the last event seen, until every turn has finished.
 */
export async function restartKillLoop(kills: number, random: () => number): Promise<BlowReport> {
  const ground = blowGround(killScript);
  const sessionId = "killed-often";
  const log = countedLog();
  const takeover = takeoverTimes();
  let server: Replica | undefined;
  let killed = 0;
  let fruitless = 0;
  try {
    for (let turn = 1; killed < kills; turn++) {
      for (let finished = false; !finished; ) {
        server ??= await ground.start("data");
        const { client, url, kill, process } = server;
        const strikes = killed < kills;
        let killing: ReturnType<typeof later> | undefined;
        const beginToKill = () => {
          killing ??= later(20 + random() * 250, async () => {
            takeover.struck();
            await kill();
          });
        };
        if (strikes && fruitless < mostFruitless) beginToKill();
        try {
          await client.createSession({ sessionId, permissions: { mode: "bypass" }, requestId: "the session" });
          const asking = client.generate({ sessionId, messages: [user(`turn ${turn}`)], requestId: `turn ${turn}` });
          asking.catch(() => undefined); // read below, by cursor
          await readTurn(url, sessionId, log, random, (chunk) => {
            takeover.see(chunk);
            if (!progressCases.has(chunk.event.case)) return;
            fruitless = 0;
            if (strikes) beginToKill();
          });
          finished = true;
        } catch (error) {
          assert.ok(process.killed, `the stream broke without a kill: ${error}`);
        } finally {
          killing?.cancel();
        }
        if (await killing?.done) {
          killed++;
          fruitless++;
          server = undefined;
        } else if (finished) {
          await end(process, "SIGTERM");
          server = undefined;
        }
      }
    }
    const { turns, lastSeq, cuts, gaps, duplicates } = log;
    const counts = { times: killed, turns, events: Number(lastSeq), cuts, gaps, duplicates };
    return { ...counts, ...ground.tools(), takeoverMs: takeover.tookMs };
  } finally {
    await ground.close();
  }
}
