import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, type TestContext, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { type CreateScheduleRequestSchema, ScheduleService } from "../../gen/codeagent/v1/schedule_service_pb.ts";
import { Health, HealthCheckResponse_ServingStatus } from "../../gen/grpc/health/v1/health_pb.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

type NewSchedule = MessageInitShape<typeof CreateScheduleRequestSchema>;
type ServiceUnderTest = Awaited<ReturnType<typeof startAt>>;

const withCode =
  (code: Code, message = /./) =>
  (error: unknown) => {
    assert.ok(error instanceof ConnectError, String(error));
    assert.equal(Code[error.code], Code[code], error.message);
    assert.match(error.rawMessage, message);
    return true;
  };

/** The service with a clock that stands still until it is set, and goes through its schedules when told to. */
async function startAt(context: TestContext, time: string, options: TestAppOptions = {}) {
  const clock = { time };
  const service = await startTestApp(context, { ...options, now: () => Date.parse(clock.time) });
  const schedules = createClient(ScheduleService, service.transport);
  return {
    ...service,
    schedules,
    /** Sets the clock and runs what is due then; says how many runs that made. */
    async goTo(next: string): Promise<number> {
      clock.time = next;
      return service.app.schedules.sweep();
    },
    create: (schedule: NewSchedule) => schedules.createSchedule({ messages: [user("report")], ...schedule }),
    /** Each run as `trigger time state`, the oldest first. */
    async runs(scheduleId: string): Promise<string[]> {
      const { runs } = await schedules.listScheduleRuns({ scheduleId });
      return runs.map((run) => `${run.trigger} ${shortTime(run.scheduledTime)} ${run.state}`).toReversed();
    },
  };
}

const shortTime = (time: Timestamp | undefined) =>
  time === undefined ? "never" : timestampDate(time).toISOString().slice(5, 16);

/** Waits until so many turns have ended in a session. */
async function turnsEnded({ client }: Pick<ServiceUnderTest, "client">, sessionId: string, count: number) {
  if (count === 0) return;
  let ended = 0;
  for await (const { event } of client.subscribeSession({ sessionId, follow: true })) {
    if (event.case === "turnFinished" && ++ended === count) return;
  }
}

const inSession = (sessionId: string) => ({ target: { case: "sessionId" as const, value: sessionId } });
const inNewSessions = (template: object) => ({ target: { case: "sessionTemplate" as const, value: template } });

