import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AgentErrorKind } from "../../src/chat/error.ts";
import { dialects } from "../../src/dialect/dialect.ts";
import { upstreamError } from "../../src/dialect/upstream-error.ts";

const tooLong: readonly string[] = [
  "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
  "prompt is too long: 201000 tokens > 200000 maximum",
  "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000, decrease one and try again",
  "input length and max_tokens exceed context limit: 199000 + 8000 > 200000",
  "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
  "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
  "InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
  "Prompt exceeds max length",
  "prompt token count of 128100 exceeds the limit of 128000",
  "The input token count (1048600) exceeds the maximum number of tokens allowed (1048575).",
  "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
  "inputs tokens + max_new_tokens must be <= 4096",
  "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
  "input is too long for requested model",
  "The total of 40000 tokens exceeds the context limit of 32768",
  "40000 tokens do not fit the context limit",
];

const tooFast: readonly string[] = [
  "Rate limit reached for m-1 on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.",
  "Request too large for m-1 on tokens per minute (TPM): Limit 10000, Requested 21247, reduce the length of the messages",
  "This request would exceed the rate limit of 40,000 maximum input tokens per minute.",
  "Too many tokens, please wait before trying again.",
  "Too many tokens per day",
  "Too many requests: prompt token count per second exceeds 10",
];

const others: readonly string[] = [
  "max_tokens: 100000 > 8192, which is the most output of this model",
  "messages: at least one message is required",
  "the value of temperature exceeds 2",
];

function kindOf(message: string, status?: number): AgentErrorKind {
  const fault = { message, type: "", code: "" };
  return upstreamError(fault, { provider: "p", ...(status === undefined ? {} : { status }) }).kind;
}

describe("an error's words", () => {
  for (const words of tooLong) {
    test(`too long: ${words}`, () => {
      assert.equal(kindOf(words, 400), "context_length");
      assert.equal(kindOf(words), "context_length", "in a 200");
      assert.equal(kindOf(words, 429), "rate_limited");
    });
  }
  for (const words of tooFast) {
    test(`too fast: ${words}`, () => {
      assert.equal(kindOf(words, 429), "rate_limited");
      assert.equal(kindOf(words), "rate_limited", "in a 200");
      assert.equal(kindOf(words, 400), "provider_rejected");
    });
  }
  for (const words of others) {
    test(`neither: ${words}`, () => assert.equal(kindOf(words, 400), "provider_rejected"));
  }
});

describe("an error in an array", () => {
  for (const [id, dialect] of Object.entries(dialects)) {
    test(`over ${id}`, () => {
      const fault = dialect.decodeError('[{"error":{"type":"t","code":"c","message":"No."}}]');
      assert.deepEqual(fault, { type: "t", code: "c", message: "No." });
      for (const none of ["[]", "[[]]", '["No."]', "[null]", `${"[".repeat(20_000)}${"]".repeat(20_000)}`]) {
        assert.equal(dialect.decodeError(none), undefined);
      }
    });
  }
});
