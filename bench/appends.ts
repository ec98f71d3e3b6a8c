import { type BenchOptions, interleaved, type Measured, type Sample, startProcess } from "./harness.ts";

/** Durable appends: many sessions share commits, so their rate grows with their number. */
export async function measureAppends({ quick }: BenchOptions): Promise<Measured[]> {
  await using store = await startProcess("store.ts");
  const run = (way: string, sessions: number) => async (): Promise<Sample> => {
    const [perSecond = 0, p50 = 0, p99 = 0] = await store.ask(`${way} ${sessions} ${quick ? 100 : 1000}`);
    return { "rows/s": perSecond, "ms until durable, p50": p50, "ms until durable, p99": p99 };
  };
  const measured: Measured[] = [];
  for (const sessions of [1, 20, 200]) {
    const runs = {
      "an insert and a sync each": run("plain", 1),
      "store, one event at a time per session": run("store", sessions),
      "log writer, deltas as fast as they are taken": run("writer", sessions),
    };
    measured.push(...(await interleaved(`appends, ${sessions} sessions`, runs, quick ? 1 : 5, 1)));
  }
  return measured;
}
