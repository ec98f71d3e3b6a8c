import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { shortLine } from "../../src/session/short-line.ts";

describe("a title shows what is asked for, and nothing else", () => {
  const rows: [what: string, text: string, shown: string][] = [
    ["as it is", "run_command ls -l", "run_command ls -l"],
    ["in one line", "  a\r\n\tb  \n\n c ", "a b c"],
    ["many empty lines hide nothing", `ls${"\n".repeat(500)}; rm -rf x`, "ls ; rm -rf x"],
    ["colours and cursor movements", "ls \u001b[2K\u001b[1A", "ls ␛[2K␛[1A"],
    ["going back", "rm x\u0008\u0008\u0008\u0008ls", "rm x␈␈␈␈ls"],
    ["a carriage return alone", "rm -rf x\rls", "rm -rf x ls"],
    ["characters in another order", "cat \u202egpj.x\u202c", "cat \ufffdgpj.x\ufffd"],
    ["isolates", "a\u2066b\u2069", "a\ufffdb\ufffd"],
    ["what takes no room", "r\u200bm", "r\ufffdm"],
    ["half a character", "a\ud800b", "a\ufffdb"],
    ["long", "x".repeat(300), `${"x".repeat(200)} … (100 more characters)`],
    ["cut within a character", `${"x".repeat(199)}😀y`, `${"x".repeat(199)}\ufffd … (2 more characters)`],
  ];
  for (const [what, text, shown] of rows) test(what, () => assert.equal(shortLine(text), shown));
});
