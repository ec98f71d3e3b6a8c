import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { hidingSecrets, secretsOfHeaders } from "../../src/provider/credentials.ts";

describe("which of an operator's own headers are secret", () => {
  const long = "0123456789abcdef";
  const cases: readonly [name: string, value: string, isSecret: boolean][] = [
    ["X-Team", "blue", false],
    ["X-Title", "my-company-app", false],
    ["X-Account", long, true],
    ["X-Api-Key", "12345678", true],
    ["Cookie", "a=123456", true],
    ["X-Auth", "1234567", false],
    ["Content-Type", "application/json", false],
    ["User-Agent", "our-company/2026.1", false],
    ["anthropic-beta", "context-1m-2025-08-07", false],
  ];
  for (const [name, value, isSecret] of cases) {
    test(`${name}: ${value}`, () => assert.deepEqual(secretsOfHeaders({ [name]: value }), isSecret ? [value] : []));
  }
});

describe("hiding secrets", () => {
  const long = "sk-0123456789abcdef";
  const cases: readonly { name: string; secrets: readonly string[]; text: string; shown: string }[] = [
    { name: "short ones stay", secrets: ["read", "HTTP"], text: "read_file: HTTP 503", shown: "read_file: HTTP 503" },
    {
      name: "a word stays where it is a part of one",
      secrets: ["password"],
      text: "passwords, my_password, password!",
      shown: "passwords, my_password, ***!",
    },
    {
      name: "after an escape a word begins",
      secrets: ["hunter22"],
      text: '"\\nhunter22" "\\u00e4hunter22" user%3Ahunter22',
      shown: '"\\n***" "\\u00e4***" user%3A***',
    },
    { name: "a long one goes wherever it is", secrets: [long], text: `x${long}y`, shown: "x***y" },
    {
      name: "the longest is taken first",
      secrets: ["key-1111", "key-1111-and-2222"],
      text: "key-1111-and-2222 key-1111",
      shown: "*** ***",
    },
    { name: "signs mean themselves", secrets: ["a.c$(b)+d"], text: "a.c$(b)+d abc$(b)+d", shown: "*** abc$(b)+d" },
    { name: "none", secrets: [], text: "as it is", shown: "as it is" },
  ];
  for (const { name, secrets, text, shown } of cases) {
    test(name, () => assert.equal(hidingSecrets(secrets, "***")(text), shown));
  }
});
