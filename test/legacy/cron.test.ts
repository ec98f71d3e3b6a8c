import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Code, createClient } from "@connectrpc/connect";
import { status } from "@grpc/grpc-js";
import { ScheduleService } from "../../gen/codeagent/v1/schedule_service_pb.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";

/** Ended after the last test of this file, the latest first. */
const endings: (() => unknown)[] = [];
const file = { after: (end?: unknown) => void (typeof end === "function" && endings.unshift(() => end())) };
after(async () => {
  for (const end of endings) await end();
});

/** 2026-03-02 is a Monday. */
const monday = Date.UTC(2026, 2, 2, 8, 0);
const minuteMs = 60_000;

let app: Awaited<ReturnType<typeof startTestApp>>;
let client: LegacyClient;
/** What the clock of the app is ahead of the real one. */
let aheadMs = 0;
before(async () => {
  const startMs = Date.now();
  app = await startTestApp(file, {
    flags: { "permissions.deny": ["run_command(rm)"] },
    now: () => monday + Date.now() - startMs + aheadMs,
  });
  client = legacyClients(file, app.app.url).L2;
});

const job = (answer: LegacyMessage): LegacyMessage => {
  assert.deepEqual([answer["success"], answer["error"]], [true, ""]);
  const { job: found } = answer;
  assert.ok(typeof found === "object" && found !== null);
  return { ...found };
};
const created = async (name: string, command: string, more: LegacyMessage = {}) =>
  job(await client.call("CreateCronJob", { name, command, schedule: "@daily", ...more }));
const ran = async (id: unknown): Promise<LegacyMessage> => {
  const answer = await client.call("RunCronJob", { id });
  assert.deepEqual([answer["success"], answer["error"]], [true, ""]);
  const { execution } = answer;
  assert.ok(typeof execution === "object" && execution !== null);
  return { ...execution };
};
const history = async (id: unknown, limit = 0): Promise<readonly LegacyMessage[]> => {
  const { executions } = await client.call("GetCronHistory", { id, limit });
  assert.ok(Array.isArray(executions));
  return executions;
};

