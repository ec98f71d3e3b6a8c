import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import type { FinishReason } from "../../src/chat/finish-reason.ts";
import { readWhole } from "./answer-reading.ts";

const words: readonly (readonly [word: string, reason: FinishReason, withCall: FinishReason])[] = [
  ["stop", "stop", "tool_calls"],
  ["tool_calls", "stop", "tool_calls"],
  ["STOP", "stop", "tool_calls"],
  ["something_new", "stop", "tool_calls"],
  ["MALFORMED_FUNCTION_CALL", "stop", "tool_calls"],
  ["constructor", "stop", "tool_calls"],
  ["length", "length", "length"],
  ["max_tokens", "length", "length"],
  ["MAX_TOKENS", "length", "length"],
  ["model_length", "length", "length"],
  ["model_context_window_exceeded", "length", "length"],
  ["content_filter", "content_filter", "content_filter"],
  ["content-filter", "content_filter", "content_filter"],
  ["content_filtered", "content_filter", "content_filter"],
  ["sensitive", "content_filter", "content_filter"],
  ["SAFETY", "content_filter", "content_filter"],
  ["RECITATION", "content_filter", "content_filter"],
  ["BLOCKLIST", "content_filter", "content_filter"],
  ["PROHIBITED_CONTENT", "content_filter", "content_filter"],
  ["SPII", "content_filter", "content_filter"],
];

function answer(word: string, calls: readonly object[] = []) {
  const message = { role: "assistant", content: "Half of", tool_calls: calls };
  return readWhole(JSON.stringify({ choices: [{ index: 0, message, finish_reason: word }] }));
}

describe("the word a Chat Completions answer ends with", () => {
  for (const [word, reason, withCall] of words) {
    test(`${word} means ${reason}`, () => {
      const call = { index: 0, id: "a", function: { name: "look", arguments: "{}" } };
      const finish = { type: "finish", rawFinishReason: word };
      assert.deepEqual(answer(word).events.at(-1), { ...finish, finishReason: reason });
      assert.deepEqual(answer(word, [call]).events.at(-1), { ...finish, finishReason: withCall });
    });
  }
  for (const word of ["error", "insufficient_system_resource", "network_error"]) {
    test(`${word} is a failure`, () => {
      const { error } = answer(word);
      assert.ok(error instanceof AgentError);
      assert.equal(error.kind, "provider_unavailable");
      assert.equal(error.detail?.retryable, true);
    });
  }
});
