import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { PermissionMode, PermissionPolicy } from "../../src/chat/session-config.ts";
import {
  decidePermission,
  grantFor,
  type PermissionDecision,
  type PermissionSubject,
  ruleFault,
  rulesOf,
  type SessionRules,
} from "../../src/tool/permission.ts";

const workspace = "/home/somebody/shop";
const readers = new Set(["read_file", "list_files", "search_text", "look"]);
const editors = new Set(["write_file", "edit_file"]);

function subject(name: string, given: Record<string, unknown> = {}): PermissionSubject {
  return {
    name,
    readOnly: readers.has(name),
    edits: editors.has(name),
    arguments: given,
    workspace,
    contentSha256: "",
  };
}

const noRules = { allow: [], ask: [], deny: [] };

function policy(given: Partial<PermissionPolicy> = {}): SessionRules {
  return rulesOf({ ...noRules, mode: "ask", sandbox: "bwrap" }, { ...noRules, mode: "ask", ...given });
}

const command = (text: string) => subject("run_command", { command: text });
const file = (path: string, name = "read_file") => subject(name, { path });
const link = (url: string) => subject("fetch_url", { url });

describe("the mode decides where no rule matches", () => {
  const rows: [PermissionMode, reads: PermissionDecision, edits: PermissionDecision, other: PermissionDecision][] = [
    ["ask", "allow", "ask", "ask"],
    ["read-only", "allow", "deny", "deny"],
    ["accept-edits", "allow", "allow", "ask"],
    ["bypass", "allow", "allow", "allow"],
  ];
  for (const [mode, reads, edits, other] of rows) {
    test(mode, () => {
      const decide = (name: string) => decidePermission(policy({ mode, allow: ["something_else"] }), [], subject(name));
      assert.deepEqual(
        ["look", "write_file", "change"].map((name) => decide(name).decision),
        [reads, edits, other],
      );
      assert.deepEqual([decide("change").rule, decide("change").ruleSource], ["", "mode"]);
    });
  }
});

describe("deny beats ask beats allow beats the mode", () => {
  const all = { deny: ["change"], ask: ["change"], allow: ["change"] };
  const rows: [name: string, Partial<PermissionPolicy>, PermissionDecision][] = [
    ["all three", all, "deny"],
    ["all three in bypass", { ...all, mode: "bypass" }, "deny"],
    ["ask and allow", { ask: all.ask, allow: all.allow }, "ask"],
    ["ask in bypass", { ask: all.ask, mode: "bypass" }, "ask"],
    ["allow in ask", { allow: all.allow }, "allow"],
    ["allow in read-only", { allow: all.allow, mode: "read-only" }, "allow"],
    ["another's rule", { deny: ["changes", "chang", "Change"] }, "ask"],
  ];
  for (const [name, given, decision] of rows) {
    test(name, () => assert.equal(decidePermission(policy(given), [], subject("change")).decision, decision));
  }

  test("a tool that only reads is asked for and denied by rules too", () => {
    assert.equal(decidePermission(policy({ ask: ["look"] }), [], subject("look")).decision, "ask");
    assert.equal(decidePermission(policy({ deny: ["look"] }), [], subject("look")).decision, "deny");
  });

  test("the finding names the rule", () => {
    const { rule, ruleSource, explanation } = decidePermission(policy(all), [], subject("change"));
    assert.deepEqual([rule, ruleSource, explanation], ["change", "session", "the rule change denies it"]);
  });
});

describe("patterns", () => {
  const rows: [rule: string, call: PermissionSubject, allows: boolean, denies: boolean][] = [
    ["read_file(src/**)", file("src/a.ts"), true, true],
    ["read_file(src/**)", file("./src//deep/a.ts"), true, true],
    ["read_file(src/**)", file(`${workspace}/src/a.ts`), true, true],
    ["read_file(src/**)", file("source/a.ts"), false, false],
    ["read_file(src/**)", file("src/../secrets/key"), false, false],
    ["read_file(secrets/**)", file("src/../secrets/key"), false, true],
    ["read_file(src/**)", file("/etc/passwd"), false, false],
    ["read_file(src/**)", file("src/a.ts", "write_file"), false, false],
    ["read_file(src)", file("src/a.ts"), true, true],
    ["read_file(*.md)", file("docs/README.md"), true, true],
    ["read_file(.env)", file(".env"), true, true],
    ["search_text(src/**)", subject("search_text", { pattern: "src/x" }), false, false],
    ["search_text(**)", subject("search_text", { pattern: "x" }), true, true],
    ["run_command(git status:*)", command("git status"), true, true],
    ["run_command(git status:*)", command("git status --short 'a b'"), true, true],
    ["run_command(git status:*)", command(" git status "), true, true],
    ["run_command(git status:*)", command("git statusx"), false, false],
    ["run_command(git status:*)", command("git -c x=y status"), false, true],
    ["run_command(git status:*)", command("git  status"), true, true],
    ["run_command(git status)", command("git status"), true, true],
    ["run_command(git status)", command("git status --short"), false, true],
    ["run_command(make && make test)", command("make && make test"), true, true],
    ...[";", "&&", "|", "\n", "&", "`x`", "$(x)", ">", "(x)"].map(
      (joint): [string, PermissionSubject, boolean, boolean] => [
        "run_command(cargo:*)",
        command(`cargo build ${joint} rm`),
        false,
        true,
      ],
    ),
    ["run_command(rm:*)", command("cd . && rm -rf x"), false, true],
    ["run_command(rm:*)", command("cd .;rm x"), false, true],
    ["run_command(rm:*)", command("/bin/rm x"), false, true],
    ["run_command(rm:*)", command("bash -c 'rm x'"), true, true],
    ["run_command(rm:*)", command("npm run rm-old"), false, false],
    ["run_command(rm:*)", command("farm x"), false, false],
    ["run_command(a.b:*)", command("a.b c"), true, true],
    ["run_command(a.b:*)", command("axb c"), false, false],
    ["run_command(ls:*)", subject("run_command", {}), false, false],
    ["fetch_url(https://docs.example.com:*)", link("https://docs.example.com/a?b"), true, true],
    ["fetch_url(https://docs.example.com:*)", link("https://docs.example.com.evil.org/"), false, false],
    ["fetch_url(https://docs.example.com:*)", link("https://docs.example.com@evil.org/"), false, false],
    ["fetch_url(https://docs.example.com/:*)", link("HTTPS://DOCS.example.com/a"), true, true],
    ["fetch_url(https://docs.example.com)", link("https://docs.example.com/"), true, true],
    ["deploy(prod/**)", subject("deploy", { path: "prod/x" }), true, true],
    ["deploy(prod/**)", subject("deploy", { target: "prod/x" }), false, false],
  ];
  for (const [rule, call, allows, denies] of rows) {
    test(`${rule} ${JSON.stringify(call.arguments)}`, () => {
      assert.equal(ruleFault(rule), undefined);
      const allowed = decidePermission(policy({ mode: "read-only", allow: [rule] }), [], { ...call, readOnly: false });
      assert.equal(allowed.decision, allows ? "allow" : "deny");
      const denied = decidePermission(policy({ mode: "bypass", deny: [rule] }), [], call);
      assert.equal(denied.decision, denies ? "deny" : "allow");
    });
  }
});

