import { createHash } from "node:crypto";
import { setImmediate as pause } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type CodeAgentService,
  type CronJob,
  CronJobSchema,
  CronJobStatus,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { Schedule, ScheduledCommand } from "../../chat/schedule.ts";
import { readCronPhrase } from "../../convert/legacy/cron-phrase.ts";
import { describeCron } from "../../convert/legacy/describe-cron.ts";
import { keptRuns, type SchedulePosition } from "../../log/schedule-store.ts";
import { commandPermissions } from "../../session/command-run.ts";
import { cronTimes } from "../../session/next-fire.ts";
import type { RunView, ScheduleView } from "../../session/schedules.ts";
import { theCaller } from "../caller.ts";
import { executionFrom, readRun } from "./cron-runs.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** What its fields are read in, as those of all schedules that name none. */
const timeZone = "UTC";
const usualTimeoutMs = 60_000;
const mostTimeoutMs = 600_000;
const maxNameCharacters = 100;
const maxCommandBytes = 16 * 1024;
/** How many jobs there may be. */
const mostJobs = 200;
const usualExecutions = 20;
const mostExecutions = 100;
/** Most of each output of a run, and of all outputs in one answer: clients of gRPC take 4 MiB by default. */
const outputBytes = 64 * 1024;
const answerBytes = 2 * 1024 * 1024;
/** How much longer than its command a run may take before nobody waits for it any more. */
const waitGraceMs = 15_000;
const pageSchedules = 100;

/** A schedule that is a cron job. */
interface Job extends ScheduleView {
  readonly schedule: Schedule & { readonly command: ScheduledCommand };
}

/**
 * Of the earlier service: cron jobs. A job is a schedule whose runs are a command in a session of its own, in the server's
 * workspace and its sandbox. Its command may run without asking; what the server's rules deny or ask for stays so. Who makes,
 * changes, runs or removes one needs the admin right. Its times are of UTC.
 */
