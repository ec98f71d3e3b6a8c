import { startPostgres } from "../test/support/postgres.ts";
import { grpcClient } from "./grpc-client.ts";
import { type BenchOptions, interleaved, type Measured, percentile, type Sample, startProcess } from "./harness.ts";
import { agesMs } from "./upstream-client.ts";

/** What several servers over one PostgreSQL cost: durable appends, and how late the others see what one streams. */
export async function measureReplicas({ quick }: BenchOptions): Promise<Measured[]> {
  const postgres = await startPostgres();
  try {
    return [...(await appends(await postgres.createDatabase(), quick)), ...(await delays(postgres, quick))];
  } finally {
    await postgres.stop();
  }
}

async function appends(url: string, quick: boolean): Promise<Measured[]> {
  await using sqlite = await startProcess("store.ts");
  await using postgres = await startProcess("store.ts", [url]);
  const run = (store: typeof sqlite, way: string, sessions: number) => async (): Promise<Sample> => {
    const [perSecond = 0, p50 = 0, p99 = 0] = await store.ask(`${way} ${sessions} ${quick ? 100 : 1000}`);
    return { "rows/s": perSecond, "ms until durable, p50": p50, "ms until durable, p99": p99 };
  };
  const measured: Measured[] = [];
  for (const sessions of [1, 20, 200]) {
    const runs = {
      "PostgreSQL, an insert each": run(postgres, "plain", sessions),
      "PostgreSQL, one event at a time per session": run(postgres, "store", sessions),
      "PostgreSQL, deltas as fast as they are taken": run(postgres, "writer", sessions),
      "SQLite, one event at a time per session": run(sqlite, "store", sessions),
      "SQLite, deltas as fast as they are taken": run(sqlite, "writer", sessions),
    };
    measured.push(...(await interleaved(`appends on both stores, ${sessions} sessions`, runs, quick ? 1 : 5, 1)));
  }
  return measured;
}

async function delays(postgres: Awaited<ReturnType<typeof startPostgres>>, quick: boolean): Promise<Measured[]> {
  const url = await postgres.createDatabase();
  await using upstream = await startProcess("upstream.ts");
  await using one = await startProcess("service.ts", [upstream.ready, "", url]);
  await using other = await startProcess("service.ts", [upstream.ready, "", url]);
  const [asked, reader] = [grpcClient(one.ready), grpcClient(other.ready)];
  let session = 0;
  const read = (where: typeof asked, streams: number) => async (): Promise<Sample> => {
    const ages = await Promise.all(
      Array.from({ length: streams }, async () => {
        const sessionId = `delays-${++session}`;
        await asked.createSession({ sessionId });
        const content = { case: "content" as const, value: "go on" };
        const messages = [{ role: "user", contentType: content }];
        const turn = asked.generate({ sessionId, messages, model: `forward/timed-${quick ? 50 : 200}-20` });
        const seen: number[] = [];
        for await (const { event } of where.subscribeSession({ sessionId, afterSeq: 0n, follow: true })) {
          if (event.case === "blockDelta" && event.value.delta.case === "text")
            seen.push(...agesMs(event.value.delta.value));
          if (event.case === "turnFinished") break;
        }
        await turn;
        return seen;
      }),
    );
    return {
      "ms from write to reader, p50": percentile(ages.flat(), 50),
      "ms from write to reader, p99": percentile(ages.flat(), 99),
    };
  };
  const measured: Measured[] = [];
  for (const streams of [1, 20]) {
    const runs = { "at the same server": read(asked, streams), "at the other server": read(reader, streams) };
    measured.push(...(await interleaved(`${streams} streams of 50 deltas/s, read`, runs, quick ? 1 : 3, 1)));
  }
  return measured;
}
