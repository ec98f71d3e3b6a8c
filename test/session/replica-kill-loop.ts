import { blowGround, later, type Replica, readTurn, takeoverTimes } from "../support/blow-ground.ts";
import { type BlowReport, countedLog } from "../support/counted-log.ts";
import { testDatabase } from "../support/postgres.ts";
import { user } from "../support/test-app.ts";
import { killScript } from "./kill-loop.ts";

export { spread } from "../support/counted-log.ts";

const frozenTtlMs = 2000;

/**
 * Two servers over one PostgreSQL. A turn is asked for at one and read at the other; the first is killed, or frozen until
 * the other has finished its turn, at a random moment.
 */
export async function replicaKillLoop(
  blow: "kill" | "freeze",
  times: number,
  random: () => number,
): Promise<BlowReport> {
  const ground = blowGround(killScript, {
    DATABASE_URL: await testDatabase(),
    ...(blow === "freeze" ? { CODEAGENT_POSTGRES_REPLICA_TTL_MS: String(frozenTtlMs) } : {}),
  });
  const sessionId = "killed-often";
  const log = countedLog();
  const takeover = takeoverTimes();
  let struck = 0;
  try {
    let [worker, reader] = await Promise.all([ground.start("a"), ground.start("b")]);
    await worker.client.createSession({ sessionId, permissions: { mode: "bypass" }, requestId: "the session" });
    for (let turn = 1; struck < times; turn++) {
      const request = { sessionId, messages: [user(`turn ${turn}`)], requestId: `turn ${turn}` };
      const ask = ({ client }: Replica) => void client.generate(request).catch(() => undefined); // read below, by cursor
      ask(worker);
      const striking = later(20 + random() * 400, async () => {
        takeover.struck();
        if (blow === "kill") await worker.kill();
        else worker.process.kill("SIGSTOP");
        ask(reader); // it may have been struck before the turn was admitted
      });
      await readTurn(reader.url, sessionId, log, random, takeover.see);
      striking.cancel();
      if (!(await striking.done)) continue;
      struck++;
      if (blow === "freeze") {
        // The one that was taken for dead comes back, and goes on with nothing.
        worker.process.kill("SIGCONT");
        await worker.client.getSession({ sessionId }, { signal: AbortSignal.timeout(10_000) });
        [worker, reader] = [reader, worker];
      } else {
        [worker, reader] = [reader, await ground.start(`again-${struck}`)];
      }
    }
    const { turns, lastSeq, cuts, gaps, duplicates } = log;
    const counts = { times: struck, turns, events: Number(lastSeq), cuts, gaps, duplicates };
    return { ...counts, ...ground.tools(), takeoverMs: takeover.tookMs };
  } finally {
    await ground.close();
  }
}
