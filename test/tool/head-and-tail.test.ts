import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { HeadAndTail } from "../../src/tool/head-and-tail.ts";

function pieces(text: string, size: number): Buffer[] {
  const characters = [...text];
  return Array.from({ length: Math.ceil(characters.length / size) }, (_, index) =>
    Buffer.from(characters.slice(index * size, (index + 1) * size).join("")),
  );
}

describe("the head and the tail of a text", () => {
  for (const size of [1, 7, 4096, 1_000_000]) {
    test(`in pieces of ${size} characters: a short one is whole`, () => {
      const kept = new HeadAndTail(1000);
      const text = "äöü€😀\n".repeat(60);
      for (const piece of pieces(text, size)) kept.add(piece);
      assert.equal(kept.text(), text);
      assert.equal(kept.cutBytes, 0);
    });

    test(`in pieces of ${size} characters: of a long one both ends are kept, and what is missing is counted`, () => {
      const limit = 1000;
      for (const character of ["a", "ä", "€", "😀"]) {
        const kept = new HeadAndTail(limit);
        const text = `BEGIN${character.repeat(5000)}END`;
        let shown = "";
        for (const piece of pieces(text, size)) shown += kept.add(piece);
        const result = kept.text();
        const [head = "", missing = "", tail = ""] = result.split(/\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n/);
        assert.ok(Buffer.byteLength(result) <= limit, `${Buffer.byteLength(result)}`);
        assert.ok(Buffer.byteLength(head) > 690 && Buffer.byteLength(tail) > 225, `${head.length} ${tail.length}`);
        assert.ok(text.startsWith(head) && text.endsWith(tail) && !result.includes("\ufffd"));
        assert.equal(Number(missing), Buffer.byteLength(text) - Buffer.byteLength(head) - Buffer.byteLength(tail));
        assert.equal(kept.cutBytes, Number(missing));
        assert.equal(shown, head);
      }
    });
  }

  test("control characters take no more room than others", () => {
    const kept = new HeadAndTail(1000);
    for (let piece = 0; piece < 10; piece++) kept.add(Buffer.alloc(1000));
    const text = kept.text();
    assert.ok(Buffer.byteLength(text) <= 1000);
    const shown = text.split("␀").length - 1;
    assert.ok(shown > 300);
    assert.equal(kept.cutBytes, 10_000 - shown);
    assert.match(text, new RegExp(`\\[\\.\\.\\. ${10_000 - shown} bytes left out`));
  });

  test("control characters are seen, not obeyed", () => {
    const kept = new HeadAndTail(1000);
    kept.add(Buffer.from("a\u001b[2J\u0000"));
    assert.equal(kept.text(), "a␛[2J␀");
  });
});
