import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError, agentErrorKinds, invalidField } from "../../../src/chat/error.ts";
import { openAIError } from "../../../src/convert/openai/error.ts";

const rows: [
  error: AgentError,
  status: number,
  type: string,
  param: string | null,
  code: string | null,
  retry: boolean,
][] = [
  [invalidField("messages[0].role", "is x"), 400, "invalid_request_error", "messages[0].role", null, false],
  [invalidField("options.thinking", "asks"), 400, "invalid_request_error", "reasoning_effort", null, false],
  [invalidField("options.stop", "asks"), 400, "invalid_request_error", "stop", null, false],
  [new AgentError("unauthenticated", "no"), 401, "invalid_request_error", null, "invalid_api_key", false],
  [
    new AgentError("not_found", "x", { reason: "SESSION_NOT_FOUND" }),
    404,
    "invalid_request_error",
    null,
    "session_not_found",
    false,
  ],
  [
    new AgentError("not_found", 'the model "x" is nowhere'),
    404,
    "invalid_request_error",
    null,
    "model_not_found",
    false,
  ],
  [new AgentError("context_length", "long"), 400, "invalid_request_error", null, "context_length_exceeded", false],
  [new AgentError("rate_limited", "slow"), 429, "rate_limit_error", null, "rate_limit_exceeded", true],
  [
    new AgentError("resource_exhausted", "full", { reason: "TOO_MANY_TURNS", detail: { retryable: true } }),
    ...([429, "rate_limit_error", null, "rate_limit_exceeded", true] as const),
  ],
  [
    new AgentError("resource_exhausted", "spent", { reason: "BUDGET_COST" }),
    429,
    "insufficient_quota",
    null,
    "insufficient_quota",
    false,
  ],
  [
    new AgentError("resource_exhausted", "messages: has 9", {
      fieldViolations: [{ field: "messages", description: "" }],
    }),
    ...([400, "invalid_request_error", "messages", null, false] as const),
  ],
  [new AgentError("provider_auth", "key"), 502, "server_error", null, "provider_auth", false],
  [new AgentError("provider_unavailable", "down"), 503, "server_error", null, null, true],
  [
    new AgentError("provider_unavailable", "down", { detail: { retryable: true, sideEffectPossible: true } }),
    ...([503, "server_error", null, null, false] as const),
  ],
];

describe("an error in OpenAI's words", () => {
  for (const [error, status, type, param, code, retry] of rows)
    test(`${error.reason}: ${error.message}`, () => {
      const told = openAIError(error);
      const { error: body } = told.body;
      assert.deepEqual([told.status, body.type, body.param, body.code], [status, type, param, code]);
      assert.equal(told.headers["x-should-retry"], String(retry));
    });

  test("its sentence names the field as the caller wrote it", () => {
    const { body } = openAIError(invalidField("options.thinking.budget", "is too much"));
    assert.equal(body.error.message, "reasoning_effort.budget: is too much");
  });

  for (const kind of agentErrorKinds)
    test(`${kind} is an error by its status`, () => assert.ok(openAIError(new AgentError(kind, "x")).status >= 400));
});
