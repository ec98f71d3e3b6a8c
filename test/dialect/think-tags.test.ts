import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ChatEvent } from "../../src/chat/event.ts";
import { openaiChat } from "../../src/dialect/openai-chat.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import type { SseMessage } from "../../src/stream/sse.ts";
import { plainContext } from "./answer-reading.ts";

type Part = readonly ["text" | "thinking" | "call", string];

const cases: readonly { name: string; content: string; read: readonly Part[] }[] = [
  { name: "no tags", content: "Hello", read: [["text", "Hello"]] },
  { name: "no tags, with space around", content: "\n Hello \n", read: [["text", "\n Hello \n"]] },
  {
    name: "thinking, then the answer",
    content: "<think>Hm 👩‍🚀.</think>Hello",
    read: [
      ["thinking", "Hm 👩‍🚀."],
      ["text", "Hello"],
    ],
  },
  {
    name: "newlines before, inside and after",
    content: "\n<think>\n\nHm.\n</think>\n\n Hello\n",
    read: [
      ["thinking", "Hm.\n"],
      ["text", " Hello\n"],
    ],
  },
  { name: "no thinking between the tags", content: "<think>\n\n</think>\n\nHello", read: [["text", "Hello"]] },
  {
    name: "a pair in a pair",
    content: "<think>a<think>b</think>c</think>d",
    read: [
      ["thinking", "a<think>b</think>c"],
      ["text", "d"],
    ],
  },
  {
    name: "one pair after the other",
    content: "<think>a</think>\n<think>b</think>\nc",
    read: [
      ["thinking", "ab"],
      ["text", "c"],
    ],
  },
  { name: "never closed", content: "<think>Hm <b>, a </thin", read: [["thinking", "Hm <b>, a </thin"]] },
  { name: "nothing after the opening", content: "<think>", read: [] },
  { name: "closed, never opened", content: "Hm.</think>\n\nHello", read: [["text", "Hm.Hello"]] },
  { name: "only a closing tag", content: "</think>Hello", read: [["text", "Hello"]] },
  { name: "half of an opening tag", content: " <thin", read: [["text", " <thin"]] },
  { name: "half of a closing tag", content: "a </thin", read: [["text", "a </thin"]] },
  { name: "tags of other names", content: "<thinker>a</thinker>", read: [["text", "<thinker>a</thinker>"]] },
  {
    name: "an answer that writes of tags",
    content: "<think>x</think>Write <think> and </think>.",
    read: [
      ["thinking", "x"],
      ["text", "Write <think> and </think>."],
    ],
  },
  {
    name: "an opening tag after the answer began",
    content: "Use <think> first.",
    read: [["text", "Use <think> first."]],
  },
  {
    name: "an opening tag after very much space",
    content: `${" ".repeat(257)}<think>`,
    read: [["text", `${" ".repeat(257)}<think>`]],
  },
];

function parts(events: readonly ChatEvent[]): Part[] {
  const found: Part[] = [];
  for (const event of events) {
    const part: Part | undefined =
      event.type === "text-delta"
        ? ["text", event.text]
        : event.type === "thinking-delta"
          ? ["thinking", event.text]
          : event.type === "tool-call-start"
            ? ["call", event.name]
            : undefined;
    const last = found.at(-1);
    if (part === undefined) continue;
    if (last?.[0] === part[0]) found[found.length - 1] = [part[0], last[1] + part[1]];
    else found.push(part);
  }
  return found;
}

async function readDeltas(deltas: readonly object[], thinkTags = true): Promise<Part[]> {
  async function* messages(): AsyncGenerator<SseMessage[]> {
    for (const delta of deltas) yield [message(JSON.stringify({ choices: [{ index: 0, delta }] }))];
    yield [message("[DONE]")];
  }
  const events: ChatEvent[] = [];
  const context = { ...plainContext(), quirks: { ...defaultQuirks, thinkTags } };
  for await (const some of openaiChat.decodeStream(messages(), context)) events.push(...some);
  return parts(events);
}

function message(data: string): SseMessage {
  return { data };
}

function cut(content: string, size: number): { content: string }[] {
  return Array.from({ length: Math.ceil(content.length / size) }, (_, index) => ({
    content: content.slice(index * size, (index + 1) * size),
  }));
}

describe("thinking in tags", () => {
  for (const { name, content, read } of cases) {
    test(`${name}, in pieces of every size`, async () => {
      for (let size = 1; size <= content.length; size++) {
        assert.deepEqual(await readDeltas(cut(content, size)), read, `pieces of ${size}`);
      }
    });

    test(`${name}, in one body`, () => {
      const body = JSON.stringify({ choices: [{ message: { content }, finish_reason: "stop" }] });
      const context = { ...plainContext(), quirks: { ...defaultQuirks, thinkTags: true } };
      assert.deepEqual(parts(openaiChat.decodeWhole(body, context)), read);
    });
  }

  test("a call after half a tag comes after it", async () => {
    const call = { index: 0, id: "a", function: { name: "look", arguments: "{}" } };
    assert.deepEqual(await readDeltas([{ content: "a </th" }, { tool_calls: [call] }]), [
      ["text", "a </th"],
      ["call", "look"],
    ]);
    assert.deepEqual(await readDeltas([{ content: "<think>a </th" }, { tool_calls: [call] }]), [
      ["thinking", "a </th"],
      ["call", "look"],
    ]);
  });

  test("tags are text where the endpoint is not said to have them", async () => {
    const content = "<think>a</think>b";
    assert.deepEqual(await readDeltas(cut(content, 3), false), [["text", content]]);
  });
});
