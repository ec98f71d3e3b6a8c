import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type CreateScheduleRequest,
  DeleteScheduleResponseSchema,
  type Schedule as ProtoSchedule,
  type ScheduleRun,
  ScheduleRunSchema,
  ScheduleSchema,
  ScheduleService,
} from "../../gen/codeagent/v1/schedule_service_pb.ts";
import { AgentError, invalidField } from "../chat/error.ts";
import type { Schedule } from "../chat/schedule.ts";
import type { PermissionMode } from "../chat/session-config.ts";
import { turnErrorToProto } from "../convert/proto/error.ts";
import { scheduleFromProto, scheduleToProto, within } from "../convert/proto/schedule.ts";
import { usageToProto } from "../convert/proto/usage.ts";
import type { RunView, Schedules, ScheduleView } from "../session/schedules.ts";
import type { AdminRight } from "./admin-right.ts";
import { theCaller } from "./caller.ts";
import type { OnceCalls } from "./once.ts";
import {
  checkLength,
  checkMapLength,
  checkMessageCount,
  optionalSessionIdFrom,
  pageSizeFrom,
  pageTokenFor,
  pageTokenFrom,
  sessionIdFrom,
} from "./request-fields.ts";
import { configFrom } from "./sessions.ts";

const maxPage = 1000;

/** Turns at set times. */
export function scheduleHandlers(
  schedules: Schedules,
  once: OnceCalls,
  /** The real folder behind the one a request names; the server's own for an empty one. */
  workspaceFrom: (named: string) => Promise<string>,
  /** Of session templates whose permissions name no mode. */
  defaultMode: PermissionMode,
  /** Asked for before a schedule of a command is run or changed: what it runs is run without asking. */
  admin: AdminRight,
) {
  const checkRight = async (scheduleId: string, context: HandlerContext): Promise<void> => {
    const found = await schedules.get(theCaller, scheduleId).catch((error: unknown) => {
      // What is unknown or can't be read is for the change itself to say.
      if (error instanceof AgentError && (error.kind === "not_found" || error.kind === "data_loss")) return undefined;
      throw error;
    });
    if (found?.schedule.command !== undefined) admin(context);
  };
  const placed = async (schedule: Schedule): Promise<Schedule> => {
    const { target } = schedule;
    if (target.type === "session") return schedule;
    const workspace = await workspaceFrom(target.config.workspace);
    return { ...schedule, target: { type: "template", config: { ...target.config, workspace } } };
  };
  return {
    createSchedule(request) {
      return once.change(ScheduleService.method.createSchedule, request, async (note) => {
        const scheduleId = request.scheduleId === "" ? "" : scheduleIdFrom(request.scheduleId);
        const schedule = await placed(scheduleFrom(request, defaultMode));
        const noteView = (view: ScheduleView) => note(viewToProto(view));
        return viewToProto(await schedules.create(theCaller, schedule, scheduleId, noteView));
      });
    },
    async getSchedule(request) {
      return viewToProto(await schedules.get(theCaller, scheduleIdFrom(request.scheduleId)));
    },
    async listSchedules(request) {
      const limit = pageSizeFrom(request.pageSize, 50, maxPage);
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const [createdMs, scheduleId] = pageTokenFrom(request.pageToken) ?? [];
      const before =
        typeof createdMs === "number" && typeof scheduleId === "string" ? { createdMs, scheduleId } : undefined;
      if (request.pageToken !== "" && before === undefined) throw wrongPageToken();
      const page = await schedules.list(theCaller, sessionId, before, limit);
      const last = page.schedules.at(-1);
      return {
        schedules: page.schedules.map(viewToProto),
        nextPageToken: page.more && last !== undefined ? pageTokenFor([last.createdMs, last.scheduleId]) : "",
      };
    },
    pauseSchedule(request, context) {
      return once.change(ScheduleService.method.pauseSchedule, request, async () => {
        await checkRight(scheduleIdFrom(request.scheduleId), context);
        return viewToProto(await schedules.pause(theCaller, scheduleIdFrom(request.scheduleId)));
      });
    },
    resumeSchedule(request, context) {
      return once.change(ScheduleService.method.resumeSchedule, request, async () => {
        await checkRight(scheduleIdFrom(request.scheduleId), context);
        return viewToProto(await schedules.resume(theCaller, scheduleIdFrom(request.scheduleId)));
      });
    },
    deleteSchedule(request, context) {
      return once.change(ScheduleService.method.deleteSchedule, request, async (note) => {
        await checkRight(scheduleIdFrom(request.scheduleId), context);
        const answer = create(DeleteScheduleResponseSchema);
        await schedules.delete(theCaller, scheduleIdFrom(request.scheduleId), note(answer));
        return answer;
      });
    },
    runSchedule(request, context) {
      return once.change(ScheduleService.method.runSchedule, request, async () => {
        await checkRight(scheduleIdFrom(request.scheduleId), context);
        return runToProto(await schedules.run(theCaller, scheduleIdFrom(request.scheduleId), request.requestId));
      });
    },
    async listScheduleRuns(request) {
      const scheduleId = scheduleIdFrom(request.scheduleId);
      const limit = pageSizeFrom(request.pageSize, 50, maxPage);
      const [before] = pageTokenFrom(request.pageToken) ?? [];
      if (before !== undefined && typeof before !== "number") throw wrongPageToken();
      if (request.pageToken !== "" && before === undefined) throw wrongPageToken();
      const { runs, more } = await schedules.runs(theCaller, scheduleId, before, limit);
      const last = runs.at(-1);
      return {
        runs: runs.map(runToProto),
        nextPageToken: more && last !== undefined ? pageTokenFor([last.position]) : "",
      };
    },
  } satisfies ServiceImpl<typeof ScheduleService>;
}

