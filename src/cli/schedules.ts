import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { toJson } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import {
  type Schedule,
  type ScheduleRun,
  ScheduleRunSchema,
  ScheduleSchema,
} from "../../gen/codeagent/v1/schedule_service_pb.ts";
import type { CodeAgentClient } from "../../sdk/index.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openService } from "./service.ts";
import { jsonLine, oneLine, pageOn, whenWritable } from "./terminal.ts";

export interface SchedulesFlags extends ConnectionFlags {
  readonly json?: boolean;
}
export interface AddScheduleFlags extends ConnectionFlags {
  readonly id?: string;
  readonly title?: string;
  readonly session?: string;
  readonly timeZone?: string;
  readonly misfire?: string;
  readonly overlap?: string;
}
/** What is done to one schedule and leaves it there. */
export type ScheduleAction = "pause" | "resume" | "run";

const titleCharacters = 60;
const pageSize = 500;

/** Lists schedules, newest first. @returns the exit code. */
export async function listSchedules(flags: SchedulesFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  let count = 0;
  for await (const schedule of schedulesOf(service.client)) {
    count++;
    page.write(flags.json === true ? jsonLine(toJson(ScheduleSchema, schedule)) : `${scheduleLine(schedule)}\n`);
    await whenWritable(process.stdout);
  }
  if (count === 0 && flags.json !== true) page.write("there are no schedules\n", "dim");
  return 0;
}

/** Creates a schedule and says its id. @returns the exit code. */
export async function addSchedule(
  cron: string,
  prompt: string,
  flags: AddScheduleFlags,
  taken: TakenEnvironment,
): Promise<number> {
  await using service = await openService(flags, taken);
  // A service of our own has the folder of the command line for its own.
  const workspace = service.own || flags.workspace === undefined ? "" : resolve(flags.workspace);
  const title = flags.title ?? oneLine(prompt, titleCharacters);
  const { scheduleId } = await service.client.schedules.createSchedule({
    scheduleId: flags.id ?? "",
    title,
    cron,
    timeZone: flags.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
    target:
      flags.session === undefined
        ? { case: "sessionTemplate", value: { title, workspace } }
        : { case: "sessionId", value: flags.session },
    messages: [{ role: "user", contentType: { case: "content", value: prompt } }],
    model: flags.model ?? "",
    misfirePolicy: flags.misfire ?? "",
    overlapPolicy: flags.overlap ?? "",
    requestId: randomUUID(),
  });
  const page = pageOn(process.stdout);
  page.write(`${scheduleId}\n`);
  if (service.own) pageOn(process.stderr).write("it runs while a server does: codeagent serve\n", "dim");
  return 0;
}

/** Pauses or resumes a schedule, or runs it now, and shows what came of it. @returns the exit code. */
export async function changeSchedule(
  action: ScheduleAction,
  scheduleId: string,
  flags: ConnectionFlags,
  taken: TakenEnvironment,
): Promise<number> {
  await using service = await openService(flags, taken);
  const { schedules } = service.client;
  const request = { scheduleId, requestId: randomUUID() };
  const line =
    action === "run"
      ? runLine(await schedules.runSchedule(request))
      : scheduleLine(await (action === "pause" ? schedules.pauseSchedule(request) : schedules.resumeSchedule(request)));
  pageOn(process.stdout).write(`${line}\n`);
  return 0;
}

/** Removes schedules; the first that can't be ends it. @returns the exit code. */
export async function removeSchedules(
  ids: readonly string[],
  flags: ConnectionFlags,
  taken: TakenEnvironment,
): Promise<number> {
  await using service = await openService(flags, taken);
  for (const scheduleId of ids) await service.client.schedules.deleteSchedule({ scheduleId, requestId: randomUUID() });
  return 0;
}

/** Lists the runs of a schedule, newest first. @returns the exit code. */
export async function showRuns(scheduleId: string, flags: SchedulesFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  let count = 0;
  for await (const run of runsOf(service.client, scheduleId)) {
    count++;
    page.write(flags.json === true ? jsonLine(toJson(ScheduleRunSchema, run)) : `${runLine(run)}\n`);
    await whenWritable(process.stdout);
  }
  if (count === 0 && flags.json !== true) page.write("it has not run\n", "dim");
  return 0;
}

async function* schedulesOf({ schedules }: CodeAgentClient): AsyncGenerator<Schedule> {
  let pageToken = "";
  do {
    const found = await schedules.listSchedules({ pageSize, pageToken });
    yield* found.schedules;
    pageToken = found.nextPageToken;
  } while (pageToken !== "");
}

async function* runsOf({ schedules }: CodeAgentClient, scheduleId: string): AsyncGenerator<ScheduleRun> {
  let pageToken = "";
  do {
    const found = await schedules.listScheduleRuns({ scheduleId, pageSize, pageToken });
    yield* found.runs;
    pageToken = found.nextPageToken;
  } while (pageToken !== "");
}

function scheduleLine(schedule: Schedule): string {
  const { scheduleId, state, cron, timeZone, nextTime, error } = schedule;
  const next = state === "broken" ? error : nextTime === undefined ? "" : `next ${timeText(nextTime)}`;
  const parts = [scheduleId, state, `${cron} ${timeZone}`, next, oneLine(schedule.title, titleCharacters)];
  return parts.filter((part) => part !== "").join("  ");
}

function runLine(run: ScheduleRun): string {
  const why = run.error === undefined ? "" : oneLine(run.error.message, titleCharacters);
  const parts = [timeText(run.scheduledTime), run.trigger, run.state, run.sessionId, run.turnId, why];
  return parts.filter((part) => part !== "").join("  ");
}

function timeText(time: Timestamp | undefined): string {
  return time === undefined ? "" : timestampDate(time).toISOString();
}
