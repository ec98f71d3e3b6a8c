import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Redactor, takeSecrets } from "../../src/cli/secrets.ts";
import { createPage, oneLine } from "../../src/cli/terminal.ts";

describe("secrets of the environment", () => {
  test("are kept for those who need them, removed from the original, and hidden in texts", () => {
    const environment: NodeJS.ProcessEnv = {
      PATH: "/usr/bin",
      OPENAI_API_KEY: "sk-one",
      GITHUB_TOKEN: "ghp-two",
      AWS_SECRET_ACCESS_KEY: "three/3",
      FORWARD_BASE_URL: "https://user:pass%20word@host/v1",
      ANTHROPIC_BASE_URL: "https://host/v1",
      MONKEY: "banana",
    };
    const { env, redactor } = takeSecrets(environment);
    assert.deepEqual(Object.keys(environment), ["PATH", "ANTHROPIC_BASE_URL", "MONKEY"]);
    assert.equal(env["OPENAI_API_KEY"], "sk-one");
    assert.equal(env["FORWARD_BASE_URL"], "https://user:pass%20word@host/v1");
    assert.equal(
      redactor.redact("sk-one ghp-two three/3 three%2F3 pass%20word pass word banana"),
      "[hidden] [hidden] [hidden] [hidden] [hidden] [hidden] banana",
    );
  });

  const cases: readonly { name: string; secrets: string[]; text: string; safe: string }[] = [
    { name: "inside JSON", secrets: ['a"b\\c'], text: JSON.stringify({ key: 'a"b\\c' }), safe: '{"key":"[hidden]"}' },
    { name: "that contain each other", secrets: ["abcd", "abcdef"], text: "abcdef abcd", safe: "[hidden] [hidden]" },
    { name: "with blanks around", secrets: [" abcd\n"], text: "abcd", safe: "[hidden]" },
    { name: "too short to be told from chance", secrets: ["abc", ""], text: "abc", safe: "abc" },
    { name: "that look like a pattern", secrets: ["a.c$&"], text: "abc$& a.c$&", safe: "abc$& [hidden]" },
  ];
  for (const { name, secrets, text, safe } of cases) {
    test(name, () => {
      const redactor = new Redactor();
      for (const secret of secrets) redactor.hide(secret);
      assert.equal(redactor.redact(text), safe);
    });
  }
});

describe("a page", () => {
  test("begins a line once, and shows what would steer a terminal", () => {
    let written = "";
    const page = createPage((text) => {
      written += text;
    });
    page.endLine();
    page.write("a\r\nb\tc\u001b[2J\u202e");
    page.endLine();
    page.endLine();
    page.write("d\r");
    assert.equal(written, "a\nb\tc\ufffd[2J\ufffd\nd\ufffd");
  });

  for (const [text, most, line] of [
    ["  a\n b ", 10, "a b"],
    ["abcdef", 6, "abcdef"],
    ["abcdefg", 6, "abcde…"],
    ["abcd😀fg", 6, "abcd…"],
  ] as const) {
    test(`puts ${JSON.stringify(text)} on a line of ${most}`, () => assert.equal(oneLine(text, most), line));
  }
});
