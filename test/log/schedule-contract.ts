import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import {
  keptRuns,
  type NewSchedule,
  type ScheduledRun,
  type StoredRun,
  sessionGone,
} from "../../src/log/schedule-store.ts";
import type { AnsweredRequest, NewSession, Store } from "../../src/log/store.ts";

/** What every store has to do with schedules; a part of `storeContract`. */
export function scheduleContract(name: string, open: (context: TestContext) => Promise<Store>): void {
  const bytes = (text: string) => new TextEncoder().encode(text);
  const newSession = (sessionId: string): NewSession => ({
    ...{ sessionId, tenant: "default", parentId: "", parentSeq: 0, requestId: "", requestHash: "", atMs: 1000 },
    ...{ config: bytes("config"), summary: bytes("{}"), blobs: [] },
  });
  const newSchedule = (scheduleId: string, more: Partial<NewSchedule> = {}): NewSchedule => ({
    ...{ tenant: "default", scheduleId, principal: "somebody", sessionId: "one", cron: "* * * * *", timeZone: "UTC" },
    ...{ misfirePolicy: "one", body: bytes(`body of ${scheduleId}`), nextMs: 60_000, atMs: 1000 },
    ...more,
  });
  const run = (
    scheduleId: string,
    key: string,
    { sessionId = "one", ...more }: Partial<Omit<ScheduledRun, "command">> & { readonly sessionId?: string } = {},
  ): ScheduledRun => {
    const kind = "turn" as const;
    const entry = { sessionId, tenant: "default", key, kind, turnId: `turn-${key}`, principal: "somebody" };
    const command = { ...entry, body: bytes("body"), hash: "", atMs: 60_000, waitingLimit: 16 };
    const trigger = "cron" as const;
    const common = { runId: `run-${key}`, scheduleId, trigger, scheduledMs: 60_000, givesWay: false };
    return { ...common, command, ...more };
  };
  const fire = (store: Store, scheduleId: string, runs: readonly ScheduledRun[], seenMs = 60_000, error = "") =>
    store.fireSchedule({
      ...{ tenant: "default", scheduleId, seenMs, runs, error, atMs: seenMs + 5 },
      nextMs: error === "" ? seenMs + 60_000 : undefined,
    });
  const change = (scheduleId: string, tenant = "default") => ({ tenant, scheduleId, atMs: 2000 });
  const read = async (store: Store, scheduleId: string) => {
    const schedule = await store.readSchedule("default", scheduleId);
    assert.ok(schedule !== undefined, `${scheduleId} is there`);
    return schedule;
  };
  const keysIn = async (store: Store, sessionId: string) => (await store.readInbox(sessionId)).map(({ key }) => key);
  const request: AnsweredRequest = {
    ...{ tenant: "default", requestId: "r1", method: "CreateSchedule", hash: "h", atMs: 1000, answer: bytes("answer") },
  };
  /** Takes the command that waits longest and writes the events of its turn. */
  const runTurn = async (store: Store, sessionId: string, kinds: readonly string[], atMs: number) => {
    const claim = await store.claim(sessionId);
    const [entry] = await store.readInbox(sessionId);
    assert.ok(claim !== undefined && entry !== undefined);
    const events = kinds.map((kind) => ({ kind, body: bytes(kind) }));
    const { fence } = claim;
    const waitingSinceMs = kinds.at(-1) === "request-opened" ? atMs : null;
    const takenKeys = [entry.key];
    await store.append({ sessionId, fence, events, turnId: entry.turnId, atMs, takenKeys, waitingSinceMs });
    await store.release(sessionId, fence, false);
  };
  const opened = async (context: TestContext, schedules: readonly NewSchedule[] = [newSchedule("daily")]) => {
    const store = await open(context);
    await store.createSession(newSession("one"));
    for (const schedule of schedules) await store.createSchedule(schedule);
    return store;
  };

  describe(`schedules in a store: ${name}`, () => {
    test("what is created is read; nobody sees another tenant's", async (context) => {
      const store = await opened(context);
      const { body, ...schedule } = await read(store, "daily");
      assert.equal(new TextDecoder().decode(body), "body of daily");
      assert.deepEqual(schedule, {
        ...{ scheduleId: "daily", tenant: "default", principal: "somebody", sessionId: "one", cron: "* * * * *" },
        ...{ timeZone: "UTC", misfirePolicy: "one", nextMs: 60_000, paused: false, error: "", lastMs: undefined },
        ...{ runCount: 0, createdMs: 1000, updatedMs: 1000 },
      });
      assert.equal(await store.readSchedule("other", "daily"), undefined);
      assert.deepEqual(await store.listSchedules("other", "", undefined, 10), []);
      assert.equal(await store.pauseSchedule(change("daily", "other")), undefined);
      assert.equal(await store.deleteSchedule(change("daily", "other")), false);
      assert.deepEqual(await store.listScheduleRuns("other", "daily", undefined, 10), []);
      assert.equal(await store.runSchedule("other", run("daily", "a"), 1), undefined);
      const taken = await store.createSchedule(newSchedule("daily", { tenant: "other" }));
      assert.deepEqual(taken, { created: false, schedule: undefined });
    });

    test("an id is taken once, and a request noted with its change", async (context) => {
      const store = await opened(context);
      const again = await store.createSchedule(newSchedule("daily", { cron: "0 0 * * *" }), request);
      assert.ok(again !== "answered" && !again.created);
      assert.equal(again.schedule?.cron, "* * * * *");
      assert.equal(await store.readRequest("default", "r1"), undefined);
      await store.createSchedule(newSchedule("weekly"), request);
      assert.equal((await store.readRequest("default", "r1"))?.method, "CreateSchedule");
      assert.equal(await store.createSchedule(newSchedule("monthly"), request), "answered");
      assert.equal(await store.deleteSchedule(change("weekly"), request), "answered");
      assert.equal(await store.readSchedule("default", "monthly"), undefined);
      assert.equal(await store.deleteSchedule(change("weekly"), { ...request, requestId: "r2" }), true);
      assert.equal((await store.readRequest("default", "r2"))?.hash, "h");
      assert.equal(await store.deleteSchedule(change("weekly")), false);
    });

    test("a schedule is changed only by who saw what it was, and stays paused", async (context) => {
      const store = await opened(context);
      const seen = await read(store, "daily");
      const other = { cron: "0 9 * * *", body: bytes("other"), nextMs: 90_000 };
      assert.equal(await store.updateSchedule({ ...change("none"), seen, ...other }), undefined);
      assert.equal(await store.updateSchedule({ ...change("daily", "other"), seen, ...other }), undefined);
      const changed = await store.updateSchedule({ ...change("daily"), seen, ...other });
      assert.ok(typeof changed === "object");
      assert.deepEqual(changed, await read(store, "daily"));
      assert.deepEqual(
        [changed.cron, changed.nextMs, changed.updatedMs, changed.createdMs],
        ["0 9 * * *", 90_000, 2000, 1000],
      );
      assert.equal(new TextDecoder().decode(changed.body), "other");
      assert.equal(await store.updateSchedule({ ...change("daily"), seen, ...other }), "stale");
      const half = { cron: changed.cron, body: seen.body };
      assert.equal(await store.updateSchedule({ ...change("daily"), seen: half, ...other }), "stale");
      await store.pauseSchedule(change("daily"));
      const paused = await store.updateSchedule({ ...change("daily"), seen: changed, ...other, cron: "0 8 * * *" });
      assert.ok(typeof paused === "object");
      assert.deepEqual([paused.paused, paused.nextMs, paused.cron], [true, undefined, "0 8 * * *"]);
    });

    test("lists are newest first, of one session when asked", async (context) => {
      const ids = ["a", "b", "c", "d", "e"];
      const sessionId = (id: string) => (id === "c" ? "" : id < "c" ? "one" : "two");
      const store = await opened(
        context,
        ids.map((id, index) => newSchedule(id, { atMs: index < 3 ? 100 : 200, sessionId: sessionId(id) })),
      );
      const seen: string[] = [];
      for (let before: Awaited<ReturnType<typeof store.listSchedules>>[number] | undefined; ; ) {
        const page = await store.listSchedules("default", "", before, 2);
        seen.push(...page.map(({ scheduleId }) => scheduleId));
        before = page.at(-1);
        if (page.length < 2) break;
      }
      assert.deepEqual(seen, ["e", "d", "c", "b", "a"]);
      const ofTwo = await store.listSchedules("default", "two", undefined, 10);
      assert.deepEqual(
        ofTwo.map(({ scheduleId }) => scheduleId),
        ["e", "d"],
      );
    });

    test("those are due whose time has come, the earliest first", async (context) => {
      const store = await opened(context, [
        newSchedule("late", { nextMs: 3000 }),
        newSchedule("early", { nextMs: 1000, tenant: "other" }),
        newSchedule("second", { nextMs: 1000 }),
        newSchedule("never", { nextMs: undefined }),
        newSchedule("paused", { nextMs: 500 }),
      ]);
      await store.pauseSchedule(change("paused"));
      const due = async (untilMs: number, limit: number) =>
        (await store.dueSchedules(untilMs, limit)).map(({ scheduleId }) => scheduleId);
      assert.deepEqual(await due(999, 10), []);
      assert.deepEqual(await due(1000, 10), ["early", "second"]);
      assert.deepEqual(await due(Number.MAX_SAFE_INTEGER, 10), ["early", "second", "late"]);
      assert.deepEqual(await due(Number.MAX_SAFE_INTEGER, 1), ["early"]);
    });

    test("a paused schedule has no next time until it is resumed", async (context) => {
      const store = await opened(context);
      const paused = await store.pauseSchedule(change("daily"));
      assert.deepEqual([paused?.paused, paused?.nextMs, paused?.updatedMs], [true, undefined, 2000]);
      assert.equal((await store.pauseSchedule({ ...change("daily"), atMs: 2500 }))?.updatedMs, 2000);
      assert.equal(await fire(store, "daily", [run("daily", "a")]), undefined);
      const resumed = await store.resumeSchedule({ ...change("daily"), atMs: 3000 }, 120_000);
      assert.deepEqual([resumed?.paused, resumed?.nextMs, resumed?.updatedMs], [false, 120_000, 3000]);
      assert.equal((await store.resumeSchedule(change("daily"), 180_000))?.nextMs, 120_000);
      assert.equal(await store.resumeSchedule(change("other"), 1), undefined);
    });

    test("of those that fire a time at once, one does", async (context) => {
      const store = await opened(context);
      const all = ["a", "b", "c", "d"].map((key) => fire(store, "daily", [run("daily", key)]));
      const fired = (await Promise.all(all)).filter((runs) => runs !== undefined);
      assert.equal(fired.length, 1);
      const [[listed] = []] = fired;
      assert.deepEqual(await keysIn(store, "one"), [listed?.runId.replace("run-", "")]);
      assert.deepEqual(await store.runnableSessions(10), ["one"]);
      const { nextMs, lastMs, runCount } = await read(store, "daily");
      assert.deepEqual({ nextMs, lastMs, runCount }, { nextMs: 120_000, lastMs: 60_005, runCount: 1 });
      assert.deepEqual(await store.listScheduleRuns("default", "daily", undefined, 10), [listed]);
      assert.equal(await fire(store, "daily", [run("daily", "e")]), undefined);
      assert.equal((await fire(store, "daily", [run("daily", "f")], 120_000))?.length, 1);
    });

    test("a time that comes once more is over, and nobody else fails for it", async (context) => {
      const store = await opened(context, [newSchedule("daily"), newSchedule("other", { sessionId: "one" })]);
      assert.equal((await fire(store, "daily", [run("daily", "a")]))?.length, 1);
      await store.pauseSchedule(change("daily"));
      await store.resumeSchedule(change("daily"), 60_000);
      const again = fire(store, "daily", [run("daily", "a"), run("daily", "b")]);
      const other = fire(store, "other", [run("other", "c")]);
      assert.deepEqual(
        (await again)?.map(({ runId }) => runId),
        ["run-b"],
      );
      assert.equal((await other)?.length, 1);
      assert.deepEqual((await keysIn(store, "one")).toSorted(), ["a", "b", "c"]);
    });

    test("a fire brings its session with it", async (context) => {
      const store = await opened(context, [newSchedule("daily", { sessionId: "" })]);
      const made = ["new-1", "new-2"].map((id) => run("daily", id, { sessionId: id, session: newSession(id) }));
      const listed = await fire(store, "daily", made);
      assert.deepEqual(
        listed?.map(({ sessionId, turnId, skipped }) => [sessionId, turnId, skipped]),
        [
          ["new-1", "turn-new-1", undefined],
          ["new-2", "turn-new-2", undefined],
        ],
      );
      for (const id of ["new-1", "new-2"]) assert.deepEqual(await keysIn(store, id), [id]);
      assert.equal(
        await fire(store, "daily", [run("daily", "x", { sessionId: "x", session: newSession("x") })]),
        undefined,
      );
      assert.equal(await store.readSession("default", "x"), undefined);
    });

    test("a fire without runs moves the time, one with an error breaks the schedule", async (context) => {
      const store = await opened(context);
      assert.deepEqual(await fire(store, "daily", []), []);
      assert.equal((await read(store, "daily")).nextMs, 120_000);
      assert.deepEqual(await fire(store, "daily", [], 120_000, "it can't be read"), []);
      const { nextMs, error, runCount } = await read(store, "daily");
      assert.deepEqual({ nextMs, error, runCount }, { nextMs: undefined, error: "it can't be read", runCount: 0 });
    });

    test("a full inbox and a run that goes on skip what gives way", async (context) => {
      const store = await opened(context);
      const full = run("daily", "b");
      const runs = [
        run("daily", "a"),
        { ...full, command: { ...full.command, waitingLimit: 1 } },
        run("daily", "c", { givesWay: true }),
      ];
      const listed = await fire(store, "daily", runs);
      const shown = ({ skipped, sessionId, turnId }: StoredRun) => ({ skipped, sessionId, turnId });
      assert.deepEqual(listed?.map(shown), [
        { skipped: undefined, sessionId: "one", turnId: "turn-a" },
        { skipped: "full", sessionId: "", turnId: "" },
        { skipped: "busy", sessionId: "", turnId: "" },
      ]);
      assert.equal((await read(store, "daily")).runCount, 1);
      assert.deepEqual(await keysIn(store, "one"), ["a"]);
      await runTurn(store, "one", ["turn-started", "turn-finished"], 61_000);
      const [after] = (await fire(store, "daily", [run("daily", "d", { givesWay: true })], 120_000)) ?? [];
      assert.equal(after?.skipped, undefined);
    });

    test("the list says how runs go, newest first, a page at a time", async (context) => {
      const store = await opened(context);
      await fire(store, "daily", [run("daily", "a"), run("daily", "b"), run("daily", "c")]);
      await runTurn(store, "one", ["turn-started", "turn-finished"], 61_000);
      await runTurn(store, "one", ["turn-started", "request-opened"], 62_000);
      const shown = ({ runId, trigger, startedMs, finished, finishedMs, waits, lost }: StoredRun) => {
        const end = finished === undefined ? undefined : new TextDecoder().decode(finished);
        return [runId, trigger, startedMs, end, finishedMs, waits, lost];
      };
      const first = await store.listScheduleRuns("default", "daily", undefined, 2);
      assert.deepEqual(first.map(shown), [
        ["run-c", "cron", undefined, undefined, undefined, true, false],
        ["run-b", "cron", 62_000, undefined, undefined, true, false],
      ]);
      const second = await store.listScheduleRuns("default", "daily", first.at(-1)?.position, 2);
      assert.deepEqual(second.map(shown), [["run-a", "cron", 61_000, "turn-finished", 61_000, true, false]]);
      await store.deleteSession("default", "one");
      const [last] = await store.listScheduleRuns("default", "daily", undefined, 1);
      assert.deepEqual([last?.lost, last?.startedMs], [true, undefined]);
    });

    test("a run by call leaves the next time as it is and is made once", async (context) => {
      const store = await opened(context);
      await store.pauseSchedule(change("daily"));
      const made = await store.runSchedule("default", run("daily", "a", { trigger: "call" }), 5000);
      assert.ok(typeof made === "object");
      assert.deepEqual([made.trigger, made.turnId], ["call", "turn-a"]);
      const again = await store.runSchedule("default", run("daily", "a", { trigger: "call", runId: "other" }), 6000);
      assert.deepEqual(again, made);
      const { nextMs, lastMs, runCount, paused } = await read(store, "daily");
      assert.deepEqual([nextMs, lastMs, runCount, paused], [undefined, 5000, 1, true]);
      const full = run("daily", "b");
      const refused = { ...full, command: { ...full.command, waitingLimit: 1 } };
      assert.equal(await store.runSchedule("default", refused, 7000), "full");
      assert.equal((await store.listScheduleRuns("default", "daily", undefined, 10)).length, 1);
      assert.equal(await store.runSchedule("default", run("none", "a"), 7000), undefined);
    });

    test("a schedule is broken when its session goes", async (context) => {
      const schedules = [newSchedule("daily"), newSchedule("astray", { sessionId: "gone" })];
      const store = await opened(context, [...schedules, newSchedule("template", { sessionId: "" })]);
      await store.deleteSession("default", "one");
      const { nextMs, error, paused } = await read(store, "daily");
      assert.deepEqual([nextMs, error, paused], [undefined, sessionGone("one"), false]);
      assert.equal((await read(store, "template")).error, "");
      // Gone without a word, as after a rescue: whoever fires finds out.
      const astray = run("astray", "a", { sessionId: "gone" });
      assert.deepEqual(await fire(store, "astray", [astray]), []);
      assert.equal((await read(store, "astray")).error, sessionGone("gone"));
      assert.equal(await store.runSchedule("default", astray, 5), undefined);
      assert.deepEqual(await store.listScheduleRuns("default", "astray", undefined, 10), []);
      assert.equal((await store.pauseSchedule(change("daily")))?.paused, false);
      const resumed = await store.resumeSchedule(change("daily"), 120_000);
      assert.deepEqual([resumed?.error, resumed?.nextMs], ["", 120_000]);
    });

    test("a deleted schedule leaves what it put into sessions, and no list", async (context) => {
      const store = await opened(context);
      await fire(store, "daily", [run("daily", "a")]);
      assert.equal(await store.deleteSchedule(change("daily")), true);
      assert.equal(await fire(store, "daily", [run("daily", "b")], 120_000), undefined);
      await store.createSchedule(newSchedule("daily"));
      assert.deepEqual(await store.listScheduleRuns("default", "daily", undefined, 10), []);
      assert.deepEqual(await keysIn(store, "one"), ["a"]);
    });

    test("the list of runs is bounded", async (context) => {
      const store = await opened(context);
      const busy = Array.from({ length: keptRuns + 5 }, (_, index) => run("daily", `k${index}`, { givesWay: true }));
      await fire(store, "daily", busy);
      const kept = await store.listScheduleRuns("default", "daily", undefined, 2 * keptRuns);
      assert.equal(kept.length, keptRuns);
      assert.equal(kept[0]?.runId, `run-k${keptRuns + 4}`);
    });
  });
}
