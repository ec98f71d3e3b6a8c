import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ContentBlock, Message } from "../../src/chat/message.ts";
import { decodeLogEvent, encodeLogEvent } from "../../src/convert/proto/event.ts";
import { encode } from "../../src/dialect/anthropic-messages-encode.ts";
import { elementSlices, memberSlices } from "../../src/dialect/json-slices.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { blocksOf } from "./answer-blocks.ts";
import { readStream, readWhole } from "./answer-reading.ts";
import { validAnthropicRequest } from "./valid-anthropic-request.ts";

const folder = join(import.meta.dirname, "fixtures/anthropic-messages");
const read = (file: string) => readFileSync(join(folder, file), "utf8");

/** The blocks as they come back out of the log. */
function stored(blocks: readonly ContentBlock[]): ContentBlock[] {
  return blocks.map((block, index) => {
    const { event } = decodeLogEvent(encodeLogEvent("turn", 1, { type: "block-stop", index, block }));
    assert.ok(event.type === "block-stop");
    return event.block;
  });
}

/** The JSON texts of the answer's blocks in the request that follows it. */
function sentBack(blocks: readonly ContentBlock[]): string[] {
  const messages: Message[] = [
    { role: "user", blocks: [{ type: "text", text: "Go" }] },
    { role: "assistant", blocks },
  ];
  const body = encode(
    {
      model: "m-1",
      messages: validHistory([...messages, { role: "user", blocks: [{ type: "text", text: "And?" }] }]),
      tools: [],
      options: {},
    },
    defaultQuirks,
    "test",
  );
  validAnthropicRequest(body);
  const turn = elementSlices(memberSlices(body).get("messages") ?? "[]")[1] ?? "{}";
  return elementSlices(memberSlices(turn).get("content") ?? "[]");
}

const hash = (text: string) => createHash("sha256").update(text, "utf8").digest("hex");
const isThinking = (text: string) => /thinking"$/.test(memberSlices(text).get("type") ?? "");

/** The hash of what a unit of thinking says: its words and signature, or its data, in the exact code units. */
function unitHash(text: string): string {
  const unit = JSON.parse(text);
  return hash([unit.type, unit.thinking, unit.signature, unit.data].join("\0"));
}

/** Units of thinking as a plain reader of the stream puts them together. */
function unitsOfStream(text: string): string[] {
  const units: { type: string; thinking?: string; signature?: string; data?: string }[] = [];
  for (const line of text.split("\n").filter((one) => one.startsWith("data: {"))) {
    const event = JSON.parse(line.slice("data: ".length));
    if (event.type === "content_block_start") units.push(event.content_block);
    const unit = units.at(-1);
    if (unit !== undefined && event.delta?.type === "thinking_delta") unit.thinking += event.delta.thinking;
    if (unit !== undefined && event.delta?.type === "signature_delta") unit.signature += event.delta.signature;
  }
  return units.filter(({ type }) => type.endsWith("thinking")).map((unit) => JSON.stringify(unit));
}

describe("thinking goes back as it came", () => {
  for (const name of ["pair-thinking-text-and-calls", "pair-redacted-and-unknown", "thinking-in-the-block-start"]) {
    const text = read(`${name}.sse`);
    test(`${name}, streamed`, async () => {
      const blocks = blocksOf((await readStream(text, 7, "anthropic-messages")).events);
      const received = unitsOfStream(text).map(unitHash);
      assert.ok(received.length > 0);
      assert.deepEqual(sentBack(blocks).filter(isThinking).map(unitHash), received);
      assert.deepEqual(sentBack(stored(blocks)), sentBack(blocks));
    });
  }

  for (const name of [
    "pair-thinking-text-and-calls-whole",
    "pair-redacted-and-unknown-whole",
    "numbers-and-key-order-kept",
  ]) {
    const text = read(`${name}.whole`);
    test(`${name}, in one body, byte for byte`, () => {
      const blocks = blocksOf(readWhole(text, "anthropic-messages").events);
      const received = elementSlices(memberSlices(text).get("content") ?? "[]");
      assert.ok(received.some(isThinking));
      assert.deepEqual(sentBack(blocks).filter(isThinking).map(hash), received.filter(isThinking).map(hash));
      assert.deepEqual(sentBack(stored(blocks)), sentBack(blocks));
    });
  }

  test("the form in which streamed thinking goes back", async () => {
    const { events } = await readStream(read("pair-thinking-text-and-calls.sse"), 64, "anthropic-messages");
    assert.deepEqual(sentBack(blocksOf(events)), [
      '{"type":"thinking","thinking":"Two steps.","signature":"c2lnbmVk"}',
      '{"type":"text","text":"Look: 😀"}',
      '{"type":"tool_use","id":"toolu_1","name":"read","input":{"path": "a", "n": 1.0}}',
      '{"type":"thinking","thinking":"","signature":"ZW1wdHk="}',
      '{"type":"tool_use","id":"toolu_2","name":"now","input":{}}',
    ]);
  });

  test("blocks of the provider's own tools and texts with citations go back whole", async () => {
    const { events } = await readStream(read("pair-server-tool-and-citations.sse"), 64, "anthropic-messages");
    const whole = read("pair-server-tool-and-citations-whole.whole");
    const blocks = blocksOf(events);
    const received = elementSlices(memberSlices(whole).get("content") ?? "[]");
    assert.deepEqual(
      sentBack(stored(blocks)).map((text) => JSON.parse(text)),
      received.map((text) => JSON.parse(text.replace(',"citations":null', ""))),
    );
  });

  test("half a signature is not kept", async () => {
    const { events } = await readStream(read("cut-in-a-signature.sse"), 64, "anthropic-messages");
    const [block] = blocksOf(events);
    assert.ok(block?.type === "thinking");
    assert.equal(block.signature, undefined);
    assert.deepEqual(sentBack([block, { type: "text", text: "So" }]), ['{"type":"text","text":"So"}']);
  });
});
