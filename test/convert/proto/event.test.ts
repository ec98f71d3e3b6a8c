import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, fromBinary, fromJsonString, toBinary, toJson, toJsonString } from "@bufbuild/protobuf";
import fc from "fast-check";
import { GenerateChunkSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { LogRecord } from "../../../src/chat/log-event.ts";
import {
  chunkFromStored,
  decodeLogEvent,
  encodeLogEvent,
  logRecordFromProto,
  logRecordToProto,
} from "../../../src/convert/proto/event.ts";
import * as arbitrary from "../arbitrary.ts";

const place = { seq: fc.maxSafeNat(), turnId: arbitrary.text, timeMs: arbitrary.timeMs };

describe("events come back from the wire and from the store as they were", () => {
  for (const type of arbitrary.eventTypes)
    test(type, () =>
      fc.assert(
        fc.property(fc.record({ ...place, event: arbitrary.eventOf(type) }, { noNullPrototype: true }), (record) => {
          const chunk = logRecordToProto("session", record);
          assert.deepEqual(
            logRecordFromProto(fromBinary(GenerateChunkSchema, toBinary(GenerateChunkSchema, chunk))),
            record,
          );
          assert.deepEqual(
            logRecordFromProto(fromJsonString(GenerateChunkSchema, toJsonString(GenerateChunkSchema, chunk))),
            record,
          );
          const { turnId, timeMs, event } = record;
          const stored = encodeLogEvent(turnId, timeMs, event);
          assert.deepEqual(decodeLogEvent(stored), { turnId, timeMs, event });
          assert.deepEqual(
            toJson(GenerateChunkSchema, chunkFromStored("session", record.seq, stored)),
            toJson(GenerateChunkSchema, chunk),
          );
        }),
      ),
    );
});

test("the store keeps neither number nor session of an event", () => {
  const stored = fromBinary(
    GenerateChunkSchema,
    encodeLogEvent("turn", 1, { type: "tools-changed", generation: 1, added: [], removed: [], changed: [] }),
  );
  assert.equal(stored.seq, 0n);
  assert.equal(stored.sessionId, "");
});

test("a pending request on the stream names its session and turn", () => {
  const event = {
    type: "request-opened",
    request: { requestId: "r1", kind: "approval", title: "run it?", options: ["deny"] },
  } as const;
  const record: LogRecord = { seq: 7, turnId: "turn", timeMs: 5, event };
  for (const chunk of [
    logRecordToProto("session", record),
    chunkFromStored("session", 7, encodeLogEvent("turn", 5, event)),
  ]) {
    assert.equal(chunk.event.case, "requestOpened");
    assert.equal(chunk.event.value.request?.sessionId, "session");
    assert.equal(chunk.event.value.request?.turnId, "turn");
  }
});

const badChunks = [
  { name: "control frame", chunk: { event: { case: "keepAlive", value: {} } }, message: /control frame/ },
  { name: "unknown event", chunk: {}, message: /none that this version knows/ },
  {
    name: "finish reason",
    chunk: { event: { case: "turnFinished", value: { finishReason: "done" } } },
    message: /^turn_finished\.finish_reason: is "done"/,
  },
  {
    name: "finish reason of a step",
    chunk: { event: { case: "stepFinished", value: {} } },
    message: /^step_finished\.finish_reason: is empty/,
  },
  {
    name: "block type",
    chunk: { event: { case: "blockStart", value: { type: "poem" } } },
    message: /^block_start\.type: is "poem"/,
  },
  {
    name: "block missing",
    chunk: { event: { case: "blockStop", value: {} } },
    message: /^block_stop\.block: is missing/,
  },
  { name: "delta missing", chunk: { event: { case: "blockDelta", value: {} } }, message: /^block_delta\.delta: / },
  {
    name: "result missing",
    chunk: { event: { case: "toolFinished", value: {} } },
    message: /^tool_finished\.result: is missing/,
  },
  {
    name: "request missing",
    chunk: { event: { case: "requestOpened", value: {} } },
    message: /^request_opened\.request: is missing/,
  },
  {
    name: "kind of request",
    chunk: { event: { case: "requestOpened", value: { request: { kind: "wish" } } } },
    message: /^request_opened\.request\.kind: is "wish"/,
  },
  {
    name: "level of a notice",
    chunk: { event: { case: "notice", value: { level: "panic" } } },
    message: /^notice\.level: is "panic"/,
  },
  { name: "number of the event", chunk: { seq: 1n << 60n }, message: /^seq: / },
] as const;

describe("an event without a place in our words is refused", () => {
  for (const { name, chunk, message } of badChunks)
    test(name, () => {
      const bad = create(GenerateChunkSchema, chunk);
      assert.throws(() => logRecordFromProto(bad), { kind: "invalid_request", message });
    });
});

test("an event in the store that cannot be read is lost data, not a bad request", () => {
  assert.throws(() => decodeLogEvent(new Uint8Array([255, 255])), { kind: "data_loss" });
  assert.throws(() => decodeLogEvent(new Uint8Array()), { kind: "data_loss", message: /^an event in the store/ });
  assert.throws(() => chunkFromStored("session", 1, new Uint8Array([255])), { kind: "data_loss" });
});
