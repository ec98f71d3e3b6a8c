import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError, type AgentErrorKind, agentErrorKinds, invalidField } from "../../../src/chat/error.ts";
import { errorToAnthropic } from "../../../src/convert/anthropic/error.ts";

/** The status each word goes with at the vendor (platform.claude.com/docs/en/api/errors). */
const statuses: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  permission_error: 403,
  not_found_error: 404,
  conflict_error: 409,
  request_too_large: 413,
  rate_limit_error: 429,
  api_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
};

describe("each kind of error has a word of the vendor's and its status", () => {
  const words: Partial<Record<AgentErrorKind, string>> = {
    invalid_request: "invalid_request_error",
    unauthenticated: "authentication_error",
    not_found: "not_found_error",
    rate_limited: "rate_limit_error",
    provider_auth: "api_error",
    provider_unavailable: "overloaded_error",
    deadline: "timeout_error",
  };
  for (const kind of agentErrorKinds) {
    test(kind, () => {
      const { status, body } = errorToAnthropic(new AgentError(kind, "a sentence"));
      assert.equal(status, statuses[body.error.type]);
      assert.equal(body.error.type, words[kind] ?? body.error.type);
    });
  }
});

test("a wrong field is named beside the sentence", () => {
  assert.deepEqual(errorToAnthropic(invalidField("messages.0.role", "is missing")), {
    status: 400,
    body: {
      type: "error",
      error: {
        type: "invalid_request_error",
        message: "messages.0.role: is missing",
        details: { error_code: "invalid_request", field: "messages.0.role" },
      },
      request_id: null,
    },
  });
});

test("clients learn in the vendor's words that a conversation is too long", () => {
  const { body } = errorToAnthropic(
    new AgentError("context_length", "300000 tokens", { detail: { upstreamRequestId: "req_1" } }),
  );
  assert.equal(body.error.message, "prompt is too long: 300000 tokens");
  assert.equal(body.request_id, "req_1");
});

test("a body that is too large has a word of its own", () => {
  const { status, body } = errorToAnthropic(
    new AgentError("invalid_request", "send less", { reason: "REQUEST_TOO_LARGE" }),
  );
  assert.deepEqual([status, body.error.type], [413, "request_too_large"]);
});