describe("a schedule", { timeout: 60_000 }, () => {
  test("runs its turn in its session, each time once, however often somebody looks", async (context) => {
    const service = await startAt(context, "2026-01-05T08:59:30Z");
    await service.client.createSession({ sessionId: "one" });
    const created = await service.create({
      scheduleId: "daily",
      cron: " 0  9 * * 1-5 ",
      title: "t",
      ...inSession("one"),
    });
    assert.equal(created.cron, "0 9 * * 1-5");
    assert.deepEqual([created.state, created.timeZone, created.misfirePolicy], ["active", "UTC", "one"]);
    assert.deepEqual([shortTime(created.nextTime), shortTime(created.lastTime)], ["01-05T09:00", "never"]);
    assert.equal(await service.goTo("2026-01-05T08:59:59.999Z"), 0);
    assert.equal(await service.goTo("2026-01-05T09:00:00.100Z"), 1);
    assert.equal(await service.goTo("2026-01-05T09:00:10Z"), 0);
    await turnsEnded(service, "one", 1);
    const sweep = () => service.goTo("2026-01-06T09:00:01Z");
    const made = await Promise.all([sweep(), sweep(), sweep()]);
    assert.deepEqual(made, [1, 0, 0]);
    await turnsEnded(service, "one", 2);
    assert.deepEqual(await service.runs("daily"), ["cron 01-05T09:00 completed", "cron 01-06T09:00 completed"]);
    const read = await service.schedules.getSchedule({ scheduleId: "daily" });
    assert.deepEqual(
      [shortTime(read.nextTime), shortTime(read.lastTime), read.runCount, read.title],
      ["01-07T09:00", "01-06T09:00", 2n, "t"],
    );
    const { messages } = await service.client.listMessages({ sessionId: "one" });
    assert.deepEqual(
      messages.map((message) => message.contentType.value),
      ["report", "hello", "report", "hello"],
    );
    const started = [];
    for await (const { event } of service.client.subscribeSession({ sessionId: "one" }))
      if (event.case === "turnStarted") started.push([event.value.principal, event.value.requestId]);
    assert.deepEqual(started[0], ["local", `cron:daily:${Date.parse("2026-01-05T09:00:00Z")}`]);
    const { runs } = await service.schedules.listScheduleRuns({ scheduleId: "daily" });
    for (const run of runs) {
      assert.equal(run.sessionId, "one");
      assert.equal(run.finishReason, "stop");
      assert.ok(run.turnId !== "" && run.startTime !== undefined && run.endTime !== undefined);
    }
  });

  test("makes a new session from its template each time", async (context) => {
    const service = await startAt(context, "2026-01-05T08:59:30Z", { files: { "sub/a.txt": "a" } });
    const template = {
      title: "nightly",
      workspace: join(service.workspace, "sub"),
      initialMessages: [user("before")],
      metadata: { team: "blue" },
      permissions: { mode: "read-only" },
    };
    const created = await service.create({ scheduleId: "nightly", cron: "0 * * * *", ...inNewSessions(template) });
    assert.ok(created.target.case === "sessionTemplate");
    assert.equal(created.target.value.title, "nightly");
    assert.equal(await service.goTo("2026-01-05T09:00:00Z"), 1);
    assert.equal(await service.goTo("2026-01-05T10:00:00Z"), 1);
    const { runs } = await service.schedules.listScheduleRuns({ scheduleId: "nightly" });
    const ids = runs.map(({ sessionId }) => sessionId);
    assert.equal(new Set(ids).size, 2);
    for (const sessionId of ids) {
      await turnsEnded(service, sessionId, 1);
      const session = await service.client.getSession({ sessionId });
      assert.deepEqual([session.title, session.messageCount, session.metadata["team"]], ["nightly", 3, "blue"]);
      assert.deepEqual([session.workspace, session.permissions?.mode], [template.workspace, "read-only"]);
    }
  });

  // Sooner than it would be found by looking now and then.
  test("goes off by itself when its time comes", { timeout: 10_000 }, async (context) => {
    const startedMs = performance.now();
    const beginMs = Date.parse("2026-01-05T08:59:59.700Z");
    const { client, transport } = await startTestApp(context, {
      now: () => beginMs + Math.floor(performance.now() - startedMs),
    });
    await client.createSession({ sessionId: "one" });
    const schedules = createClient(ScheduleService, transport);
    await schedules.createSchedule({ cron: "* * * * *", messages: [user("now")], ...inSession("one") });
    await turnsEnded({ client }, "one", 1);
  });

  describe("over changes of the clock in Zurich", () => {
    const cases = [
      {
        name: "in March a time that is skipped is run right after",
        from: "2026-03-28T12:00:00Z",
        times: ["2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"],
        made: [0, 1, 0, 1],
        next: "03-31T00:30",
      },
      {
        name: "in October a time that comes twice is run the first time",
        from: "2026-10-24T12:00:00Z",
        times: ["2026-10-25T00:29:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        made: [0, 1, 0, 1],
        next: "10-27T01:30",
      },
    ];
    for (const { name, from, times, made, next } of cases) {
      test(name, async (context) => {
        const service = await startAt(context, from);
        await service.client.createSession({ sessionId: "one" });
        const timeZone = "Europe/Zurich";
        await service.create({ scheduleId: "early", cron: "30 2 * * *", timeZone, ...inSession("one") });
        const found: number[] = [];
        for (const time of times) found.push(await service.goTo(time));
        assert.deepEqual(found, made);
        const { nextTime } = await service.schedules.getSchedule({ scheduleId: "early" });
        assert.equal(shortTime(nextTime), next);
      });
    }
  });

  describe("whose times passed while no server ran", () => {
    const cases = [
      { policy: "", runs: ["misfire 01-05T12:00 completed"] },
      { policy: "one", runs: ["misfire 01-05T12:00 completed"] },
      { policy: "none", runs: [] },
      {
        policy: "all",
        runs: ["10", "11", "12"].map((hour) => `misfire 01-05T${hour}:00 completed`),
      },
    ];
    for (const { policy: misfirePolicy, runs } of cases) {
      test(`makes up for them as its policy says: ${misfirePolicy || "nothing"}`, async (context) => {
        const dataDir = await temporaryFolder(context);
        const before = await startAt(context, "2026-01-05T09:30:00Z", { dataDir });
        await before.client.createSession({ sessionId: "one" });
        await before.create({ scheduleId: "hourly", cron: "0 * * * *", misfirePolicy, ...inSession("one") });
        await before.app.close(0);
        const after = await startAt(context, "2026-01-05T12:30:00Z", { dataDir });
        await after.app.schedules.sweep();
        await turnsEnded(after, "one", runs.length);
        assert.deepEqual(await after.runs("hourly"), runs);
        assert.equal(await after.goTo("2026-01-05T13:00:30Z"), 1);
        await turnsEnded(after, "one", runs.length + 1);
        assert.deepEqual(await after.runs("hourly"), [...runs, "cron 01-05T13:00 completed"]);
      });
    }

    test("has room for all that it makes up for", async (context) => {
      const flags = { "limits.max_queued_turns": 1 };
      const service = await startAt(context, "2026-01-05T09:30:00Z", { flags });
      await service.client.createSession({ sessionId: "one" });
      await service.create({ scheduleId: "often", cron: "* * * * *", misfirePolicy: "all", ...inSession("one") });
      assert.equal(await service.goTo("2026-01-05T09:50:00Z"), 20);
      await turnsEnded(service, "one", 20);
    });
  });

  test("is paused and resumed; what passed in between is not made up for", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    await service.client.createSession({ sessionId: "one" });
    await service.create({ scheduleId: "hourly", cron: "0 * * * *", misfirePolicy: "all", ...inSession("one") });
    const paused = await service.schedules.pauseSchedule({ scheduleId: "hourly" });
    assert.deepEqual([paused.state, paused.nextTime], ["paused", undefined]);
    assert.equal(await service.goTo("2026-01-05T11:30:00Z"), 0);
    const resumed = await service.schedules.resumeSchedule({ scheduleId: "hourly" });
    assert.deepEqual([resumed.state, shortTime(resumed.nextTime)], ["active", "01-05T12:00"]);
    assert.equal(await service.goTo("2026-01-05T11:59:00Z"), 0);
    assert.equal(await service.goTo("2026-01-05T12:00:00Z"), 1);
  });

  test("is run by a call, once for a request id, also while it is paused", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    await service.client.createSession({ sessionId: "one" });
    const { nextTime } = await service.create({ scheduleId: "hourly", cron: "0 * * * *", ...inSession("one") });
    const run = await service.schedules.runSchedule({ scheduleId: "hourly", requestId: "r1" });
    assert.deepEqual([run.trigger, run.sessionId, shortTime(run.scheduledTime)], ["call", "one", "01-05T08:30"]);
    const again = await service.schedules.runSchedule({ scheduleId: "hourly", requestId: "r1" });
    assert.deepEqual([again.runId, again.turnId], [run.runId, run.turnId]);
    await service.schedules.pauseSchedule({ scheduleId: "hourly" });
    await service.schedules.runSchedule({ scheduleId: "hourly", requestId: "r2" });
    await turnsEnded(service, "one", 2);
    assert.deepEqual(await service.runs("hourly"), ["call 01-05T08:30 completed", "call 01-05T08:30 completed"]);
    const resumed = await service.schedules.resumeSchedule({ scheduleId: "hourly" });
    assert.deepEqual([resumed.nextTime, resumed.runCount], [nextTime, 2n]);
  });

  test("says how a run failed", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z", { script: "- when: { text: other }\n  text: no\n" });
    await service.client.createSession({ sessionId: "one" });
    await service.create({ scheduleId: "hourly", cron: "0 * * * *", ...inSession("one") });
    await service.goTo("2026-01-05T09:00:00Z");
    await turnsEnded(service, "one", 1);
    const { runs } = await service.schedules.listScheduleRuns({ scheduleId: "hourly" });
    assert.deepEqual([runs[0]?.state, runs[0]?.finishReason], ["failed", "error"]);
    assert.ok((runs[0]?.error?.message ?? "") !== "");
  });

  test("waits or gives way when the run before goes on, and says so when there is no room", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z", {
      script: "- text: slowly\n  first_delay_ms: 60000\n",
      flags: { "limits.max_queued_turns": 1 },
    });
    await service.client.createSession({ sessionId: "one" });
    await service.client.createSession({ sessionId: "two" });
    await service.create({ scheduleId: "polite", cron: "0 * * * *", overlapPolicy: "skip", ...inSession("one") });
    await service.create({ scheduleId: "patient", cron: "0 * * * *", ...inSession("two") });
    assert.equal(await service.goTo("2026-01-05T09:00:00Z"), 2);
    await Promise.all(["one", "two"].map((sessionId) => stepStarted(service, sessionId)));
    assert.equal(await service.goTo("2026-01-05T10:00:00Z"), 1);
    assert.equal(await service.goTo("2026-01-05T11:00:00Z"), 0);
    assert.deepEqual(await service.runs("polite"), [
      "cron 01-05T09:00 running",
      "cron 01-05T10:00 skipped",
      "cron 01-05T11:00 skipped",
    ]);
    assert.deepEqual(await service.runs("patient"), [
      "cron 01-05T09:00 running",
      "cron 01-05T10:00 queued",
      "cron 01-05T11:00 skipped",
    ]);
    const reasons = async (scheduleId: string) =>
      (await service.schedules.listScheduleRuns({ scheduleId })).runs[0]?.error?.reason;
    assert.deepEqual([await reasons("polite"), await reasons("patient")], ["RUN_UNFINISHED", "TURN_QUEUE_FULL"]);
    assert.equal((await service.schedules.getSchedule({ scheduleId: "polite" })).runCount, 1n);
    const full = service.schedules.runSchedule({ scheduleId: "patient" });
    await assert.rejects(full, withCode(Code.ResourceExhausted));
    await service.client.cancelTurn({ sessionId: "one" });
    await turnsEnded(service, "one", 1);
    assert.equal((await service.runs("polite"))[0], "cron 01-05T09:00 cancelled");
  });

  test("is broken when its session is deleted", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    const { client, schedules } = service;
    await client.createSession({ sessionId: "one" });
    await service.create({ scheduleId: "hourly", cron: "0 * * * *", ...inSession("one") });
    await service.goTo("2026-01-05T09:00:00Z");
    await turnsEnded(service, "one", 1);
    await client.deleteSession({ sessionId: "one" });
    const broken = await schedules.getSchedule({ scheduleId: "hourly" });
    assert.deepEqual([broken.state, broken.nextTime], ["broken", undefined]);
    assert.match(broken.error, /session one is gone/);
    assert.deepEqual(await service.runs("hourly"), ["cron 01-05T09:00 deleted"]);
    assert.equal(await service.goTo("2026-01-05T10:00:00Z"), 0);
    for (const refused of [schedules.runSchedule, schedules.resumeSchedule])
      await assert.rejects(refused({ scheduleId: "hourly" }), withCode(Code.FailedPrecondition, /session one is gone/));
    assert.equal((await schedules.pauseSchedule({ scheduleId: "hourly" })).state, "broken");
    await client.createSession({ sessionId: "one" });
    assert.equal((await schedules.resumeSchedule({ scheduleId: "hourly" })).state, "active");
    assert.equal(await service.goTo("2026-01-05T11:00:00Z"), 1);
  });

  test("that can't be read any more does not keep the others from running", async (context) => {
    const dataDir = await temporaryFolder(context);
    const before = await startAt(context, "2026-01-05T08:30:00Z", { dataDir });
    await before.client.createSession({ sessionId: "one" });
    await before.create({ scheduleId: "bad", cron: "0 * * * *", ...inSession("one") });
    await before.create({ scheduleId: "good", cron: "0 * * * *", ...inSession("one") });
    await before.app.close(0);
    const database = new DatabaseSync(join(dataDir, "codeagent.db"));
    database.exec("update schedules set tz = 'Mars/Olympus' where id = 'bad'");
    database.close();
    const after = await startAt(context, "2026-01-05T08:31:00Z", { dataDir });
    assert.equal(await after.goTo("2026-01-05T09:00:00Z"), 1);
    const bad = await after.schedules.getSchedule({ scheduleId: "bad" });
    assert.equal(bad.state, "broken");
    assert.match(bad.error, /Mars\/Olympus/);
  });

  test("is whole at every moment of a fire: the time moved, the run listed and the command sent, or none of it", async (context) => {
    const folder = await temporaryFolder(context);
    const dataDir = join(folder, "data");
    const script = "- text: slowly\n  first_delay_ms: 60000\n";
    const service = await startAt(context, "2026-01-05T08:30:00Z", { dataDir, script });
    await service.client.createSession({ sessionId: "one" });
    await service.create({ scheduleId: "hourly", cron: "0 * * * *", ...inSession("one") });
    const database = new DatabaseSync(join(dataDir, "codeagent.db"), { readOnly: true });
    const copies: string[] = [];
    const copy = async () => {
      const copied = join(folder, `copy-${copies.length}`);
      await mkdir(copied);
      database.exec(`vacuum into '${join(copied, "codeagent.db")}'`);
      copies.push(copied);
    };
    await copy();
    const sweep = service.goTo("2026-01-05T09:00:00Z");
    const swept = sweep.then(() => true);
    do await copy();
    while (!(await Promise.race([swept, new Promise((resolve) => setImmediate(() => resolve(false)))])));
    await copy();
    database.close();
    const fired: boolean[] = [];
    for (const copied of copies) {
      const store = openSqliteStore(join(copied, "codeagent.db"));
      const moved = (await store.readSchedule("default", "hourly"))?.nextMs === Date.parse("2026-01-05T10:00:00Z");
      const listed = (await store.listScheduleRuns("default", "hourly", undefined, 10)).length;
      const sent = (await store.readInbox("one")).length + (await store.readEvents("one", 0, 1, 1)).length;
      await store.close();
      assert.deepEqual([listed, sent], moved ? [1, 1] : [0, 0]);
      fired.push(moved);
    }
    assert.deepEqual([fired[0], fired.at(-1)], [false, true]);
    await service.app.close(0);
    for (const copied of [copies[0], copies.at(-1)]) {
      const reopened = await startAt(context, "2026-01-05T09:00:20Z", { dataDir: copied ?? "" });
      await reopened.app.schedules.sweep();
      await turnsEnded(reopened, "one", 1);
      assert.deepEqual(await reopened.runs("hourly"), ["cron 01-05T09:00 completed"]);
    }
  });

  test("ends with the server: nothing is run after it was told to stop", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    await service.client.createSession({ sessionId: "one" });
    await service.create({ scheduleId: "hourly", cron: "0 * * * *", ...inSession("one") });
    await service.app.close(0);
    assert.equal(await service.goTo("2026-01-05T09:00:00Z"), 0);
  });
});

