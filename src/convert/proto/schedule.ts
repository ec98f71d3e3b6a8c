import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { CreateScheduleRequest } from "../../../gen/codeagent/v1/schedule_service_pb.ts";
import { CreateScheduleRequestSchema } from "../../../gen/codeagent/v1/schedule_service_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import {
  misfirePolicies,
  overlapPolicies,
  type Schedule,
  type ScheduledCommand,
  type ScheduleTarget,
} from "../../chat/schedule.ts";
import { readStored } from "./error.ts";
import type { Source } from "./field.ts";
import { checkStrings, wordFromProto } from "./field.ts";
import { messageFromProto, messageToProto, messageWithoutView } from "./message.ts";
import { optionsFromProto, optionsToProto } from "./request.ts";
import { sessionConfigFromProto, sessionConfigToProto } from "./session-config.ts";

/**
 * Reads a schedule. Its id and the idempotency key stay with the request; whether its times come is for others to say.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `session_template.title`.
 */
export function scheduleFromProto(request: CreateScheduleRequest, source: Source = "client"): Schedule {
  if (source === "client") {
    const target = { case: undefined };
    checkStrings(CreateScheduleRequestSchema, { ...request, messages: [], target }, "");
  }
  return {
    title: request.title,
    cron: request.cron.trim().replaceAll(/\s+/g, " "),
    timeZone: request.timeZone || "UTC",
    target: targetFromProto(request.target, source),
    messages: request.messages.map((message, index) => messageFromProto(message, `messages[${index}]`, source)),
    model: request.model,
    options: request.options === undefined ? {} : optionsFromProto(request.options, "options", source),
    misfirePolicy: wordFromProto(request.misfirePolicy || "one", misfirePolicies, "misfire_policy"),
    overlapPolicy: wordFromProto(request.overlapPolicy || "queue", overlapPolicies, "overlap_policy"),
    metadata: { ...request.metadata },
  };
}

/** Writes a schedule as the request that would create it, without id and idempotency key. */
export function scheduleToProto(schedule: Schedule): CreateScheduleRequest {
  const { target } = schedule;
  return create(CreateScheduleRequestSchema, {
    title: schedule.title,
    cron: schedule.cron,
    timeZone: schedule.timeZone,
    target:
      target.type === "session"
        ? { case: "sessionId", value: target.sessionId }
        : { case: "sessionTemplate", value: sessionConfigToProto(target.config) },
    messages: schedule.messages.map(messageToProto),
    model: schedule.model,
    options: optionsToProto(schedule.options),
    misfirePolicy: schedule.misfirePolicy,
    overlapPolicy: schedule.overlapPolicy,
    metadata: { ...schedule.metadata },
  });
}

/** What the store keeps in columns of its own. */
type InColumns = Pick<Schedule, "cron" | "timeZone"> & { readonly misfirePolicy: string };

/** A field that no request of a client has: what is unknown of those is never stored. */
const commandField = 1000;

/** The form the store keeps of what has no column. */
export function encodeSchedule(schedule: Schedule): Uint8Array {
  const request = scheduleToProto({ ...schedule, cron: "", timeZone: "", messages: [] });
  request.misfirePolicy = "";
  request.messages = schedule.messages.map(messageWithoutView);
  if (schedule.command !== undefined) {
    const { commandLine, timeoutMs } = schedule.command;
    const data = new BinaryWriter().string(JSON.stringify([commandLine, timeoutMs])).finish();
    request.$unknown = [{ no: commandField, wireType: WireType.LengthDelimited, data }];
  }
  return toBinary(CreateScheduleRequestSchema, request);
}

/**
 * Reads the form the store keeps.
 * @throws {AgentError} `data_loss` where the bytes cannot be read.
 */
export function decodeSchedule(bytes: Uint8Array, { cron, timeZone, misfirePolicy }: InColumns): Schedule {
  return readStored("a schedule", () => {
    const request = fromBinary(CreateScheduleRequestSchema, bytes);
    const schedule = scheduleFromProto({ ...request, cron, timeZone, misfirePolicy }, "server");
    const data = request.$unknown?.find(({ no }) => no === commandField)?.data;
    return data === undefined ? schedule : { ...schedule, command: commandFrom(new BinaryReader(data).string()) };
  });
}

function commandFrom(text: string): ScheduledCommand {
  const stored: unknown = JSON.parse(text);
  const [commandLine, timeoutMs]: readonly unknown[] = Array.isArray(stored) ? stored : [];
  if (typeof commandLine !== "string" || typeof timeoutMs !== "number") throw new Error("its command is none");
  return { commandLine, timeoutMs };
}

function targetFromProto(target: CreateScheduleRequest["target"], source: Source): ScheduleTarget {
  switch (target.case) {
    case "sessionId":
      return { type: "session", sessionId: target.value };
    case "sessionTemplate":
      return {
        type: "template",
        config: within("session_template", () => sessionConfigFromProto(target.value, source)),
      };
    case undefined:
      throw invalidField("target", "is missing; set session_id or session_template");
    default:
      return target satisfies never;
  }
}

/** Reads a part of a request: the field that is wrong is named from the request's root. */
export function within<Value>(path: string, read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    const violation = error instanceof AgentError ? error.fieldViolations[0] : undefined;
    if (violation === undefined) throw error;
    throw invalidField(`${path}.${violation.field}`, violation.description);
  }
}
