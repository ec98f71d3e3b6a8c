import assert from "node:assert/strict";
import { test } from "node:test";
import type Anthropic from "@anthropic-ai/sdk";
import type { AnthropicErrorBody } from "../../../src/convert/anthropic/error.ts";
import type {
  AnthropicBlock,
  AnthropicMessage,
  AnthropicStreamEvent,
} from "../../../src/convert/anthropic/response.ts";

/** Does not compile unless the first type is assignable to the second. */
type Assignable<From extends To, To> = From extends To ? true : never;

type Written = [
  Assignable<AnthropicMessage, Anthropic.Message>,
  Assignable<AnthropicStreamEvent, Anthropic.RawMessageStreamEvent>,
  // What is answered can be sent back as it is.
  Assignable<AnthropicBlock, Anthropic.ContentBlockParam>,
  Assignable<Pick<AnthropicErrorBody, "type" | "request_id">, Pick<Anthropic.ErrorResponse, "type" | "request_id">>,
];

test("what we write, whoever holds Anthropic's types can read", () => {
  const written: Written = [true, true, true, true];
  assert.ok(written.every(Boolean));
});
