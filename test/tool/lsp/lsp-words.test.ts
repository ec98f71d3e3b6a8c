import assert from "node:assert/strict";
import { test } from "node:test";
import {
  diagnosticFrom,
  diagnosticsFromTsserver,
  hoverFrom,
  locationsFrom,
  severityWord,
  symbolsFrom,
  symbolWord,
} from "../../../src/tool/lsp/lsp-words.ts";

const range = { start: { line: 1, character: 2 }, end: { line: 3, character: 4 } };
const uri = "file:///a.ts";

test("words for kinds of symbols and for how bad it is", () => {
  assert.deepEqual([5, 22, 26, 99].map(symbolWord), ["class", "enum_member", "type_parameter", "unknown"]);
  assert.deepEqual([1, 2, 3, 4, undefined].map(severityWord), ["error", "warning", "information", "hint", "error"]);
});

test("hovers of all ages", () => {
  assert.deepEqual(hoverFrom({ contents: { kind: "markdown", value: "**x**" }, range }), { content: "**x**", range });
  assert.deepEqual(hoverFrom({ contents: ["", "one", { language: "ts", value: "let x" }] }), {
    content: "one\n\n```ts\nlet x\n```",
  });
  assert.equal(hoverFrom({ contents: " " }), undefined);
});

test("places as one, a list and links; what is none is passed over", () => {
  const link = {
    targetUri: uri,
    targetRange: { ...range, start: { line: 0, character: 0 } },
    targetSelectionRange: range,
  };
  assert.deepEqual(locationsFrom({ uri, range }), [{ uri, range }]);
  assert.deepEqual(locationsFrom([link, { uri, range: "no" }, null, 3]), [{ uri, range }]);
  assert.deepEqual(locationsFrom(null), []);
});

test("symbols with a place, with only a file, and what is none", () => {
  const symbols = [
    { name: "A", kind: 5, location: { uri, range }, containerName: "m" },
    { name: "b", kind: 12, location: { uri }, containerName: "" },
    { name: "c", kind: 12 },
    { kind: 12, location: { uri, range } },
  ];
  assert.deepEqual(symbolsFrom(symbols), [
    { name: "A", kind: "class", location: { uri, range }, containerName: "m" },
    { name: "b", kind: "function", location: { uri } },
  ]);
  assert.deepEqual(symbolsFrom({}), []);
});

test("findings, also as the TypeScript compiler tells them", () => {
  assert.deepEqual(diagnosticFrom(uri, { range, message: { kind: "markdown", value: "x" }, code: 7 }), {
    ...{ uri, range, severity: "error", message: "x", code: "7" },
  });
  const body = [
    { text: "t", code: 1, category: "suggestion", start: { line: 2, offset: 3 }, end: { line: 4, offset: 5 } },
    { text: "no place", code: 1, category: "error" },
  ];
  assert.deepEqual(diagnosticsFromTsserver(uri, { body }), [
    { uri, range, severity: "hint", message: "t", code: "1", source: "typescript" },
  ]);
  assert.deepEqual(diagnosticsFromTsserver(uri, undefined), []);
});
