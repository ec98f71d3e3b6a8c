import assert from "node:assert/strict";
import { test } from "node:test";
import type OpenAI from "openai";
import type { ChatCompletionChunk } from "../../../src/convert/openai/event.ts";
import type {
  ChatCompletionMessageParam,
  ChatCompletionToolCall,
  FunctionMessageParam,
  SystemMessageParam,
  ToolMessageParam,
  UserMessageParam,
} from "../../../src/convert/openai/message.ts";
import type {
  ChatCompletionCreateParams,
  FunctionTool,
  ResponseFormatParam,
} from "../../../src/convert/openai/request.ts";
import type { ChatCompletion } from "../../../src/convert/openai/response.ts";
import type { CompletionUsage } from "../../../src/convert/openai/usage.ts";

/** Does not compile unless the first type is assignable to the second. */
type Assignable<From extends To, To> = From extends To ? true : never;

// What we write, whoever holds OpenAI's types can read.
type Written = [
  Assignable<ChatCompletionMessageParam, OpenAI.ChatCompletionMessageParam>,
  Assignable<ChatCompletionToolCall, OpenAI.ChatCompletionMessageToolCall>,
  Assignable<ChatCompletion, OpenAI.ChatCompletion>,
  Assignable<ChatCompletionChunk, OpenAI.ChatCompletionChunk>,
  Assignable<CompletionUsage, OpenAI.CompletionUsage>,
  Assignable<ChatCompletionCreateParams, OpenAI.ChatCompletionCreateParams>,
];

// What they write, we can read; but for custom tools, audio said before and the image detail `original`.
type TheirPart = Exclude<OpenAI.ChatCompletionContentPart, OpenAI.ChatCompletionContentPartImage>;
type Read = [
  Assignable<OpenAI.ChatCompletionSystemMessageParam, SystemMessageParam>,
  Assignable<OpenAI.ChatCompletionDeveloperMessageParam, SystemMessageParam>,
  Assignable<OpenAI.ChatCompletionUserMessageParam & { content: string | TheirPart[] }, UserMessageParam>,
  Assignable<OpenAI.ChatCompletionToolMessageParam, ToolMessageParam>,
  Assignable<OpenAI.ChatCompletionFunctionMessageParam, FunctionMessageParam>,
  Assignable<OpenAI.ChatCompletionMessageFunctionToolCall, ChatCompletionToolCall>,
  Assignable<OpenAI.ChatCompletionFunctionTool, FunctionTool>,
  Assignable<NonNullable<OpenAI.ChatCompletionCreateParams["response_format"]>, ResponseFormatParam>,
  Assignable<OpenAI.CompletionUsage, CompletionUsage>,
];

test("our shapes are OpenAI's shapes, as the compiler sees them", () => {
  const written: Written = [true, true, true, true, true, true];
  const read: Read = [true, true, true, true, true, true, true, true, true];
  assert.ok([...written, ...read].every(Boolean));
});
