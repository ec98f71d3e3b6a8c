import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { fromBinary, fromJsonString, toBinary, toJson, toJsonString } from "@bufbuild/protobuf";
import fc from "fast-check";
import {
  BudgetSchema,
  ContentBlockSchema,
  CreateSessionRequestSchema,
  GenerateOptionsSchema,
  GenerateRequestSchema,
  GenerateResponseSchema,
  MessageSchema,
  PendingRequestSchema,
  PermissionPolicySchema,
  ToolDefinitionSchema,
  ToolResultSchema,
  TurnErrorSchema,
  UsageSchema,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { blockFromProto, blockToProto } from "../../../src/convert/proto/block.ts";
import { turnErrorFromProto, turnErrorToProto } from "../../../src/convert/proto/error.ts";
import { pendingRequestFromProto, pendingRequestToProto } from "../../../src/convert/proto/event.ts";
import { decodeMessage, encodeMessage, messageFromProto, messageToProto } from "../../../src/convert/proto/message.ts";
import {
  budgetFromProto,
  budgetToProto,
  optionsFromProto,
  optionsToProto,
  toolDefinitionFromProto,
  toolDefinitionToProto,
  turnRequestFromProto,
  turnRequestToProto,
} from "../../../src/convert/proto/request.ts";
import { turnAnswerFromProto, turnAnswerToProto } from "../../../src/convert/proto/response.ts";
import {
  decodeSessionConfig,
  encodeSessionConfig,
  permissionPolicyFromProto,
  permissionPolicyToProto,
  sessionConfigFromProto,
  sessionConfigToProto,
} from "../../../src/convert/proto/session-config.ts";
import { toolResultFromProto, toolResultToProto } from "../../../src/convert/proto/tool-result.ts";
import { usageFromProto, usageToProto } from "../../../src/convert/proto/usage.ts";
import * as arbitrary from "../arbitrary.ts";

/** Both directions of a translation, over the binary and the JSON form, and back to the same message. */
function roundTrip<Value, Schema extends DescMessage>(
  schema: Schema,
  values: fc.Arbitrary<Value>,
  toProto: (value: Value) => MessageShape<Schema>,
  fromProto: (message: MessageShape<Schema>) => Value,
): void {
  fc.assert(
    fc.property(values, (value) => {
      const written = toProto(value);
      const overBinary = fromBinary(schema, toBinary(schema, written));
      const overJson = fromJsonString(schema, toJsonString(schema, written));
      assert.deepEqual(fromProto(overBinary), value);
      assert.deepEqual(fromProto(overJson), value);
      assert.deepEqual(toJson(schema, toProto(fromProto(overBinary))), toJson(schema, written));
    }),
  );
}

describe("what our words say comes back from the wire as it was", () => {
  for (const type of arbitrary.blockTypes)
    test(`block ${type}`, () =>
      roundTrip(ContentBlockSchema, arbitrary.blockOf(type), blockToProto, (block) => blockFromProto(block)));
  test("message a client may send", () =>
    roundTrip(MessageSchema, arbitrary.message, messageToProto, (message) => messageFromProto(message)));
  test("any message a server wrote", () =>
    roundTrip(MessageSchema, arbitrary.storedMessage, messageToProto, (message) =>
      messageFromProto(message, "message", "server"),
    ));
  test("usage", () => roundTrip(UsageSchema, arbitrary.usage, usageToProto, (usage) => usageFromProto(usage)));
  test("tool result", () =>
    roundTrip(ToolResultSchema, arbitrary.toolResult, toolResultToProto, (result) => toolResultFromProto(result)));
  test("tool definition", () =>
    roundTrip(ToolDefinitionSchema, arbitrary.toolDefinition, toolDefinitionToProto, (tool) =>
      toolDefinitionFromProto(tool),
    ));
  test("options", () =>
    roundTrip(GenerateOptionsSchema, arbitrary.options, optionsToProto, (options) => optionsFromProto(options)));
  test("budget", () => roundTrip(BudgetSchema, arbitrary.budget, budgetToProto, (budget) => budgetFromProto(budget)));
  test("turn request", () =>
    roundTrip(GenerateRequestSchema, arbitrary.turnRequest, turnRequestToProto, (request) =>
      turnRequestFromProto(request),
    ));
  test("turn answer", () =>
    roundTrip(GenerateResponseSchema, arbitrary.turnAnswer, turnAnswerToProto, turnAnswerFromProto));
  test("permission policy", () =>
    roundTrip(PermissionPolicySchema, arbitrary.permissionPolicy, permissionPolicyToProto, (policy) =>
      permissionPolicyFromProto(policy),
    ));
  test("session configuration", () =>
    roundTrip(CreateSessionRequestSchema, arbitrary.sessionConfig, sessionConfigToProto, (request) =>
      sessionConfigFromProto(request),
    ));
  test("turn error", () =>
    roundTrip(TurnErrorSchema, arbitrary.turnError, turnErrorToProto, (error) => turnErrorFromProto(error)));
  test("pending request", () =>
    roundTrip(
      PendingRequestSchema,
      arbitrary.pendingRequest,
      (request) => pendingRequestToProto(request, "session", "turn"),
      (request) => pendingRequestFromProto(request),
    ));
});

describe("what the store keeps is read back as it was", () => {
  test("message", () =>
    fc.assert(
      fc.property(arbitrary.storedMessage, (message) =>
        assert.deepEqual(decodeMessage(encodeMessage(message)), message),
      ),
    ));
  test("session configuration", () =>
    fc.assert(
      fc.property(arbitrary.sessionConfig, (config) =>
        assert.deepEqual(decodeSessionConfig(encodeSessionConfig(config)), config),
      ),
    ));
});
