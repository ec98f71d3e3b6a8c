import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { BlockOrigin, ContentBlock, Message } from "../../src/chat/message.ts";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";

const author = { provider: "ours", model: "m-1" };
const raw = (text: string) => Buffer.from(text);

interface Family {
  readonly dialect: DialectId;
  readonly quirks?: Partial<Quirks>;
  /** What its author writes, with a text in it that only the author may be sent. */
  readonly blocks: readonly ((origin: BlockOrigin) => ContentBlock)[];
}

const families: readonly Family[] = [
  {
    dialect: "openai-chat",
    quirks: { thinkingReplay: "all" },
    blocks: [
      (origin) => ({ type: "thinking", thinking: "secret", ...origin }),
      (origin) => ({ type: "thinking", thinking: "", signature: "secret", ...origin }),
      (origin) => ({
        type: "thinking",
        thinking: "",
        ...origin,
        raw: raw('[{"type":"reasoning.text","text":"secret"}]'),
      }),
      (origin) => ({ type: "redacted_thinking", data: "", ...origin, raw: raw('[{"data":"secret"}]') }),
    ],
  },
  {
    dialect: "openai-responses",
    blocks: [(origin) => ({ type: "reasoning", content: "", summary: [], encrypted: "secret", ...origin })],
  },
  {
    dialect: "anthropic-messages",
    blocks: [
      (origin) => ({ type: "thinking", thinking: "Hm", signature: "secret", ...origin }),
      (origin) => ({ type: "redacted_thinking", data: "secret", ...origin }),
    ],
  },
];

/** Blocks without a name here are for every model of their provider. */
const unknowns: readonly Family[] = [
  {
    dialect: "openai-responses",
    blocks: [(origin) => ({ type: "unknown", unknownType: "x", ...origin, raw: raw('{"type":"x","of":"secret"}') })],
  },
  {
    dialect: "anthropic-messages",
    blocks: [(origin) => ({ type: "unknown", unknownType: "x", ...origin, raw: raw('{"type":"x","of":"secret"}') })],
  },
];

function encoded(family: Family, message: Message, reader: typeof author): string {
  const user: Message = { role: "user", blocks: [{ type: "text", text: "Go" }] };
  const request = { model: reader.model, messages: [user, message, user], tools: [], options: {} };
  return dialects[family.dialect].encode(request, quirksOf(family), reader.provider);
}

const quirks = new Map<Family, Quirks>();

/** The same object each time, as for the models of a provider that are alike: what was written is kept by it. */
function quirksOf(family: Family): Quirks {
  const known = quirks.get(family) ?? { ...defaultQuirks, ...family.quirks };
  quirks.set(family, known);
  return known;
}

function said(block: ContentBlock): Message {
  return { role: "assistant", blocks: [block, { type: "text", text: "So" }] };
}

for (const family of families) {
  const { dialect, blocks } = family;
  describe(`thinking over ${dialect}`, () => {
    for (const [place, block] of blocks.entries()) {
      const name = `${block({}).type} ${place + 1}`;
      const message = said(block({ ...author, dialect }));

      test(`${name} goes to its author only, and again after a change of the model`, () => {
        const before = encoded(family, message, author);
        assert.ok(before.includes("secret"));
        assert.equal(dialects[dialect].withholds(message, author), false);
        for (const other of [
          { ...author, provider: "other" },
          { ...author, model: "m-2" },
        ]) {
          assert.ok(!encoded(family, message, other).includes("secret"), `not to ${JSON.stringify(other)}`);
          assert.equal(dialects[dialect].withholds(message, other), true);
        }
        assert.equal(encoded(family, message, author), before);
      });

      test(`${name} of another wire family stays here, and without an origin it goes`, () => {
        const foreign = said(block({ ...author, dialect: "another" }));
        assert.ok(!encoded(family, foreign, author).includes("secret"));
        assert.equal(dialects[dialect].withholds(foreign, author), true);
        const nobodys = said(block({}));
        assert.ok(encoded(family, nobodys, author).includes("secret"));
        assert.equal(dialects[dialect].withholds(nobodys, author), false);
      });
    }

    test("what its author wrote over other families is withheld here, and no other family takes this", () => {
      for (const other of families) {
        if (other.dialect === dialect) continue;
        for (const block of blocks) {
          const message = said(block({ ...author, dialect }));
          assert.ok(!encoded(other, message, author).includes("secret"));
          assert.equal(dialects[other.dialect].withholds(message, author), true);
        }
      }
    });

    test("texts, calls and results are everybody's", () => {
      const message: Message = {
        role: "assistant",
        blocks: [
          { type: "text", text: "Hi" },
          { type: "tool_use", id: "a", name: "look", input: "{}" },
          { type: "tool_result", toolUseId: "a", content: "x" },
          { type: "image", url: "https://example.org/a.png" },
          { type: "file", fileId: "f" },
          { type: "audio", data: "eA==", format: "wav" },
        ],
      };
      assert.equal(dialects[dialect].withholds(message, { provider: "other", model: "m-9" }), false);
    });
  });
}

for (const family of unknowns) {
  test(`a block without a name here, over ${family.dialect}, goes to every model of its provider`, () => {
    for (const block of family.blocks) {
      const message = said(block({ ...author, dialect: family.dialect }));
      for (const [reader, goes] of [
        [author, true],
        [{ ...author, model: "m-2" }, true],
        [{ ...author, provider: "other" }, false],
      ] as const) {
        assert.equal(encoded(family, message, reader).includes("secret"), goes);
        assert.equal(dialects[family.dialect].withholds(message, reader), !goes);
      }
      assert.equal(dialects["openai-chat"].withholds(message, author), true);
    }
  });
}

test("thinking that only the policy leaves out is not withheld", () => {
  const { withholds } = dialects["openai-chat"];
  const message = said({ type: "thinking", thinking: "Hm", ...author, dialect: "openai-chat" });
  assert.ok(!encoded({ dialect: "openai-chat", blocks: [] }, message, author).includes("Hm"));
  assert.equal(withholds(message, author), false);
});
