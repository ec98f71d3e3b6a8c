import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { encodeSessionConfig } from "../../src/convert/proto/session-config.ts";
import { openOrRescue } from "../../src/log/open-or-rescue.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import { plainConfig } from "../../src/session/session-worker.ts";
import { summaryOfLog } from "../../src/session/summary-of-log.ts";

test("schedules with their runs and plans with their versions come out of a damaged file", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-rescue-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "codeagent.db");
  const before = openSqliteStore(path);
  const config = encodeSessionConfig(plainConfig("/workspace"));
  const of = { tenant: "default", atMs: 1000 };
  const parent = { parentId: "", parentSeq: 0, requestId: "", requestHash: "", blobs: [] };
  await before.createSession({ ...of, ...parent, sessionId: "one", config, summary: summaryOfLog(config, []) });
  const times = { cron: "* * * * *", timeZone: "UTC", misfirePolicy: "one", nextMs: 60_000 };
  const body = new Uint8Array([1, 2, 3]);
  await before.createSchedule({ ...of, ...times, scheduleId: "often", principal: "me", sessionId: "one", body });
  const entry = { ...of, sessionId: "one", key: "a", turnId: "t1", principal: "me", body, hash: "", waitingLimit: 16 };
  const command = { ...entry, kind: "turn" } as const;
  const run = {
    runId: "run",
    scheduleId: "often",
    trigger: "cron",
    scheduledMs: 60_000,
    command,
    givesWay: false,
  } as const;
  await before.fireSchedule({ ...of, scheduleId: "often", seenMs: 60_000, nextMs: 120_000, runs: [run], error: "" });
  const schedule = await before.readSchedule("default", "often");
  const runs = await before.listScheduleRuns("default", "often", undefined, 10);
  assert.deepEqual([schedule?.nextMs, runs.length], [120_000, 1]);
  await before.createPlan({ ...of, planId: "plan", sessionId: "one", body });
  await before.addPlanVersion({ ...of, planId: "plan", seenVersion: 1, body: new Uint8Array([4]) });
  await before.setPlanExecution("default", "plan", "exec");
  const plans = [await before.readPlan("default", "plan", 1), await before.readPlan("default", "plan", 2)];
  assert.deepEqual([plans[1]?.executionId, plans[0]?.body.length], ["exec", 3]);
  await before.close();
  appendFileSync(path, new Uint8Array(5000));

  const reports: string[] = [];
  const report = (_level: string, message: string) => void reports.push(message);
  const after = openOrRescue({ path, report, summaryOfLog, now: () => 5000 });
  context.after(() => after.close());
  assert.match(reports.join(), /damaged/);
  assert.deepEqual(await after.readSchedule("default", "often"), schedule);
  assert.deepEqual(await after.listScheduleRuns("default", "often", undefined, 10), runs);
  assert.deepEqual([await after.readPlan("default", "plan", 1), await after.readPlan("default", "plan")], plans);
});