function scheduleFrom(request: CreateScheduleRequest, defaultMode: PermissionMode): Schedule {
  if (request.messages.length === 0) throw invalidField("messages", "is empty; send at least one");
  checkMessageCount(request.messages.length, "messages");
  checkLength(request.title, 1000, "title");
  checkLength(request.cron, 1000, "cron");
  checkLength(request.timeZone, 100, "time_zone");
  checkMapLength(request.metadata, 64 * 1024, "metadata");
  const { target } = request;
  if (target.case === "sessionId") sessionIdFrom(target.value);
  if (target.case === "sessionTemplate") {
    const template = target.value;
    checkMessageCount(template.initialMessages.length, "session_template.initial_messages");
    within("session_template", () => {
      if (template.sessionId !== "") throw invalidField("session_id", "has to be empty: each run has a new session");
      if (template.requestId !== "") throw invalidField("request_id", "has to be empty: each run has a new session");
      configFrom(template, defaultMode);
    });
  }
  return scheduleFromProto(request);
}

function scheduleIdFrom(value: string): string {
  if (value === "") throw invalidField("schedule_id", "is empty; name a schedule");
  return sessionIdFrom(value, "schedule_id");
}

function wrongPageToken() {
  return invalidField("page_token", "is not a token of this list; leave it out to begin anew");
}

function viewToProto({ schedule, ...view }: ScheduleView): ProtoSchedule {
  const { title, cron, timeZone, target, messages, model, options, misfirePolicy, overlapPolicy, metadata } =
    scheduleToProto(schedule);
  const parts = { title, cron, timeZone, target, messages, model, misfirePolicy, overlapPolicy, metadata };
  return create(ScheduleSchema, {
    ...parts,
    ...(options === undefined ? {} : { options }),
    scheduleId: view.scheduleId,
    state: view.state,
    error: view.error,
    runCount: BigInt(view.runCount),
    createTime: timestampFromMs(view.createdMs),
    updateTime: timestampFromMs(view.updatedMs),
    ...(view.nextMs === undefined ? {} : { nextTime: timestampFromMs(view.nextMs) }),
    ...(view.lastMs === undefined ? {} : { lastTime: timestampFromMs(view.lastMs) }),
  });
}

function runToProto(run: RunView): ScheduleRun {
  const { runId, scheduleId, trigger, state, sessionId, turnId, finishReason = "" } = run;
  return create(ScheduleRunSchema, {
    ...{ runId, scheduleId, trigger, state, sessionId, turnId, finishReason },
    scheduledTime: timestampFromMs(run.scheduledMs),
    ...(run.startedMs === undefined ? {} : { startTime: timestampFromMs(run.startedMs) }),
    ...(run.endedMs === undefined ? {} : { endTime: timestampFromMs(run.endedMs) }),
    ...(run.error === undefined ? {} : { error: turnErrorToProto(run.error) }),
    ...(run.usage === undefined ? {} : { usage: usageToProto(run.usage) }),
  });
}
