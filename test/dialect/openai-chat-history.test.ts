import { describe, test } from "node:test";
import fc from "fast-check";
import type { ContentBlock, Message } from "../../src/chat/message.ts";
import type { ChatRequest } from "../../src/chat/request.ts";
import { isJsonObject, parseJson } from "../../src/dialect/json.ts";
import { encode } from "../../src/dialect/openai-chat-encode.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import * as arbitrary from "../convert/arbitrary.ts";
import { checkRequest } from "./check-request.ts";

/** Nobody is named; each call has its own id, a plain name and whole arguments; the result of a call, where there is one, follows it. */
function plain(messages: readonly Message[]): Message[] {
  let ids = 0;
  const open: string[] = [];
  return messages.map(({ name: _, ...message }) => ({
    ...message,
    blocks: message.blocks.flatMap((block): ContentBlock[] => {
      if (block.type === "tool_use") {
        const id = `c${++ids}`;
        open.push(id);
        return [{ ...block, id, name: "look", input: isJsonObject(parseJson(block.input)) ? block.input : "{}" }];
      }
      if (block.type === "unknown" && message.role !== "assistant") return [];
      if (block.type !== "tool_result") return [block];
      // Here results stand in tool messages only.
      return message.role === "tool" ? [{ ...block, toolUseId: open.shift() ?? "nobody" }] : [];
    }),
  }));
}

describe("Chat Completions", () => {
  test("whatever the history, its request is one that every endpoint takes", () => {
    fc.assert(
      fc.property(fc.array(arbitrary.message, { minLength: 1, maxLength: 6 }), (any) => {
        const hi: Message = { role: "user", blocks: [{ type: "text", text: "hi" }] };
        const messages = validHistory([...plain(any), hi]);
        const request: ChatRequest = { model: "m", messages, tools: [], options: {} };
        checkRequest("/chat/completions", encode(request, { ...defaultQuirks }, "p"));
      }),
      { numRuns: 1000 },
    );
  });
});
