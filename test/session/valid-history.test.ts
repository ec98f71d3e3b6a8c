import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Message, toolUses } from "../../src/chat/message.ts";
import { validHistory } from "../../src/session/valid-history.ts";

const said = (role: "user" | "assistant" | "system", text: string): Message => ({
  role,
  blocks: [{ type: "text", text }],
});
const calls = (...ids: string[]): Message => ({
  role: "assistant",
  blocks: ids.map((id) => ({ type: "tool_use", id, name: "f", input: "{}" })),
});
const result = (toolUseId: string, content = "done"): Message => ({
  role: "tool",
  blocks: [{ type: "tool_result", toolUseId, content }],
});
const none = (toolUseId: string): Message => ({
  role: "tool",
  blocks: [{ type: "tool_result", toolUseId, content: "error: no result was given for this call", isError: true }],
});

describe("validHistory", () => {
  const cases: { name: string; given: Message[]; valid: Message[] }[] = [
    {
      name: "a plain talk stays",
      given: [said("user", "a"), said("assistant", "b")],
      valid: [said("user", "a"), said("assistant", "b")],
    },
    {
      name: "messages without content go",
      given: [said("user", "a"), said("assistant", "")],
      valid: [said("user", "a")],
    },
    {
      name: "a call nobody answered gets a result that says so",
      given: [calls("x"), said("user", "go on")],
      valid: [calls("x"), none("x"), said("user", "go on")],
    },
    {
      name: "results come in the order of the calls and before anything else",
      given: [calls("x", "y"), said("user", "wait"), result("y"), result("x")],
      valid: [calls("x", "y"), result("x"), result("y"), said("user", "wait")],
    },
    { name: "a result of no call goes", given: [said("user", "a"), result("x")], valid: [said("user", "a")] },
    {
      name: "an id used again has a result each time, and becomes another one",
      given: [calls("x"), result("x", "one"), calls("x"), result("x", "two"), calls("x", "x_3")],
      valid: [
        calls("x"),
        result("x", "one"),
        calls("x_2"),
        result("x_2", "two"),
        calls("x_3", "x_3_2"),
        none("x_3"),
        none("x_3_2"),
      ],
    },
    {
      name: "a result in a user's message",
      given: [
        calls("x"),
        { ...said("user", "u"), blocks: [...result("x", "seen").blocks, ...said("user", "u").blocks] },
      ],
      valid: [calls("x"), result("x", "seen"), said("user", "u")],
    },
    {
      name: "only the first of two results counts",
      given: [calls("x"), result("x", "one"), result("x", "two")],
      valid: [calls("x"), result("x", "one")],
    },
  ];
  for (const { name, given, valid } of cases) test(name, () => assert.deepEqual(validHistory(given), valid));

  test("many calls and many results of others take no time", () => {
    const ids = (from: string) => Array.from({ length: 40_000 }, (_, index) => `${from}${index}`);
    const startMs = performance.now();
    assert.equal(validHistory([calls(...ids("a")), ...ids("b").map((id) => result(id))]).length, 40_001);
    assert.ok(performance.now() - startMs < 3000);
  });

  test("whatever happened, every call is followed by exactly its result", () => {
    const id = fc.constantFrom("a", "b", "c");
    const message = fc.oneof(
      fc.uniqueArray(id).map((ids) => calls(...ids)),
      id.map((used) => result(used)),
      fc.constantFrom(said("user", "u"), said("assistant", ""), said("assistant", "t"), said("system", "s")),
    );
    fc.assert(
      fc.property(fc.array(message, { maxLength: 12 }), (given) => {
        const valid = validHistory(given);
        let owed: string[] = [];
        for (const each of valid) {
          assert.ok(each.blocks.length > 0);
          if (each.role === "tool") {
            const [block] = each.blocks;
            assert.equal(block?.type === "tool_result" ? block.toolUseId : "", owed.shift());
            continue;
          }
          assert.deepEqual(owed, []);
          owed = toolUses(each).map((use) => use.id);
        }
        assert.deepEqual(owed, []);
        assert.deepEqual(validHistory(valid), valid, "valid stays as it is");
      }),
    );
  });
});