export function cronHandlers({ schedules, sessions, environment, sandbox, admin, defaultWorkspace }: LegacyCore) {
  const jobs = async (): Promise<readonly Job[]> => {
    const found: Job[] = [];
    let before: SchedulePosition | undefined;
    for (;;) {
      const page = await schedules.list(theCaller, "", before, pageSchedules);
      for (const view of page.schedules) if (isJob(view)) found.push(view);
      before = page.schedules.at(-1);
      if (!page.more || before === undefined) return found;
    }
  };
  const jobOf = async (id: string): Promise<Job> => {
    if (id === "") throw invalidField("id", "is empty; name a job");
    const view = /^[\w-]{1,64}$/.test(id) ? await schedules.get(theCaller, id).catch(unlessUnknown) : undefined;
    if (view !== undefined && isJob(view)) return view;
    throw unknownJob(`job ${id.slice(0, 100)}`);
  };
  const shown = async (job: Job): Promise<CronJob> => {
    const { runs } = await schedules.runs(theCaller, job.scheduleId, undefined, keptRuns);
    return jobFrom(job, runs, defaultWorkspace);
  };
  const checkSandbox = () => {
    if (sandbox.kind !== "none") return;
    throw new AgentError(
      "failed_precondition",
      "cron jobs run commands that nobody is asked for, and there is no sandbox around them; set one up in the setting sandbox",
      { reason: "NO_SANDBOX" },
    );
  };
  /** The five fields of a text, or why there are none. */
  const fieldsOf = (input: string): { readonly cron: string } | { readonly error: string } => {
    const phrase = readCronPhrase(input);
    if (!phrase.ok) return { error: phrase.error };
    try {
      const next = cronTimes(phrase.cron, timeZone).next(environment.now());
      return next === undefined ? { error: "it names days that never come" } : { cron: phrase.cron };
    } catch (error) {
      if (error instanceof AgentError && error.kind === "invalid_request") return { error: error.message };
      throw error;
    }
  };

  return {
    async listCronJobs() {
      const shownJobs: CronJob[] = [];
      for (const job of await jobs()) {
        shownJobs.push(await shown(job));
        await pause(); // others get their turn
      }
      return { jobs: shownJobs };
    },

    async createCronJob(request, context) {
      admin(context);
      checkSandbox();
      const name = nameFrom(request.name);
      const command = { commandLine: commandFrom(request.command), timeoutMs: timeoutFrom(request.timeoutMs) };
      if (request.schedule.trim() === "") throw invalidField("schedule", "is empty; say when the job is to run");
      const fields = fieldsOf(request.schedule);
      if ("error" in fields) return { success: false, error: fields.error };
      if ((await jobs()).length >= mostJobs)
        throw new AgentError(
          "resource_exhausted",
          `there are ${mostJobs} cron jobs, the most there may be; delete one`,
        );
      try {
        const schedule = scheduleOf(name, fields.cron, command, defaultWorkspace);
        const made = await schedules.create(theCaller, schedule, idOfName(name), () => undefined);
        return { success: true, job: await shown({ ...made, schedule: { ...schedule, command } }) };
      } catch (error) {
        if (!(error instanceof AgentError) || error.kind !== "already_exists") throw error;
        return {
          success: false,
          error: `there is a job named ${name} already; choose another name, or update that one`,
        };
      }
    },

    async getCronJob({ id = "", name = "" }) {
      if (id === "" && name === "") throw invalidField("id", "is missing, and so is name; give one of them");
      if (id !== "") {
        const job = await jobOf(id);
        if (name !== "" && job.schedule.title !== name) throw unknownJob(`job ${id} named ${shortName(name)}`);
        return { job: await shown(job) };
      }
      const job = await jobOf(idOfName(name)).catch(unlessUnknown);
      if (job === undefined) throw unknownJob(`job named ${shortName(name)}`);
      return { job: await shown(job) };
    },

    async updateCronJob(request, context) {
      admin(context);
      checkSandbox();
      await jobOf(request.id);
      const commandLine = request.command === undefined ? undefined : commandFrom(request.command);
      const timeoutMs = request.timeoutMs === undefined ? undefined : timeoutFrom(request.timeoutMs);
      const fields = request.schedule === undefined ? undefined : fieldsOf(request.schedule);
      if (fields !== undefined && "error" in fields) return { success: false, error: fields.error };
      const changed = await schedules.update(theCaller, request.id, (before) => {
        const command = {
          commandLine: commandLine ?? before.command?.commandLine ?? "",
          timeoutMs: timeoutMs ?? before.command?.timeoutMs ?? usualTimeoutMs,
        };
        return scheduleOf(before.title, fields?.cron ?? before.cron, command, defaultWorkspace);
      });
      return { success: true, ...(isJob(changed) ? { job: await shown(changed) } : {}) };
    },

    async pauseCronJob({ id }, context) {
      admin(context);
      await jobOf(id);
      const paused = await schedules.pause(theCaller, id);
      return { success: true, ...(isJob(paused) ? { job: await shown(paused) } : {}) };
    },

    async resumeCronJob({ id }, context) {
      admin(context);
      await jobOf(id);
      const resumed = await schedules.resume(theCaller, id);
      return { success: true, ...(isJob(resumed) ? { job: await shown(resumed) } : {}) };
    },

    async deleteCronJob({ id }, context) {
      admin(context);
      await jobOf(id);
      await schedules.delete(theCaller, id, undefined);
      return { success: true };
    },

    async getCronHistory({ id, limit = 0 }) {
      const job = await jobOf(id);
      const count = limit === 0 ? usualExecutions : Math.min(limit, mostExecutions);
      const { runs } = await schedules.runs(theCaller, job.scheduleId, undefined, count);
      const limitBytes = Math.min(outputBytes, Math.floor(answerBytes / (2 * Math.max(1, runs.length))));
      const executions = [];
      for (const run of runs) {
        const log = run.sessionId === "" ? undefined : await readRun(sessions, theCaller, run);
        executions.push(executionFrom(run, log, limitBytes));
      }
      return { executions };
    },

    /** Answers when the run has ended, or with a run that goes on where that takes too long or somebody is asked. */
    async runCronJob({ id }, context) {
      admin(context);
      checkSandbox();
      const job = await jobOf(id);
      const run = await schedules.run(theCaller, id, "");
      const limit = AbortSignal.timeout(job.schedule.command.timeoutMs + waitGraceMs);
      const log = await readRun(sessions, theCaller, run, AbortSignal.any([limit, context.signal]));
      const execution = executionFrom(run, log, outputBytes);
      if (log.ended !== undefined) return { success: true, execution };
      const why = execution.error ?? "it takes longer than its command may";
      const error = `the run has not ended: ${why}; its end will be in the history of the job`;
      return { success: false, execution, error };
    },

    parseCronSchedule({ input }) {
      const fields = fieldsOf(input);
      if ("error" in fields) return { success: false, error: fields.error };
      return { success: true, cronExpression: fields.cron, description: describeCron(fields.cron) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function scheduleOf(name: string, cron: string, command: ScheduledCommand, workspace: string): Job["schedule"] {
  const metadata = { cron_job: name };
  return {
    ...{ title: name, cron, timeZone, messages: [], model: "", options: {}, metadata, command },
    ...{ misfirePolicy: "one", overlapPolicy: "skip" },
    target: {
      type: "template",
      config: {
        ...{ title: name, workspace, model: "", systemPrompt: "", initialMessages: [], metadata },
        permissions: commandPermissions(command.commandLine),
      },
    },
  };
}

function isJob(view: ScheduleView): view is Job {
  return view.schedule.command !== undefined;
}

function jobFrom(job: Job, runs: readonly RunView[], workspace: string): CronJob {
  const { scheduleId, schedule, state, createdMs, updatedMs, lastMs, nextMs, runCount } = job;
  const runsNow = runs.some((run) => ["queued", "running", "waiting"].includes(run.state));
  const { ACTIVE, PAUSED, RUNNING } = CronJobStatus;
  return create(CronJobSchema, {
    ...{ id: scheduleId, name: schedule.title, schedule: schedule.cron, command: schedule.command.commandLine },
    status: runsNow ? RUNNING : state === "active" ? ACTIVE : PAUSED,
    timeoutMs: BigInt(schedule.command.timeoutMs),
    createdAt: BigInt(createdMs),
    updatedAt: BigInt(updatedMs),
    ...(lastMs === undefined ? {} : { lastRun: BigInt(lastMs) }),
    ...(nextMs === undefined ? {} : { nextRun: BigInt(nextMs) }),
    runCount: BigInt(runCount),
    failCount: BigInt(runs.filter((run) => run.state === "failed").length),
    workingDir: workspace,
  });
}

/** Two jobs of one name would have one id. */
function idOfName(name: string): string {
  return `cron_${createHash("sha256").update(`${theCaller.tenant}\0${name}`).digest("hex").slice(0, 32)}`;
}

function nameFrom(text: string): string {
  const name = text.trim();
  if (name === "") throw invalidField("name", "is empty; a job needs one");
  if (name.length > maxNameCharacters)
    throw invalidField("name", `has ${name.length} characters; ${maxNameCharacters} is the most`);
  if (/\p{Cc}/u.test(name)) throw invalidField("name", "holds control characters");
  return name;
}

function commandFrom(commandLine: string): string {
  if (commandLine.trim() === "") throw invalidField("command", "is empty; give a command line");
  if (commandLine.includes("\0")) throw invalidField("command", "holds a NUL character");
  const bytes = Buffer.byteLength(commandLine);
  if (bytes <= maxCommandBytes) return commandLine;
  throw invalidField("command", `has ${bytes} bytes; ${maxCommandBytes} is the most: put it into a script`);
}

function timeoutFrom(timeoutMs: bigint | undefined): number {
  if (timeoutMs === undefined || timeoutMs === 0n) return usualTimeoutMs;
  if (timeoutMs <= BigInt(mostTimeoutMs)) return Number(timeoutMs);
  throw invalidField("timeout_ms", `is ${timeoutMs}; ${mostTimeoutMs} is the most`);
}

function shortName(name: string): string {
  return name.replaceAll(/\p{Cc}/gu, " ").slice(0, maxNameCharacters);
}

function unknownJob(what: string): AgentError {
  return new AgentError("not_found", `there is no cron ${what}`, { reason: "CRON_JOB_NOT_FOUND" });
}

function unlessUnknown(error: unknown): undefined {
  if (error instanceof AgentError && error.kind === "not_found") return undefined;
  throw error;
}
