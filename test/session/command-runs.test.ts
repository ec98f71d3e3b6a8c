import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { CreateScheduleRequestSchema } from "../../gen/codeagent/v1/schedule_service_pb.ts";
import type { Schedule } from "../../src/chat/schedule.ts";
import { decodeSchedule, encodeSchedule, scheduleFromProto } from "../../src/convert/proto/schedule.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import { commandPermissions } from "../../src/session/command-run.ts";
import { defaultSessionLimits } from "../../src/session/run-turn.ts";
import { Schedules, type SchedulesOptions } from "../../src/session/schedules.ts";
import { decidePermission, resolveSubject, rulesOf } from "../../src/tool/permission.ts";

const principal = { tenant: "default", name: "somebody" };
const minuteMs = 60_000;
const schedule: Schedule = {
  ...{ title: "job", cron: "* * * * *", timeZone: "UTC", messages: [], model: "", options: {}, metadata: {} },
  misfirePolicy: "one",
  overlapPolicy: "skip",
  command: { commandLine: "echo 1", timeoutMs: 1000 },
  target: {
    type: "template",
    config: { title: "", workspace: "/", model: "", systemPrompt: "", initialMessages: [], metadata: {} },
  },
};

async function startAt(context: TestContext, keptCommandSessions: number) {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-commands-"));
  const store = openSqliteStore(join(folder, "codeagent.db"));
  context.after(async () => {
    await store.close();
    await rm(folder, { recursive: true, force: true });
  });
  let nowMs = 10 * minuteMs;
  let ids = 0;
  const deleted: string[] = [];
  const sessions: SchedulesOptions["sessions"] = {
    admit: async () => ({ model: "", options: {} }),
    wake: () => undefined,
    checkPlacement: () => undefined,
    async delete({ tenant }, sessionId) {
      deleted.push(sessionId);
      await store.deleteSession(tenant, sessionId);
    },
  };
  const schedules = new Schedules({
    store,
    sessions,
    environment: {
      now: () => nowMs,
      newId: (prefix) => `${prefix}_${++ids}`,
      report: (_level, message, { error }) => assert.fail(`${message}: ${error}`),
      profiles: new Map(),
      limits: defaultSessionLimits,
    },
    defaultModel: "",
    keptCommandSessions,
  });
  /** The next time has come; its run ends at once. */
  const next = async () => {
    nowMs += minuteMs;
    await schedules.sweep();
    const [run] = await store.listScheduleRuns("default", "job", undefined, 1);
    const { sessionId = "", turnId = "" } = run ?? {};
    const claim = await store.claim(sessionId);
    const [entry] = await store.readInbox(sessionId);
    assert.ok(claim !== undefined && entry !== undefined);
    const events = [{ kind: "turn-finished", body: new Uint8Array() }];
    await store.append({ sessionId, fence: claim.fence, events, turnId, atMs: nowMs, takenKeys: [entry.key] });
    await store.release(sessionId, claim.fence, false);
    return sessionId;
  };
  return { store, schedules, next, deleted };
}

test("the sessions of the last runs of a command are kept, older ones go", async (context) => {
  const { store, schedules, next, deleted } = await startAt(context, 3);
  await schedules.create(principal, schedule, "job", () => undefined);
  const made: string[] = [];
  for (let run = 0; run < 6; run++) made.push(await next());
  assert.deepEqual(deleted, made.slice(0, 3));
  const there = await Promise.all(made.map(async (id) => (await store.readSession("default", id)) !== undefined));
  assert.deepEqual(there, [false, false, false, true, true, true]);
  assert.equal((await store.listScheduleRuns("default", "job", undefined, 10)).length, 6, "the list keeps them all");
});

test("the sessions of plain schedules stay", async (context) => {
  const { schedules, next, deleted } = await startAt(context, 1);
  const { command, ...plain } = schedule;
  assert.ok(command !== undefined);
  await schedules.create(principal, plain, "job", () => undefined);
  for (let run = 0; run < 3; run++) await next();
  assert.deepEqual(deleted, []);
});

test("a stored schedule has its command again, and bytes of a client make none", () => {
  const stored = encodeSchedule(schedule);
  assert.deepEqual(decodeSchedule(stored, schedule).command, schedule.command);
  const { command: _, ...plain } = schedule;
  assert.ok(!("command" in decodeSchedule(encodeSchedule(plain), schedule)));
  const request = fromBinary(CreateScheduleRequestSchema, stored);
  assert.ok(
    !("command" in scheduleFromProto({ ...request, misfirePolicy: "one" })),
    "a request says nothing of commands",
  );
});

const commands: readonly (readonly [allowed: string, run: string, deny: readonly string[], decision: string])[] = [
  ["echo 1", "echo 1", [], "allow"],
  ["echo 1", "echo 2", [], "ask"],
  ["echo 1", "echo 1; ls", [], "ask"],
  ["echo 1", "echo 1 2", [], "ask"],
  ["echo a:*", "echo a:*", [], "allow"],
  ["echo a:*", "echo a b", [], "ask"],
  ["curl x | sh > out 2>&1", "curl x | sh > out 2>&1", [], "allow"],
  ["echo (", "echo (", [], "allow"],
  ["echo ')'", "echo ')'", [], "allow"],
  ["rm x", "rm x", ["run_command(rm)"], "deny"],
  ["true && rm x", "true && rm x", ["run_command(rm)"], "deny"],
  ["echo x > .git/config", "echo x > .git/config", [], "ask"],
];
for (const [allowed, run, deny, decision] of commands)
  test(`where ${allowed} may run ${deny.length > 0 ? `and the server denies ${deny}, ` : ""}${run}: ${decision}`, async () => {
    const call = { name: "run_command", readOnly: false, runsProgram: true, workspace: "/", contentSha256: "" };
    const subject = await resolveSubject({ ...call, arguments: { command: run } });
    const server = { mode: "ask", allow: [], ask: [], deny, sandbox: "bwrap" } as const;
    const found = decidePermission(rulesOf(server, commandPermissions(allowed)), [], subject);
    assert.equal(found.decision, decision, found.explanation);
  });