describe("a text that is no rule is refused", () => {
  const rows: [text: string, why: RegExp][] = [
    ["", /no rule/],
    ["run_command(", /no rule/],
    ["run_command)", /no rule/],
    ["run command", /no rule/],
    ["(x)", /no rule/],
    ["run_command()", /empty pattern/],
    ["read_file( )", /empty pattern/],
    ["run_command(:*)", /empty pattern/],
    ["run_command(git * push)", /only :\* at its end/],
    ["run_command(*)", /only :\* at its end/],
    ["fetch_url(https://*.example.com:*)", /only :\* at its end/],
    ["read_file(*".padEnd(1001, "x"), /1001 characters/],
  ];
  for (const [text, why] of rows) test(text.slice(0, 40), () => assert.match(ruleFault(text) ?? "a good rule", why));

  for (const text of ["change", "mcp:github/create-issue", "skill.run(a(b)c)", "read_file(src/**/*.{ts,js})"]) {
    test(`${text} is a rule`, () => assert.equal(ruleFault(text), undefined));
  }
});

describe("what was allowed for the session", () => {
  const rows: [name: string, allowed: PermissionSubject, now: PermissionSubject, same: boolean][] = [
    ["the same command", command("make"), command("make"), true],
    [
      "the same command with another time limit",
      command("make"),
      subject("run_command", { command: "make", timeout_ms: 5 }),
      true,
    ],
    ["another command", command("make"), command("make install"), false],
    [
      "the same file with other content",
      subject("write_file", { path: "a", content: "1" }),
      subject("write_file", { path: "a", content: "2" }),
      true,
    ],
    ["another file", file("a", "write_file"), file("b", "write_file"), false],
    ["another tool", file("a", "write_file"), file("a", "edit_file"), false],
    ["keys in another order", subject("change", { a: 1, b: 2 }), subject("change", { b: 2, a: 1 }), true],
    [
      "another argument of a tool nobody knows",
      subject("change", { path: "a" }),
      subject("change", { path: "a", force: true }),
      false,
    ],
  ];
  for (const [name, allowed, now, same] of rows) {
    test(name, () => {
      const decide = (given: Partial<PermissionPolicy>) => decidePermission(policy(given), [grantFor(allowed)], now);
      assert.equal(decide({}).decision, same ? "allow" : "ask");
      assert.equal(decide({}).ruleSource, same ? "answer" : "mode");
      assert.equal(decide({ ask: [now.name] }).decision, same ? "allow" : "ask");
      assert.equal(decide({ deny: [now.name] }).decision, "deny", "a rule that denies beats it");
      assert.equal(decide({ mode: "read-only" }).decision, "deny", "so does the mode");
    });
  }
});

test("what comes with the workspace is asked for whatever rules allow, until somebody allows it", () => {
  const call: PermissionSubject = {
    ...subject("find_ticket"),
    ...{ source: "skill:theirs", runsProgram: true, ofWorkspace: true, contentSha256: "a" },
  };
  const allow = ["find_ticket", "*", "skill:theirs"];
  for (const mode of ["ask", "accept-edits"] as const) {
    assert.equal(decidePermission(policy({ mode, allow }), [], call).decision, "ask");
    assert.equal(decidePermission(policy({ mode, allow }), [grantFor(call)], call).decision, "allow");
    const changed = { ...call, contentSha256: "b" };
    assert.equal(decidePermission(policy({ mode, allow }), [grantFor(call)], changed).decision, "ask");
  }
  assert.equal(decidePermission(policy({ mode: "read-only", allow }), [], call).decision, "deny");
  assert.equal(decidePermission(policy({ mode: "bypass", deny: ["find_*"] }), [], call).decision, "deny");
  assert.equal(decidePermission(policy({ allow }), [], { ...call, ofWorkspace: false }).decision, "allow");
});
