import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { ChatEvent } from "../../src/chat/event.ts";
import type { LogEvent } from "../../src/chat/log-event.ts";
import type { ContentBlock } from "../../src/chat/message.ts";
import { encodeLogEvent } from "../../src/convert/proto/event.ts";
import { withLargeContent } from "../../src/session/large-messages.ts";
import { orderBlocks } from "../../src/session/order-blocks.ts";

const origin = { provider: "p", model: "m", dialect: "d" };

function run(reads: readonly (readonly ChatEvent[])[]): LogEvent[] {
  let made = 0;
  const used = new Set<string>();
  const order = orderBlocks(origin, (wanted) => {
    const id = wanted === "" || used.has(wanted) ? `made-${++made}` : wanted;
    used.add(id);
    return id;
  });
  return [...reads.flatMap((events) => order.push(events)), ...order.finish()];
}

/** Blocks never interleave, indexes count up, and every block is what its deltas add up to. */
function blocksOf(events: readonly LogEvent[]): ContentBlock[] {
  const blocks: ContentBlock[] = [];
  let open: { index: number; text: string; signature: string } | undefined;
  for (const event of events) {
    if (event.type === "block-start") {
      assert.equal(open, undefined);
      assert.equal(event.index, blocks.length);
      open = { index: event.index, text: "", signature: "" };
    } else if (event.type === "block-delta") {
      assert.equal(event.index, open?.index);
      const { delta } = event;
      if (open !== undefined && delta.type === "signature") open.signature += delta.signature;
      else if (open !== undefined) open.text += Object.values(delta)[1];
      assert.ok(Object.values(delta).every((piece) => typeof piece === "string" && piece.isWellFormed()));
    } else if (event.type === "block-stop") {
      assert.equal(event.index, open?.index);
      const { block } = event;
      if (block.type === "text") assert.equal(block.text, open?.text);
      if (block.type === "tool_use") assert.equal(block.input, open?.text);
      if (block.type === "thinking") {
        assert.equal(block.thinking, open?.text);
        assert.equal(block.signature ?? "", open?.signature);
      }
      blocks.push(block);
      open = undefined;
    } else assert.fail(`${event.type} is no event of a block`);
  }
  assert.equal(open, undefined);
  return blocks;
}

const text = (index: number, value: string): ChatEvent => ({ type: "text-delta", index, text: value });
const call = (index: number, id: string, name: string): ChatEvent => ({ type: "tool-call-start", index, id, name });
const thought = (index: number, value: string): ChatEvent => ({ type: "reasoning-delta", index, text: value });
const reasoning = { type: "reasoning", content: "", encrypted: "final", summary: ["Hm, so."] } as const;
const args = (index: number, value: string): ChatEvent => ({ type: "tool-call-delta", index, argumentsText: value });