describe("cron jobs of the earlier service", { timeout: 60_000 }, () => {
  test("a job is created, read by id and by name, and listed", async () => {
    const made = await created("backup", "echo saved > saved.txt", {
      schedule: "weekdays at 9:30",
      timeout_ms: "5000",
    });
    assert.partialDeepStrictEqual(made, {
      ...{ name: "backup", schedule: "30 9 * * 1-5", command: "echo saved > saved.txt", timeout_ms: "5000" },
      ...{ status: "CRON_JOB_STATUS_ACTIVE", run_count: "0", fail_count: "0", working_dir: app.workspace },
      next_run: String(monday + 90 * minuteMs),
    });
    assert.ok(!("last_run" in made));
    const { id } = made;
    for (const request of [{ id }, { name: "backup" }, { id, name: "backup" }])
      assert.deepEqual({ ...(await client.call("GetCronJob", request)) }["job"], { ...made });
    const { jobs } = await client.call("ListCronJobs");
    assert.ok(Array.isArray(jobs));
    assert.deepEqual(
      jobs.map((each) => at(each, "id")),
      [id],
    );
    const again = await client.call("CreateCronJob", { name: "backup", command: "true", schedule: "@hourly" });
    assert.equal(again["success"], false);
    assert.match(String(again["error"]), /job named backup already/);
    assert.equal(at(await client.call("GetCronJob", { id }), "job.command"), "echo saved > saved.txt");
    assert.deepEqual({ ...(await client.call("DeleteCronJob", { id })) }, { success: true, error: "" });
    await assert.rejects(client.call("GetCronJob", { id }), { code: status.NOT_FOUND });
    assert.equal((await created("backup", "true"))["run_count"], "0", "its name is free again");
  });

  const outcomes: readonly (readonly [
    name: string,
    command: string,
    expected: { readonly status: string; readonly exit?: number; readonly stdout?: string; readonly stderr?: string },
    error: RegExp,
  ])[] = [
    ["both outputs", "echo out; echo err >&2", { status: "SUCCESS", exit: 0, stdout: "out\n", stderr: "err\n" }, /^$/],
    ["silence", "true", { status: "SUCCESS", exit: 0, stdout: "", stderr: "" }, /^$/],
    ["output that is JSON", `echo '{"a": 1}'`, { status: "SUCCESS", exit: 0, stdout: '{"a": 1}\n' }, /^$/],
    ["references of plans", `echo '\${input.x} {"ref": "input.x"}'`, { status: "SUCCESS", exit: 0 }, /^$/],
    [
      "a pipe, a variable and a star",
      "x=2; for f in *.md; do echo $f $x; done | sort",
      { status: "SUCCESS", stdout: "README.md 2\n" },
      /^$/,
    ],
    ["what ends like a pattern", "echo a:*", { status: "SUCCESS", stdout: "a:*\n" }, /^$/],
    ["several lines", "echo one\necho two", { status: "SUCCESS", stdout: "one\ntwo\n" }, /^$/],
    [
      "failure",
      "echo so far; echo why >&2; exit 3",
      { status: "FAILED", exit: 3, stdout: "so far\n", stderr: "why\n" },
      /^exit code 3 /,
    ],
    ["no such program", "no-such-program-here", { status: "FAILED", exit: 127 }, /^exit code 127 /],
    ["time over", "echo begun; sleep 60", { status: "TIMEOUT", stdout: "begun\n" }, /stopped after 400 ms/],
    ["what the server denies", "rm saved.txt", { status: "FAILED", stdout: "" }, /denied by the policy/],
    ["what the sandbox walls off", "echo x > /etc/written-by-cron", { status: "FAILED", exit: 1 }, /^exit code 1 /],
  ];
  for (const [name, command, expected, error] of outcomes)
    test(`a run tells what its command came to: ${name}`, async () => {
      const { id } = await created(name, command, name === "time over" ? { timeout_ms: "400" } : {});
      const execution = await ran(id);
      const seen = `${JSON.stringify(execution)}`;
      assert.equal(execution["status"], `CRON_EXECUTION_STATUS_${expected.status}`, seen);
      assert.equal(execution["exit_code"], expected.exit ?? (expected.status === "SUCCESS" ? 0 : undefined), seen);
      if (expected.stdout !== undefined) assert.equal(execution["stdout"], expected.stdout);
      if (expected.stderr !== undefined) assert.equal(execution["stderr"], expected.stderr);
      assert.match(String(execution["error"] ?? ""), error);
      assert.equal(execution["job_id"], id);
      const [started, ended, took] = ["started_at", "ended_at", "duration_ms"].map((field) => Number(execution[field]));
      assert.ok(started !== undefined && ended !== undefined && took === ended - started && took >= 0, seen);
      assert.deepEqual(await history(id), [execution], "the history says the same");
      const read = (await client.call("GetCronJob", { id }))["job"];
      const failed = expected.status === "SUCCESS" ? "0" : "1";
      assert.deepEqual([at(read, "run_count"), at(read, "fail_count")], ["1", failed]);
      assert.equal(at(read, "status"), "CRON_JOB_STATUS_ACTIVE");
      assert.ok(Math.abs(Number(at(read, "last_run")) - (started ?? 0)) < 60_000);
    });

  test("a job runs when its time comes, in the workspace, and nobody is asked", async () => {
    const { id, next_run } = await created("timed", "echo done >> timed.txt", { schedule: "every 5 minutes" });
    aheadMs += Number(next_run) - monday;
    assert.ok((await app.app.schedules.sweep()) >= 1);
    const [run] = await ended(id, 1);
    assert.equal(run?.["status"], "CRON_EXECUTION_STATUS_SUCCESS");
    assert.equal(await readFile(join(app.workspace, "timed.txt"), "utf8"), "done\n");
    const read = (await client.call("GetCronJob", { id }))["job"];
    assert.ok(Number(at(read, "next_run")) > Number(next_run));
    const pending = await app.client.listPendingRequests({});
    assert.deepEqual(pending.requests, []);
  });

  test("a job that is paused does not run by itself, and does when it is told to; resumed it goes on", async () => {
    const { id } = await created("paused", "echo once", { schedule: "every minute" });
    const paused = job(await client.call("PauseCronJob", { id }));
    assert.equal(paused["status"], "CRON_JOB_STATUS_PAUSED");
    assert.ok(!("next_run" in paused));
    aheadMs += 3 * minuteMs;
    await app.app.schedules.sweep();
    assert.deepEqual(await history(id), []);
    assert.equal((await ran(id))["stdout"], "once\n");
    const changed = job(await client.call("UpdateCronJob", { id, schedule: "@hourly" }));
    assert.deepEqual([changed["status"], "next_run" in changed], ["CRON_JOB_STATUS_PAUSED", false]);
    const resumed = job(await client.call("ResumeCronJob", { id }));
    assert.equal(resumed["status"], "CRON_JOB_STATUS_ACTIVE");
    assert.equal(Number(resumed["next_run"]) % (60 * minuteMs), 0);
  });

  test("what is updated changes, what is left out stays; the old command runs no more", async () => {
    const { id, updated_at } = await created("changing", "echo old", { schedule: "0 1 * * *", timeout_ms: "7000" });
    const first = job(await client.call("UpdateCronJob", { id, command: "echo new" }));
    assert.partialDeepStrictEqual(first, { id, command: "echo new", schedule: "0 1 * * *", timeout_ms: "7000" });
    assert.ok(Number(first["updated_at"]) >= Number(updated_at));
    assert.equal((await ran(id))["stdout"], "new\n");
    const second = job(await client.call("UpdateCronJob", { id, schedule: "每天早上9点", timeout_ms: "900" }));
    assert.partialDeepStrictEqual(second, {
      command: "echo new",
      schedule: "0 9 * * *",
      timeout_ms: "900",
      run_count: "1",
    });
    const refused = await client.call("UpdateCronJob", { id, schedule: "every 45 minutes", command: "echo worse" });
    assert.equal(refused["success"], false);
    assert.match(String(refused["error"]), /every 45 minutes/);
    assert.equal(at(await client.call("GetCronJob", { id }), "job.command"), "echo new");
  });

  test("while a run goes on its job says so, and a second one does not wait for it", async () => {
    const { id } = await created("slow", "while ! test -e go; do sleep 0.05; done; echo went", { timeout_ms: "20000" });
    const first = client.call("RunCronJob", { id });
    const running = async () => at(await client.call("GetCronJob", { id }), "job.status");
    while ((await running()) !== "CRON_JOB_STATUS_RUNNING");
    const [open] = await history(id);
    assert.equal(open?.["status"], "CRON_EXECUTION_STATUS_UNKNOWN");
    assert.ok(open !== undefined && !("ended_at" in open));
    const { id: other } = await created("opener", "touch go");
    assert.equal((await ran(other))["status"], "CRON_EXECUTION_STATUS_SUCCESS");
    assert.equal(at(await first, "execution.stdout"), "went\n");
    assert.equal(await running(), "CRON_JOB_STATUS_ACTIVE");
  });

  test("what the server's rules can't tell of is asked for, and the run says so at once", async () => {
    const { id } = await created("asked", "x=$(echo r)m; $x saved.txt");
    const { success, error, execution } = await client.call("RunCronJob", { id });
    assert.equal(success, false);
    assert.match(String(error), /has not ended: it waits for an approval/);
    assert.equal(at(execution, "status"), "CRON_EXECUTION_STATUS_UNKNOWN");
    const { requests } = await app.client.listPendingRequests({});
    assert.deepEqual(
      requests.map((request) => request.toolName),
      ["run_command"],
    );
    const [{ sessionId = "", requestId = "" } = {}] = requests;
    await app.client.respondToRequest({ sessionId, responses: [{ requestId, decision: "deny" }] });
    const [run] = await ended(id, 1);
    assert.equal(run?.["status"], "CRON_EXECUTION_STATUS_FAILED");
    assert.match(String(run?.["error"]), /denied it/);
  });

  test("the history is newest first and bounded; long outputs lose their middle", async () => {
    const { id } = await created("long", "date +%s%N; head -c 300000 /dev/zero | tr '\\0' x; echo; echo end");
    for (let run = 0; run < 3; run++) await ran(id);
    const runs = await history(id);
    assert.equal(runs.length, 3);
    const times = runs.map((run) => Number(String(run["stdout"]).split("\n")[0]));
    assert.deepEqual(
      times,
      times.toSorted((left, right) => right - left),
    );
    for (const run of runs) assert.ok(String(run["stdout"]).length < 66_000);
    assert.equal((await history(id, 2)).length, 2);
    assert.deepEqual(await history(id, 1), runs.slice(0, 1));
  });

  test("ScheduleService shows cron jobs, and plain schedules are no cron jobs", async () => {
    const schedules = createClient(ScheduleService, app.transport);
    const { id } = await created("shown", "echo shown");
    const shown = await schedules.getSchedule({ scheduleId: String(id) });
    assert.deepEqual([shown.title, shown.metadata["cron_job"], shown.cron], ["shown", "shown", "0 0 * * *"]);
    const plain = await schedules.createSchedule({
      ...{ scheduleId: "plain", cron: "0 0 * * *", metadata: { cron_job: "plain", command: "true" } },
      target: { case: "sessionTemplate", value: {} },
      messages: [{ role: "user", contentType: { case: "content", value: "hello" } }],
    });
    const { jobs } = await client.call("ListCronJobs");
    assert.ok(Array.isArray(jobs) && jobs.length > 0);
    assert.ok(!jobs.some((each) => at(each, "id") === plain.scheduleId));
    for (const rpc of ["GetCronJob", "RunCronJob", "DeleteCronJob", "PauseCronJob", "GetCronHistory"])
      await assert.rejects(client.call(rpc, { id: "plain" }), { code: status.NOT_FOUND }, rpc);
  });

  test("bad calls are named, unknown jobs are not found", async () => {
    const make = (more: LegacyMessage) =>
      ["CreateCronJob", { name: "x", command: "true", schedule: "@daily", ...more }] as const;
    const { INVALID_ARGUMENT, NOT_FOUND } = status;
    const cases: readonly (readonly [rpc: string, request: LegacyMessage, code: number, said: RegExp])[] = [
      [...make({ name: " " }), INVALID_ARGUMENT, /name/],
      [...make({ name: "x".repeat(101) }), INVALID_ARGUMENT, /101 characters/],
      [...make({ name: "a\nb" }), INVALID_ARGUMENT, /name/],
      [...make({ command: "" }), INVALID_ARGUMENT, /command/],
      [...make({ command: "a\0b" }), INVALID_ARGUMENT, /command/],
      [...make({ command: "x".repeat(16 * 1024 + 1) }), INVALID_ARGUMENT, /16385 bytes/],
      [...make({ schedule: "" }), INVALID_ARGUMENT, /schedule/],
      [...make({ timeout_ms: "600001" }), INVALID_ARGUMENT, /timeout_ms/],
      ["GetCronJob", {}, INVALID_ARGUMENT, /id/],
      ["GetCronJob", { id: "none" }, NOT_FOUND, /cron job none/],
      ["GetCronJob", { name: "none" }, NOT_FOUND, /named none/],
      ["GetCronJob", { id: "../etc" }, NOT_FOUND, /cron job/],
      ["UpdateCronJob", { id: "none", command: "true" }, NOT_FOUND, /cron job/],
      ["PauseCronJob", { id: "none" }, NOT_FOUND, /cron job/],
      ["ResumeCronJob", { id: "none" }, NOT_FOUND, /cron job/],
      ["DeleteCronJob", { id: "none" }, NOT_FOUND, /cron job/],
      ["RunCronJob", { id: "none" }, NOT_FOUND, /cron job/],
      ["GetCronHistory", { id: "none" }, NOT_FOUND, /cron job/],
      ["GetCronHistory", {}, INVALID_ARGUMENT, /id/],
    ];
    for (const [rpc, request, code, said] of cases)
      await assert.rejects(client.call(rpc, request), (error: { code: number; message: string }) => {
        assert.equal(error.code, code, `${rpc}: ${error.message}`);
        assert.match(error.message, said);
        return true;
      });
    for (const schedule of ["banana", "61 * * * *", "0 0 30 2 *"]) {
      const [rpc, request] = make({ schedule });
      assert.equal((await client.call(rpc, request))["success"], false, schedule);
    }
    await assert.rejects(client.call("GetCronJob", { name: "x" }), { code: NOT_FOUND });
  });

  test("a phrase is read without making a job", async () => {
    const read = async (input: string) => ({ ...(await client.call("ParseCronSchedule", { input })) });
    assert.deepEqual(await read("每周一上午10点"), {
      ...{ success: true, cron_expression: "0 10 * * 1", description: "at 10:00 on Monday", error: "" },
    });
    const refused = await read("every 90 minutes");
    assert.deepEqual([refused["success"], refused["cron_expression"]], [false, ""]);
    assert.match(String(refused["error"]), /90 minutes.*“每周一上午10点”/);
    assert.match(String((await read("0 25 * * *"))["error"]), /hour.*25/);
    assert.match(String((await read("0 0 31 2 *"))["error"]), /never come/);
  });

  test("who may not administer the server makes, changes and runs nothing", async (context) => {
    const dataDir = await mkdtemp(join(tmpdir(), "codeagent-cron-"));
    context.after(() => rm(dataDir, { recursive: true, force: true }));
    const open = await startTestApp(context, { dataDir });
    const { id } = job(
      await legacyClients(context, open.app.url).L2.call("CreateCronJob", {
        ...{ name: "made before", command: "touch ran.txt", schedule: "@daily" },
      }),
    );
    await open.app.close(0);
    const closed = await startTestApp(context, { dataDir, flags: { admin_api: "off" } });
    const caller = legacyClients(context, closed.app.url).L2;
    const requests: Readonly<Record<string, LegacyMessage>> = {
      CreateCronJob: { name: "x", command: "true", schedule: "@daily" },
      ...{
        UpdateCronJob: { id },
        PauseCronJob: { id },
        ResumeCronJob: { id },
        DeleteCronJob: { id },
        RunCronJob: { id },
      },
    };
    for (const [rpc, request] of Object.entries(requests))
      await assert.rejects(caller.call(rpc, request), { code: status.PERMISSION_DENIED }, rpc);
    const schedules = createClient(ScheduleService, closed.transport);
    const scheduleId = String(id);
    for (const change of [
      schedules.runSchedule({ scheduleId }),
      schedules.pauseSchedule({ scheduleId }),
      schedules.resumeSchedule({ scheduleId }),
      schedules.deleteSchedule({ scheduleId }),
    ])
      await assert.rejects(change, { code: Code.PermissionDenied });
    assert.equal(at(await caller.call("ListCronJobs"), "jobs.0.status"), "CRON_JOB_STATUS_ACTIVE");
    assert.deepEqual({ ...(await caller.call("GetCronHistory", { id })) }, { executions: [] });
  });

  test("without a sandbox there are no cron jobs", async (context) => {
    const open = await startTestApp(context, { flags: { sandbox: "none" } });
    const caller = legacyClients(context, open.app.url).L2;
    const request = { name: "x", command: "true", schedule: "@daily" };
    await assert.rejects(caller.call("CreateCronJob", request), { code: status.FAILED_PRECONDITION });
  });

  test("a restart keeps jobs and their history", async (context) => {
    const dataDir = await mkdtemp(join(tmpdir(), "codeagent-cron-"));
    context.after(() => rm(dataDir, { recursive: true, force: true }));
    const first = await startTestApp(context, { dataDir });
    const earlier = legacyClients(context, first.app.url).L2;
    const request = { name: "kept", command: "echo kept; exit 4", schedule: "@daily" };
    const { id } = job(await earlier.call("CreateCronJob", request));
    await earlier.call("RunCronJob", { id });
    const told = await earlier.call("GetCronHistory", { id });
    await first.app.close(0);
    const second = await startTestApp(context, { dataDir });
    const later = legacyClients(context, second.app.url).L2;
    assert.deepEqual({ ...(await later.call("GetCronHistory", { id })) }, { ...told });
    assert.equal(at(told, "executions.0.exit_code"), 4);
    assert.equal(at(await later.call("GetCronJob", { name: "kept" }), "job.fail_count"), "1");
  });
});

/** The history of a job once so many of its runs have ended. */
async function ended(id: unknown, count: number): Promise<readonly LegacyMessage[]> {
  for (;;) {
    const runs = (await history(id)).filter((run) => "ended_at" in run);
    if (runs.length >= count) return runs;
  }
}
