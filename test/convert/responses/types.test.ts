import assert from "node:assert/strict";
import { test } from "node:test";
import type { Responses } from "openai/resources/responses/responses";
import type { ResponseEvent } from "../../../src/convert/responses/event.ts";
import type { ConversationItem, OutputItem } from "../../../src/convert/responses/item.ts";
import type { ResponseBody } from "../../../src/convert/responses/response.ts";
import type { ResponseUsage } from "../../../src/convert/responses/usage.ts";

/** Does not compile unless the first type is assignable to the second. */
type Assignable<From extends To, To> = From extends To ? true : never;
/** OpenAI's clients add the text of all messages to each response, also in events. */
type WithText<Event> = Event extends { response: ResponseBody }
  ? Omit<Event, "response"> & { response: ResponseBody & { output_text: string } }
  : Event;

// What we write, whoever holds OpenAI's types can read, and items can be sent back.
type Written = [
  Assignable<ResponseBody & { output_text: string }, Responses.Response>,
  Assignable<ResponseUsage, Responses.ResponseUsage>,
  Assignable<OutputItem, Responses.ResponseOutputItem>,
  Assignable<ConversationItem, Responses.ResponseItem>,
  Assignable<ConversationItem, Responses.ResponseInputItem>,
  Assignable<WithText<ResponseEvent>, Responses.ResponseStreamEvent>,
];

test("our shapes are OpenAI's shapes, as the compiler sees them", () => {
  const written: Written = [true, true, true, true, true, true];
  assert.ok(written.every(Boolean));
});