describe("orderBlocks", () => {
  const cases: { name: string; reads: ChatEvent[][]; blocks: ContentBlock[] }[] = [
    { name: "nothing", reads: [[]], blocks: [] },
    { name: "text in pieces", reads: [[text(0, "a")], [text(0, "b")]], blocks: [{ type: "text", text: "ab" }] },
    {
      name: "deltas of two calls interleave on the wire, their blocks do not",
      reads: [
        [call(0, "x", "f"), call(1, "y", "g")],
        [args(1, '{"b"'), args(0, '{"a"')],
        [args(0, ":1}"), args(1, ":2}")],
      ],
      blocks: [
        { type: "tool_use", id: "x", name: "f", input: '{"a":1}' },
        { type: "tool_use", id: "y", name: "g", input: '{"b":2}' },
      ],
    },
    {
      name: "a call without arguments stays open until the end",
      reads: [[call(0, "x", "f")], [call(1, "y", "g"), args(1, "{}")]],
      blocks: [
        { type: "tool_use", id: "x", name: "f", input: "" },
        { type: "tool_use", id: "y", name: "g", input: "{}" },
      ],
    },
    {
      name: "two calls with one id, or none, get ids of their own",
      reads: [[call(0, "x", "f"), args(0, "{}"), call(1, "x", "f"), args(1, "{}"), call(2, "", "f"), args(2, "{}")]],
      blocks: [
        { type: "tool_use", id: "x", name: "f", input: "{}" },
        { type: "tool_use", id: "made-1", name: "f", input: "{}" },
        { type: "tool_use", id: "made-2", name: "f", input: "{}" },
      ],
    },
    {
      name: "thinking with a signature and no text is kept",
      reads: [[{ type: "signature-delta", index: 0, signature: "sig" }], [text(1, "so")]],
      blocks: [
        { type: "thinking", thinking: "", signature: "sig", ...origin },
        { type: "text", text: "so" },
      ],
    },
    {
      name: "reasoning is shown by its deltas and kept as the block that comes after them, however late",
      reads: [
        [thought(0, "Hm, "), thought(0, "so.")],
        [text(1, "Hi"), { type: "block", index: 0, block: { ...reasoning, id: "r-1" } }],
        [{ type: "block", index: 2, block: { ...reasoning, provider: "other" } }],
      ],
      blocks: [
        { ...origin, ...reasoning, id: "r-1" },
        { type: "text", text: "Hi" },
        { ...origin, ...reasoning, provider: "other" },
      ],
    },
    {
      name: "reasoning that never came whole is kept as far as it was shown",
      reads: [[thought(0, "Hm")], [text(1, "Hi")]],
      blocks: [
        { type: "reasoning", content: "Hm", summary: [], ...origin },
        { type: "text", text: "Hi" },
      ],
    },
    {
      name: "what a text is for is kept with it",
      reads: [
        [{ type: "text-delta", index: 0, text: "a", phase: "commentary" }, text(0, "b"), text(1, "c")],
        [{ type: "text-delta", index: 1, text: "", phase: "final_answer" }],
      ],
      blocks: [
        { type: "text", text: "ab", phase: "commentary" },
        { type: "text", text: "c", phase: "final_answer" },
      ],
    },
  ];
  for (const { name, reads, blocks } of cases) {
    test(name, () => assert.deepEqual(blocksOf(run(reads)), blocks));
  }

  test("text longer than a block goes on in the next one", () => {
    const long = "😀".repeat(400_000);
    const blocks = blocksOf(run([[text(0, long)]]));
    assert.ok(blocks.length > 1);
    assert.equal(blocks.map((block) => (block.type === "text" ? block.text : "")).join(""), long);
  });

  test("arguments too large for an event are an error of the provider", () => {
    assert.throws(
      () => run([[call(0, "x", "f"), args(0, "x".repeat(400_000))]]),
      /tool_use block of 400000 characters/,
    );
  });

  test("reasoning shown by deltas is announced, shown and closed with the whole block", () => {
    const block = { ...reasoning, raw: new Uint8Array([1]) };
    assert.deepEqual(run([[thought(0, "Hm")], [{ type: "block", index: 0, block }]]), [
      { type: "block-start", index: 0, blockType: "reasoning" },
      { type: "block-delta", index: 0, delta: { type: "reasoning", reasoning: "Hm" } },
      { type: "block-stop", index: 0, block: { ...origin, ...block } },
    ]);
  });

  const tooLarge: readonly { name: string; block: ContentBlock; shown: ContentBlock }[] = [
    {
      name: "a picture as a result",
      block: {
        type: "unknown",
        unknownType: "image_generation_call",
        dialect: "other",
        raw: new Uint8Array(1_000_000),
      },
      shown: { ...origin, type: "unknown", unknownType: "image_generation_call", dialect: "other" },
    },
    {
      name: "reasoning with a long raw form",
      block: { ...reasoning, raw: new Uint8Array(1_000_000) },
      shown: { ...origin, ...reasoning },
    },
    {
      name: "reasoning with a long encrypted form",
      block: { ...reasoning, content: "Hm.", encrypted: "x".repeat(1_000_000), raw: new Uint8Array(1_000_000) },
      shown: { ...origin, type: "reasoning", content: "Hm.", summary: ["Hm, so."] },
    },
    {
      name: "thinking with a long raw form and a long signature",
      block: {
        type: "thinking",
        thinking: "x".repeat(2000),
        signature: "s".repeat(1_000_000),
        raw: new Uint8Array(1_000_000),
      },
      shown: { ...origin, type: "thinking", thinking: "x".repeat(2000) },
    },
    {
      name: "long redacted thinking",
      block: { type: "redacted_thinking", data: "x".repeat(1_000_000) },
      shown: { ...origin, type: "redacted_thinking", data: "" },
    },
    {
      name: "an image",
      block: { type: "image", url: `data:image/png;base64,${"A".repeat(1_000_000)}` },
      shown: { type: "unknown", unknownType: "image" },
    },
  ];
  for (const { name, block, shown } of tooLarge) {
    test(`${name}, too large for an event, is kept beside the log and put back whole`, async () => {
      const order = orderBlocks(origin, (wanted) => wanted);
      const deltas: ChatEvent[] =
        block.type === "thinking" ? [{ type: "thinking-delta", index: 1, text: block.thinking }] : [];
      const events = [...order.push([text(0, "a"), ...deltas, { type: "block", index: 1, block }]), ...order.finish()];
      const blobs = new Map(order.takeBlobs().map(({ digest, body }) => [digest, body]));
      assert.equal(blobs.size, 1);
      assert.deepEqual(order.takeBlobs(), []);
      const inLog = blocksOf(events);
      const raw = Buffer.from(JSON.stringify({ "codeagent.digest": [...blobs.keys()][0] }));
      assert.deepEqual(inLog, [
        { type: "text", text: "a" },
        { ...shown, raw },
      ]);
      for (const event of events) assert.ok(encodeLogEvent("turn", 0, event).byteLength < 1_000_000);

      const message = { role: "assistant", blocks: inLog } as const;
      const [whole] = await withLargeContent([message], async (digest) => blobs.get(digest));
      const kept = "raw" in shown || block.type !== "image" ? { ...origin, ...block } : block;
      assert.deepEqual(whole?.blocks, [{ type: "text", text: "a" }, kept]);
      assert.deepEqual(await withLargeContent([message], async () => undefined), [message], "a blob that is gone");
    });
  }

  test("what is large and still fits an event stays in it", () => {
    const block = { type: "unknown", unknownType: "picture", raw: new Uint8Array(900_000) } as const;
    const order = orderBlocks(origin, (wanted) => wanted);
    const events = [...order.push([{ type: "block", index: 0, block }]), ...order.finish()];
    assert.deepEqual(blocksOf(events), [{ ...origin, ...block }]);
    assert.deepEqual(order.takeBlobs(), []);
  });

  test("whatever interleaves, nothing of a block is lost and the order is that of first appearance", () => {
    const pieces = fc.array(
      fc.record({
        index: fc.integer({ min: 0, max: 4 }),
        piece: fc.string({ minLength: 1, maxLength: 4, unit: "grapheme" }),
      }),
      { maxLength: 40 },
    );
    fc.assert(
      fc.property(pieces, fc.integer({ min: 1, max: 5 }), (all, perRead) => {
        const begun: number[] = [];
        const expected = new Map<number, string>();
        const events: ChatEvent[] = [];
        for (const { index, piece } of all) {
          if (!begun.includes(index)) {
            begun.push(index);
            events.push(call(index, `id-${index}`, "f"));
          }
          expected.set(index, (expected.get(index) ?? "") + piece);
          events.push(args(index, piece));
        }
        const reads = Array.from({ length: Math.ceil(events.length / perRead) }, (_, read) =>
          events.slice(read * perRead, (read + 1) * perRead),
        );
        // A call closes once its arguments are whole JSON objects; these never are.
        const blocks = blocksOf(run(reads));
        assert.deepEqual(
          blocks.map((block) => (block.type === "tool_use" ? [block.id, block.input] : [])),
          begun.map((index) => [`id-${index}`, expected.get(index)]),
        );
      }),
    );
  });
});
