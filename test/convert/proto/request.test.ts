import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import {
  CreateSessionRequestSchema,
  GenerateRequestSchema,
  TurnErrorSchema,
  UsageSchema,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { AgentError, agentErrorKinds } from "../../../src/chat/error.ts";
import { errorCodes, errorKindOf, turnErrorFromProto } from "../../../src/convert/proto/error.ts";
import { optionsToProto, turnRequestFromProto } from "../../../src/convert/proto/request.ts";
import { decodeSessionConfig, sessionConfigFromProto } from "../../../src/convert/proto/session-config.ts";
import { toolResultToProto } from "../../../src/convert/proto/tool-result.ts";
import { usageFromProto } from "../../../src/convert/proto/usage.ts";

function refuses(act: () => unknown, field: string, says: RegExp): void {
  assert.throws(act, (error: unknown) => {
    assert.ok(error instanceof AgentError);
    assert.equal(error.kind, "invalid_request");
    assert.deepEqual(
      error.fieldViolations.map((violation) => violation.field),
      [field],
    );
    assert.match(error.message, says);
    return true;
  });
}

type RequestInit = MessageInitShape<typeof GenerateRequestSchema>;
const user = { role: "user", contentType: { case: "content", value: "hi" } } as const;
const badRequests: [field: string, request: RequestInit, says: RegExp][] = [
  ["messages[2].role", { messages: [user, user, { role: "robot" }] }, /"robot"/],
  ["messages[1].content", { messages: [user, { role: "user" }] }, /is empty/],
  ["tools[0].name", { tools: [{ description: "nameless" }] }, /is empty/],
  ["tools[1].name", { tools: [{ name: "f" }, { name: "f" }] }, /"f" is there twice/],
  ["tools[0].parameters", { tools: [{ name: "f", parameters: "{" }] }, /is not JSON/],
  ["tools[0].parameters", { tools: [{ name: "f", parameters: "[]" }] }, /not an object/],
  ["tools[0].parameters", { tools: [{ name: "f", parameters: "null" }] }, /not an object/],
  ["tools[0].description", { tools: [{ name: "f", description: "\ud83d" }] }, /surrogate/],
  ["session_id", { sessionId: "\ud83d" }, /surrogate/],
  ["options.temperature", { options: { temperature: -0.1 } }, /from 0 to 2/],
  ["options.temperature", { options: { temperature: Number.NaN } }, /NaN/],
  ["options.temperature", { options: { temperature: 1e9 } }, /from 0 to 2/],
  ["options.top_p", { options: { topP: 1.5 } }, /from 0 to 1/],
  ["options.max_tokens", { options: { maxTokens: 1n << 53n } }, /9007199254740992/],
  ["options.seed", { options: { seed: -(1n << 53n) } }, /-9007199254740992/],
  ["options.stop[1]", { options: { stop: ["a", ""] } }, /is empty/],
  ["options.stop[0]", { options: { stop: ["\ud83d"] } }, /surrogate/],
  ["options.allowed_tools[0]", { options: { allowedTools: [""] } }, /is empty/],
  ["options.timeout_ms", { options: { timeoutMs: 1n << 31n } }, /2147483648/],
  ["options.thinking.budget_tokens", { options: { thinking: { budgetTokens: 1n << 60n } } }, /must lie within/],
  ["options.budget.max_cost_nano_usd", { options: { budget: { maxCostNanoUsd: -1n } } }, /must not be negative/],
  ["options.budget.max_total_tokens", { options: { budget: { maxTotalTokens: 1n << 60n } } }, /must lie within/],
  ["options.budget.max_duration_ms", { options: { budget: { maxDurationMs: 1n << 31n } } }, /2147483648/],
  ["options.response_format.type", { options: { responseFormat: { type: "xml" } } }, /text, json_object, json_schema/],
  [
    "options.response_format.type",
    { options: { responseFormat: { type: "text", jsonSchema: { schema: "{}" } } } },
    /but json_schema is given/,
  ],
  ["options.response_format.json_schema.schema", { options: { responseFormat: { type: "json_schema" } } }, /is empty/],
  [
    "options.response_format.json_schema.schema",
    { options: { responseFormat: { type: "json_schema", jsonSchema: { schema: "{'a'}" } } } },
    /is not JSON/,
  ],
  [
    "options.response_format.json_schema.schema",
    { options: { responseFormat: { type: "json_schema", jsonSchema: { schema: "7" } } } },
    /not an object/,
  ],
];

describe("a request that makes no sense is refused by the path of its field", () => {
  for (const [field, request, says] of badRequests)
    test(`${field} ${says}`, () =>
      refuses(() => turnRequestFromProto(create(GenerateRequestSchema, request)), field, says));
});

type SessionInit = MessageInitShape<typeof CreateSessionRequestSchema>;
const badSessions: [field: string, request: SessionInit, says: RegExp][] = [
  ["permissions.mode", { permissions: { mode: "yolo" } }, /ask, read-only, accept-edits, bypass/],
  ["permissions.deny[1]", { permissions: { deny: ["run_command", ""] } }, /is empty/],
  ["approval_timeout_ms", { approvalTimeoutMs: 1n << 40n }, /from 0 to/],
  ["budget.max_cost_nano_usd", { budget: { maxCostNanoUsd: -5n } }, /-5/],
  ["initial_messages[0].role", { initialMessages: [{ role: "robot" }] }, /"robot"/],
  ["title", { title: "\ud83d" }, /surrogate/],
];

describe("a session that makes no sense is refused by the path of its field", () => {
  for (const [field, request, says] of badSessions)
    test(`${field} ${says}`, () =>
      refuses(() => sessionConfigFromProto(create(CreateSessionRequestSchema, request)), field, says));
});

test("counts beyond what a double holds are refused, not rounded", () => {
  refuses(
    () => usageFromProto(create(UsageSchema, { inputTokens: 1n << 53n })),
    "usage.input_tokens",
    /must lie within/,
  );
  refuses(
    () => usageFromProto(create(UsageSchema, { costNanoUsd: -1n }), "step.usage"),
    "step.usage.cost_nano_usd",
    /-1/,
  );
});

test("0 stays 0 and absent stays absent", () => {
  const zero = {
    options: {
      temperature: 0,
      topP: 0,
      maxTokens: 0n,
      seed: 0n,
      maxSteps: 0,
      timeoutMs: 0n,
      budget: { maxTotalTokens: 0n },
    },
  };
  const { options } = turnRequestFromProto(create(GenerateRequestSchema, zero));
  assert.deepEqual(options, {
    temperature: 0,
    topP: 0,
    maxTokens: 0,
    seed: 0,
    maxSteps: 0,
    timeoutMs: 0,
    budget: { maxTotalTokens: 0 },
  });
  const { maxTokens, timeoutMs, temperature } = optionsToProto(options);
  assert.deepEqual({ maxTokens, timeoutMs, temperature }, { maxTokens: 0n, timeoutMs: 0n, temperature: 0 });
  assert.deepEqual(turnRequestFromProto(create(GenerateRequestSchema, { options: {} })).options, {});
  assert.deepEqual(usageFromProto(create(UsageSchema, { inputTokens: 0n })), { inputTokens: 0 });
});

test("an empty mode asks; a schema without a name gets one", () => {
  const session = sessionConfigFromProto(create(CreateSessionRequestSchema, { permissions: { deny: ["fetch_url"] } }));
  assert.deepEqual(session.permissions, { mode: "ask", allow: [], ask: [], deny: ["fetch_url"] });
  const responseFormat = { type: "json_schema", jsonSchema: { schema: "{}" } };
  const request = turnRequestFromProto(create(GenerateRequestSchema, { options: { responseFormat } }));
  assert.deepEqual(request.options.responseFormat, { type: "json_schema", name: "response", schema: "{}" });
});

test("a duration measured in fractions is written in whole milliseconds", () => {
  assert.equal(toolResultToProto({ success: true, output: "", durationMs: 12.7 }).durationMs, 13n);
});

test("a session's configuration that cannot be read is lost data, not a bad request", () => {
  assert.throws(() => decodeSessionConfig(new Uint8Array([255])), { kind: "data_loss", message: /configuration/ });
});

describe("an error's kind survives the wire", () => {
  for (const kind of agentErrorKinds)
    test(kind, () => assert.equal(errorKindOf(errorCodes[kind], new AgentError(kind, "").reason), kind));
  const others: [code: number, reason: string, kind: string][] = [
    [5, "SESSION_NOT_FOUND", "not_found"],
    [9, "", "failed_precondition"],
    [14, "PROVIDER_AUTH", "unavailable"],
    [2, "", "internal"],
    [99, "WHAT", "internal"],
  ];
  for (const [code, reason, kind] of others)
    test(`${code} ${reason}`, () => {
      const error = turnErrorFromProto(create(TurnErrorSchema, { code, reason, message: "no" }));
      assert.deepEqual(error, { kind, reason, message: "no", detail: {} });
    });
});
