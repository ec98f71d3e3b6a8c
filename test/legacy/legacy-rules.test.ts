import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { legacyRuleFor, type RuleList, rulesFromLegacy } from "../../src/rpc/legacy/legacy-rules.ts";

const known = ["run_command", "read_file", "write_file", "edit_file", "apply_patch", "mcp__GitHub__list_issues"];

describe("rules of the earlier service are read as ours", () => {
  const rows: readonly [text: string, list: RuleList, ours: readonly string[]][] = [
    ["Bash", "allow", ["allow run_command"]],
    ["bASH(git status:*)", "allow", ["allow run_command(git status:*)"]],
    ["Bash(npm test)", "allow", ["allow run_command(npm test)"]],
    ["Bash(**)", "allow", ["allow run_command"]],
    ["Bash(cargo **)", "allow", ["allow run_command(cargo:*)"]],
    // A * stops at a slash: ours would allow more.
    ["Bash(cargo *)", "allow", []],
    ["Bash(*)", "allow", []],
    ["Bash(git * --force)", "allow", []],
    ["Bash(rm *)", "deny", ["deny run_command(rm:*)"]],
    ["Bash(*)", "deny", ["deny run_command"]],
    ["Bash(rm -rf*)", "deny", ["deny run_command(rm -rf:*)", "ask run_command(rm:*)"]],
    ["Bash(git push * --force)", "deny", ["ask run_command(git push:*)"]],
    ["Bash(*sudo*)", "deny", ["ask run_command"]],
    ["Bash(sudo *)", "ask", ["ask run_command(sudo:*)"]],
    ["Read(src/**)", "allow", ["allow read_file(src/**)"]],
    ["Read(src:*)", "deny", ["deny read_file(src*)", "deny read_file(src*/**/*)"]],
    ["Write(*.rs)", "allow", ["allow write_file(./*.rs)"]],
    ["Write(*.rs)", "deny", ["deny write_file(*.rs)"]],
    ["Read(**.env)", "deny", ["deny read_file(*.env)", "deny read_file(*/**/*.env)"]],
    ["Read(app/[id]/a)", "allow", ["allow read_file(app/\\[id\\]/a)"]],
    ["Read(app/[id]/a)", "deny", ["deny read_file(app/[id]/a)", "deny read_file(app/\\[id\\]/a)"]],
    ["Edit", "allow", ["allow edit_file"]],
    ["Edit", "deny", ["deny edit_file", "deny apply_patch"]],
    ["edit_file", "deny", ["deny edit_file"]],
    ["WebFetch(domain:example.com)", "allow", ["allow fetch_url(domain:example.com)"]],
    ["web_fetch(https://example.com/a*)", "deny", ["deny fetch_url(https://example.com/a:*)"]],
    ["WebFetch(https://example.com/a*)", "allow", []],
    ["WebFetch(*.example.com)", "deny", ["ask fetch_url"]],
    ["MCP__github__List_Issues", "allow", ["allow mcp__GitHub__list_issues"]],
    ["mcp__other", "deny", ["deny mcp__other"]],
    ["mcp__other__get(x*)", "deny", ["deny mcp__other__get(x*)", "ask mcp__other__get"]],
    ["mcp__other__get(x*)", "allow", ["allow mcp__other__get(x*)"]],
    ["Unheard", "ask", ["ask Unheard"]],
  ];
  for (const [text, list, ours] of rows)
    test(`${list} ${text}`, () => {
      const reading = rulesFromLegacy(text, list, known);
      assert.ok("rules" in reading, JSON.stringify(reading));
      assert.deepEqual(
        reading.rules.map((each) => `${each.list} ${each.rule}`),
        ours,
      );
    });

  for (const text of [
    "",
    "two words",
    "Bash()",
    "Bash(",
    "Read(../x)",
    "Read(~/x)",
    "Bash($(x))",
    "WebFetch(x y)",
    "Read(\ud800)",
  ])
    test(`${JSON.stringify(text)} is refused`, () => {
      const reading = rulesFromLegacy(text, "deny", known);
      assert.ok("fault" in reading, JSON.stringify(reading));
      assert.match(reading.fault, /^(?:is|has|does|names|begins) /);
    });

  test("ours are shown in their words", () => {
    assert.deepEqual(["run_command(git:*)", "read_file", "mcp__x__y", "skill:one"].map(legacyRuleFor), [
      "Bash(git:*)",
      "Read",
      "mcp__x__y",
      "skill:one",
    ]);
  });
});
