import assert from "node:assert/strict";
import { setTimeout as wait } from "node:timers/promises";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { ScheduleService } from "../../gen/codeagent/v1/schedule_service_pb.ts";
import { blowGround, type Replica } from "../support/blow-ground.ts";
import { type BlowReport, countedLog } from "../support/counted-log.ts";
import { testDatabase } from "../support/postgres.ts";
import { user } from "../support/test-app.ts";

const script = `
- { when: { nth: 1 }, tool_calls: [{ name: change, arguments: {} }] }
- { when: { nth: 2 }, text: reported }
`;
const minuteMs = 60_000;
/** A minute of the servers goes by in a second. */
const speed = 60;
const settleLimitMs = 60_000;

/**
 * Two servers over one PostgreSQL run a schedule in a session and one in new sessions, each minute of a clock that runs
 * fast, while one or both of them are killed, mostly when a minute begins, and started again.
 * @returns with `turns` as runs; `gaps` and `duplicates` count also minutes that were not run or run again, by the history
 *   of the schedules and by the turns of the logs
 */
export async function cronKillLoop(kills: number, random: () => number): Promise<BlowReport> {
  const originMs = Date.now();
  const clockMs = () => originMs + (Date.now() - originMs) * speed;
  const ground = blowGround(script, {
    DATABASE_URL: await testDatabase(),
    CLOCK_SPEED: String(speed),
    CLOCK_ORIGIN_MS: String(originMs),
    CODEAGENT_LIMITS_MAX_TURN_MS: "86400000",
    CODEAGENT_LIMITS_MAX_QUEUED_TURNS: "1000",
  });
  let times = 0;
  try {
    const replicas = await Promise.all([ground.start("a"), ground.start("b")]);
    const first = (): Replica => replicas[0] ?? assert.fail("no server");
    const permissions = { mode: "bypass" };
    await first().client.createSession({ sessionId: "reports", permissions });
    const common = { cron: "* * * * *", misfirePolicy: "all", messages: [user("report")] };
    const created = createClient(ScheduleService, first().transport);
    const made = await Promise.all([
      created.createSchedule({ ...common, scheduleId: "same", target: { case: "sessionId", value: "reports" } }),
      created.createSchedule({
        ...common,
        scheduleId: "new",
        target: { case: "sessionTemplate", value: { permissions } },
      }),
    ]);
    while (times < kills) {
      const leftMs = (minuteMs - (clockMs() % minuteMs)) / speed;
      await wait(leftMs + random() * 200); // they look every 50 ms whether a minute has begun
      const both = kills - times >= 2 && random() < 0.25;
      const victims = both ? [0, 1] : [random() < 0.5 ? 0 : 1];
      await Promise.all(victims.map((index) => replicas[index]?.kill()));
      times += victims.length;
      await Promise.all(
        victims.map(async (index) => {
          replicas[index] = await ground.start(`again-${times}-${index}`);
        }),
      );
    }
    const schedules = createClient(ScheduleService, first().transport);
    const restartedMs = clockMs();
    const limitMs = performance.now() + settleLimitMs;
    let [turns, events, gaps, duplicates] = [0, 0, 0, 0];
    const minutes = new Map<string, number[]>();
    for (const { scheduleId, nextTime } of made) {
      const isBehind = async () => msOf((await schedules.getSchedule({ scheduleId })).nextTime) <= restartedMs;
      while (await isBehind()) {
        assert.ok(performance.now() < limitMs, `${scheduleId} stands still`);
        await wait(50);
      }
      await schedules.pauseSchedule({ scheduleId });
      const { runs } = await schedules.listScheduleRuns({ scheduleId, pageSize: 1000 });
      const listed = runs.map((run) => msOf(run.scheduledTime)).toReversed();
      assert.deepEqual(
        runs.filter(({ state }) => state === "skipped"),
        [],
      );
      const untilMs = Math.floor(restartedMs / minuteMs) * minuteMs;
      assert.ok((listed.at(-1) ?? 0) >= untilMs, `${scheduleId} ran up to the end`);
      minutes.set(scheduleId, listed);
      turns += runs.length;
      // The logs of the sessions say the same as the history.
      const logs =
        scheduleId === "same" ? [["reports", runs.length] as const] : runs.map((run) => [run.sessionId, 1] as const);
      const started: number[] = [];
      for (const [sessionId, count] of logs.toReversed()) {
        const log = await readTurns(first(), sessionId, count);
        for (const requestId of log.requestIds) {
          const [kind, id, time] = requestId.split(":");
          assert.deepEqual([kind, id], ["cron", scheduleId]);
          started.push(Number(time));
        }
        events += log.events;
        gaps += log.gaps;
        duplicates += log.duplicates;
      }
      for (const found of [listed, started]) {
        const once = new Set(found);
        duplicates += found.length - once.size;
        for (let ms = msOf(nextTime); ms <= Math.max(untilMs, ...found); ms += minuteMs) if (!once.delete(ms)) gaps++;
        assert.equal(once.size, 0, `${scheduleId} ran at ${[...once]}, which are not its times`);
      }
    }
    const { sessions } = await first().client.listSessions({ pageSize: 1000 });
    assert.equal(sessions.length, 1 + (minutes.get("new")?.length ?? 0), "no session without a run");
    return { times, turns, events, cuts: 0, gaps, duplicates, ...ground.tools(), takeoverMs: [] };
  } finally {
    await ground.close();
  }
}

/** Reads a session until so many turns have ended; says who asked for those that began. */
async function readTurns({ client }: Replica, sessionId: string, count: number) {
  const log = countedLog();
  const requestIds: string[] = [];
  const signal = AbortSignal.timeout(settleLimitMs);
  for await (const chunk of client.subscribeSession({ sessionId, follow: true }, { signal })) {
    log.add(chunk);
    const { event } = chunk;
    if (event.case === "turnStarted") requestIds.push(event.value.requestId);
    if (event.case !== "turnFinished") continue;
    assert.equal(event.value.finishReason, "stop", JSON.stringify(event.value.error?.message));
    if (log.turns === count) break;
  }
  return { requestIds, events: Number(log.lastSeq), gaps: log.gaps, duplicates: log.duplicates };
}

function msOf(time: Timestamp | undefined): number {
  return time === undefined ? Number.NaN : timestampMs(time);
}