describe("the service of schedules", { timeout: 60_000 }, () => {
  test("names what is wrong with a schedule", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    await service.client.createSession({ sessionId: "one" });
    await service.create({ scheduleId: "taken", cron: "0 * * * *", ...inSession("one") });
    const template = (fields: object) => inNewSessions(fields);
    const hourly = { cron: "0 * * * *", ...inSession("one") };
    const bad: readonly (readonly [NewSchedule, Code, RegExp])[] = [
      [{ ...hourly, cron: "61 * * * *" }, Code.InvalidArgument, /^cron: field 1, the minute, is "61"/],
      [{ ...hourly, cron: "* * * * * *" }, Code.InvalidArgument, /^cron: has 6 fields/],
      [{ ...hourly, cron: "0 0 31 2 *" }, Code.InvalidArgument, /^cron: names days that never come/],
      [{ ...hourly, timeZone: "Mars/Olympus" }, Code.InvalidArgument, /^time_zone: /],
      [{ ...hourly, messages: [] }, Code.InvalidArgument, /^messages: is empty/],
      [{ ...hourly, messages: [{ role: "nobody" }] }, Code.InvalidArgument, /^messages\[0\]\.role/],
      [{ ...hourly, misfirePolicy: "some" }, Code.InvalidArgument, /^misfire_policy: .*one, all, none/],
      [{ ...hourly, overlapPolicy: "some" }, Code.InvalidArgument, /^overlap_policy: .*queue, skip/],
      [{ ...hourly, options: { temperature: 9 } }, Code.InvalidArgument, /^options\.temperature/],
      [{ ...hourly, scheduleId: "a b" }, Code.InvalidArgument, /^schedule_id: /],
      [{ ...hourly, title: "x".repeat(1001) }, Code.InvalidArgument, /^title: /],
      [{ cron: "0 * * * *" }, Code.InvalidArgument, /^target: is missing/],
      [{ ...hourly, ...template({ placement: "gpu" }) }, Code.FailedPrecondition, /^no server has the placement gpu/],
      [{ ...hourly, ...template({ sessionId: "mine" }) }, Code.InvalidArgument, /^session_template\.session_id: /],
      [{ ...hourly, ...template({ requestId: "mine" }) }, Code.InvalidArgument, /^session_template\.request_id: /],
      [{ ...hourly, ...template({ permissions: { mode: "any" } }) }, Code.InvalidArgument, /^session_template\.perm/],
      [{ ...hourly, ...inSession("none") }, Code.NotFound, /no session none/],
      [{ ...hourly, model: "nobody/model" }, Code.NotFound, /nobody/],
      [{ ...hourly, scheduleId: "taken" }, Code.AlreadyExists, /schedule taken exists/],
      [{ ...hourly, messages: [user("x".repeat(300_000))] }, Code.ResourceExhausted, /262144 is the most/],
    ];
    for (const [schedule, code, message] of bad)
      await assert.rejects(service.create(schedule), withCode(code, message));
    assert.equal((await service.schedules.listSchedules({})).schedules.length, 1);
  });

  test("knows nothing of schedules that are not there", async (context) => {
    const { schedules, app } = await startAt(context, "2026-01-05T08:30:00Z");
    const calls = [
      schedules.getSchedule,
      schedules.pauseSchedule,
      schedules.resumeSchedule,
      schedules.deleteSchedule,
      schedules.runSchedule,
      schedules.listScheduleRuns,
    ];
    for (const call of calls) {
      await assert.rejects(call({ scheduleId: "none" }), withCode(Code.NotFound, /no schedule none/));
      await assert.rejects(call({ scheduleId: "" }), withCode(Code.InvalidArgument, /^schedule_id: is empty/));
    }
    const wrong = { scheduleId: "none", pageToken: "wrong" };
    await assert.rejects(schedules.listSchedules(wrong), withCode(Code.InvalidArgument, /^page_token/));
    const other = { tenant: "other", name: "somebody" };
    assert.deepEqual(await app.schedules.list(other, "", undefined, 10), { schedules: [], more: false });
  });

  test("does what a request id asks for once", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    const { schedules } = service;
    await service.client.createSession({ sessionId: "one" });
    const hourly = { cron: "0 * * * *", requestId: "r1", ...inSession("one") };
    const [first, second] = await Promise.all([service.create(hourly), service.create(hourly)]);
    assert.equal(first.scheduleId, second.scheduleId);
    assert.deepEqual(await service.create(hourly), first);
    await assert.rejects(service.create({ ...hourly, cron: "1 * * * *" }), withCode(Code.AlreadyExists, /r1/));
    assert.equal((await schedules.listSchedules({})).schedules.length, 1);
    const { scheduleId } = first;
    await schedules.pauseSchedule({ scheduleId, requestId: "r2" });
    await schedules.resumeSchedule({ scheduleId, requestId: "r3" });
    await schedules.pauseSchedule({ scheduleId, requestId: "r2" });
    assert.equal((await schedules.getSchedule({ scheduleId })).state, "active");
    await assert.rejects(schedules.deleteSchedule({ scheduleId, requestId: "r2" }), withCode(Code.AlreadyExists));
    await schedules.deleteSchedule({ scheduleId, requestId: "r4" });
    await schedules.deleteSchedule({ scheduleId, requestId: "r4" });
    await assert.rejects(schedules.getSchedule({ scheduleId }), withCode(Code.NotFound));
  });

  test("lists schedules and runs a page at a time", async (context) => {
    const service = await startAt(context, "2026-01-05T08:30:00Z");
    await service.client.createSession({ sessionId: "one" });
    await service.client.createSession({ sessionId: "two" });
    const ids = ["a", "b", "c", "d", "e"];
    for (const id of ids)
      await service.create({ scheduleId: id, cron: "0 * * * *", ...inSession(id < "d" ? "one" : "two") });
    const listed: string[] = [];
    let pageToken = "";
    do {
      const page = await service.schedules.listSchedules({ pageSize: 2, pageToken });
      listed.push(...page.schedules.map(({ scheduleId }) => scheduleId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    assert.deepEqual(listed, ids.toReversed());
    const ofTwo = await service.schedules.listSchedules({ sessionId: "two" });
    assert.deepEqual(
      ofTwo.schedules.map(({ scheduleId }) => scheduleId),
      ["e", "d"],
    );
    const made: string[] = [];
    for (let count = 0; count < 5; count++) {
      made.push((await service.schedules.runSchedule({ scheduleId: "a" })).runId);
      await turnsEnded(service, "one", count + 1);
    }
    const runs: string[] = [];
    do {
      const page = await service.schedules.listScheduleRuns({ scheduleId: "a", pageSize: 2, pageToken });
      runs.push(...page.runs.map(({ runId }) => runId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    assert.deepEqual(runs, made.toReversed());
  });

  test("is among the capabilities, and healthy", async (context) => {
    const { client, transport } = await startAt(context, "2026-01-05T08:30:00Z");
    const health = await createClient(Health, transport).check({ service: ScheduleService.typeName });
    assert.equal(health.status, HealthCheckResponse_ServingStatus.SERVING);
    assert.ok((await client.getCapabilities({})).features.includes("schedules"));
  });
});

/** Waits until a model is asked in a session. */
async function stepStarted({ client }: ServiceUnderTest, sessionId: string): Promise<void> {
  for await (const { event } of client.subscribeSession({ sessionId, follow: true }))
    if (event.case === "stepStarted") return;
}

async function temporaryFolder(context: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-schedules-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
