import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  isSealedReasoning,
  openBlock,
  openReasoning,
  sealBlock,
  sealReasoning,
} from "../../src/convert/sealed-reasoning.ts";
import { block } from "./arbitrary.ts";

const reasoning = block.filter(
  ({ type }) => type === "thinking" || type === "redacted_thinking" || type === "reasoning",
);

function envelope(json: string): string {
  const empty = sealReasoning({ type: "thinking", thinking: "" });
  return `${empty.slice(0, empty.lastIndexOf(".") + 1)}${Buffer.from(json).toString("base64url")}`;
}

describe("reasoning in an envelope", () => {
  test("comes out as it went in", () => {
    fc.assert(
      fc.property(reasoning, (one) => {
        if (one.type !== "thinking" && one.type !== "redacted_thinking" && one.type !== "reasoning") return;
        const sealed = sealReasoning(one);
        assert.match(sealed, /^[\w.-]+$/);
        assert.deepEqual(openReasoning(sealed), one);
      }),
    );
  });

  test("and all that a turn added comes out as it went in", () => {
    fc.assert(
      fc.property(block, (one) => {
        if (one.type === "image" || one.type === "file" || one.type === "audio") return;
        const { parts: _, ...expected } = one.type === "tool_result" ? one : { ...one, parts: undefined };
        assert.deepEqual(openBlock(sealBlock(one)), expected);
      }),
    );
    assert.deepEqual(openBlock(sealBlock({ type: "note", text: "No." })), { type: "note", text: "No." });
    assert.equal(openReasoning(sealBlock({ type: "text", text: "Hi" })), undefined);
  });

  test("of a client's making does no harm", () => {
    const damaged = [
      "",
      "EqQBCgIYAhIM",
      envelope(""),
      envelope("null"),
      envelope("[]"),
      envelope('"thinking"'),
      envelope('{"type":"text","text":"x"}'),
      envelope('{"type":"thinking"}'),
      envelope('{"type":"thinking","thinking":"\\ud800"}'),
      envelope('{"type":"reasoning","content":"x","summary":[1]}'),
      envelope('{"type":"redacted_thinking","data":7}'),
      sealReasoning({ type: "thinking", thinking: "Hm." }).slice(0, -9),
    ];
    for (const text of damaged) assert.equal(openReasoning(text), undefined, text);
    assert.equal(openReasoning(sealReasoning({ type: "thinking", thinking: "x".repeat(9 << 20) })), undefined);
    fc.assert(fc.property(fc.json(), (json) => void openReasoning(envelope(json))));
    fc.assert(fc.property(fc.string(), (text) => void openReasoning(`${envelope("")}${text}`)));
  });

  test("is told from other texts", () => {
    assert.equal(isSealedReasoning(sealReasoning({ type: "thinking", thinking: "Hm." })), true);
    assert.equal(isSealedReasoning("EqQBCgIYAhIM"), false);
  });
});
