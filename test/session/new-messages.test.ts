import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Message, Role } from "../../src/chat/message.ts";
import { newMessages } from "../../src/session/new-messages.ts";

const letters: Readonly<Record<string, Role>> = { s: "system", d: "developer", u: "user", a: "assistant", t: "tool" };

function conversation(roles: string): Message[] {
  return [...roles].map((letter, index) => {
    const role = letters[letter];
    assert.ok(role);
    return { role, blocks: [{ type: "text", text: `${index}` }] };
  });
}

/** Roles of a conversation, and the places of the messages that are new to a session with a history. */
const rows: [roles: string, places: string][] = [
  ["u", "0"],
  ["su", "1"],
  ["dsu", "2"],
  ["suau", "3"],
  ["suatu", "34"],
  ["suatt", "34"],
  ["suasu", "4"],
  ["suaduu", "45"],
  ["sua", ""],
  ["s", ""],
  ["suas", ""],
];

describe("of a conversation that comes whole, a session takes what it does not know", () => {
  for (const [roles, places] of rows)
    test(`${roles} to one with a history: ${places || "nothing"}`, () =>
      assert.equal(newMessages(true, conversation(roles)).map(textOf).join(""), places));
  for (const [roles] of rows)
    test(`${roles} to an empty one: everything`, () =>
      assert.deepEqual(newMessages(false, conversation(roles)), conversation(roles)));
});

function textOf({ blocks: [block] }: Message): string {
  return block?.type === "text" ? block.text : "";
}
