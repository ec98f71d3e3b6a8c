import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  decidePermission,
  grantFor,
  type PermissionDecision,
  type PermissionSubject,
  type RuleSource,
  resolveSubject,
  ruleFault,
  rulesOf,
  type ServerPermissions,
} from "../../src/tool/permission.ts";
import { temporaryWorkspace } from "./temporary-workspace.ts";

const noRules = { allow: [], ask: [], deny: [] };
const server = { ...noRules, mode: "ask", sandbox: "bwrap" } as const;
const readers = new Set(["read_file", "search_text", "list_files"]);

function subjectOf(workspace: string, name: string, given: Readonly<Record<string, unknown>>): PermissionSubject {
  const edits = ["write_file", "edit_file", "apply_patch"].includes(name);
  return { name, readOnly: readers.has(name), edits, arguments: given, workspace, contentSha256: "" };
}

describe("rules of several sources", () => {
  const call = subjectOf("/home/somebody/shop", "run_command", { command: "git push" });
  const rule = "run_command(git push:*)";
  const skill = { skill: "release", allow: [rule] };
  type Row = [name: string, Parameters<typeof rulesOf>, decision: PermissionDecision, source: RuleSource];
  const rows: Row[] = [
    ["none", [server, undefined], "ask", "mode"],
    ["the server's mode", [{ ...server, mode: "read-only" }, undefined], "deny", "mode"],
    [
      "the session's mode",
      [
        { ...server, mode: "read-only" },
        { ...noRules, mode: "bypass" },
      ],
      "allow",
      "mode",
    ],
    [
      "the server allows",
      [
        { ...server, allow: [rule] },
        { ...noRules, mode: "ask" },
      ],
      "allow",
      "server",
    ],
    ["the session allows", [server, { ...noRules, mode: "ask", allow: [rule] }], "allow", "session"],
    ["a skill allows", [server, { ...noRules, mode: "ask" }, [skill]], "allow", "skill"],
    ["a skill allows in read-only", [{ ...server, mode: "read-only" }, undefined, [skill]], "allow", "skill"],
    [
      "the server denies what a session allows",
      [{ ...server, deny: [rule] }, { ...noRules, mode: "bypass", allow: [rule] }, [skill]],
      "deny",
      "server",
    ],
    [
      "the server asks for what a session allows",
      [{ ...server, ask: [rule] }, { ...noRules, mode: "bypass", allow: [rule] }, [skill]],
      "ask",
      "server",
    ],
    [
      "the session denies what the server allows",
      [
        { ...server, allow: [rule] },
        { ...noRules, mode: "ask", deny: [rule] },
      ],
      "deny",
      "session",
    ],
    [
      "the session denies what a skill allows",
      [server, { ...noRules, mode: "ask", deny: [rule] }, [skill]],
      "deny",
      "session",
    ],
    [
      "the session asks for what a skill allows",
      [server, { ...noRules, mode: "ask", ask: [rule] }, [skill]],
      "ask",
      "session",
    ],
  ];
  for (const [name, given, decision, source] of rows) {
    test(name, () => {
      const finding = decidePermission(rulesOf(...given), [], call);
      assert.deepEqual([finding.decision, finding.ruleSource], [decision, source]);
    });
  }

  test("an answer for the session gets around no rule that denies, and is for the same bytes", () => {
    const grant = grantFor({ ...call, contentSha256: "aa" });
    const decide = (given: Partial<ServerPermissions>, contentSha256: string) =>
      decidePermission(rulesOf({ ...server, ...given }, undefined), [grant], { ...call, contentSha256 });
    assert.deepEqual([decide({}, "aa").decision, decide({}, "aa").ruleSource], ["allow", "answer"]);
    assert.equal(decide({}, "bb").decision, "ask");
    assert.equal(decide({ deny: [rule] }, "aa").decision, "deny");
  });
});

describe("names of functions", () => {
  const rows: [rule: string, name: string, source: string, matches: boolean][] = [
    ["mcp__github", "mcp__github__create_issue", "mcp:github", true],
    ["mcp__github", "mcp__github2__create_issue", "mcp:github2", false],
    ["mcp__github", "mcp__github_enterprise__x", "mcp:github_enterprise", false],
    ["mcp__github", "mcp_long_name_1a2b3c4d", "mcp:github", true],
    ["mcp__github__*", "mcp__github__create_issue", "mcp:github", true],
    ["mcp__github__*", "mcp__gitlab__create_issue", "mcp:gitlab", false],
    ["mcp__*", "mcp__gitlab__create_issue", "mcp:gitlab", true],
    ["mcp__github__get_*", "mcp__github__get_issue", "mcp:github", true],
    ["mcp__github__get_*", "mcp__github__delete_issue", "mcp:github", false],
    ["mcp__github__create_issue", "mcp__github__create_issue", "mcp:github", true],
    ["mcp__github__create", "mcp__github__create_issue", "mcp:github", false],
    ["skill:*", "deploy", "skill:release", true],
    ["skill:release", "deploy", "skill:release", true],
    ["skill:other", "deploy", "skill:release", false],
    ["http:*", "deploy", "skill:release", false],
    ["*", "deploy", "skill:release", true],
    ["dep*", "deploy", "local", true],
    ["Deploy", "deploy", "local", false],
    ["a.c", "abc", "local", false],
  ];
  for (const [rule, name, source, matches] of rows) {
    test(`${rule} and ${name} of ${source}`, () => {
      assert.equal(ruleFault(rule), undefined);
      const call = { ...subjectOf("/w", name, {}), source };
      const rules = rulesOf({ ...server, mode: "bypass", deny: [rule] }, undefined);
      assert.equal(decidePermission(rules, [], call).decision, matches ? "deny" : "allow");
    });
  }
});

describe("paths count where they lead", () => {
  const entries = {
    "src/a.ts": "a",
    "secrets/key": "k",
    "src/link": { link: "../secrets" },
    "src/key.ts": { link: "../secrets/key" },
    "src/out": { link: "../../out" },
    "src/loop": { link: "loop" },
    "src/dangling.ts": { link: "../secrets/new" },
    "deep/in/here/x": "x",
    up: { link: "deep/in/here" },
    hooks: { link: ".git/hooks" },
    ".git/config": "c",
    ".git/hooks/x": "x",
    "vendor/lib/.git/config": "c",
  } as const;
  type Row = [rule: string, name: string, path: string, allows: boolean, denies: boolean];
  const rows: Row[] = [
    ["read_file(src/**)", "read_file", "src/a.ts", true, true],
    ["read_file(src/**)", "read_file", "src/new/deep/a.ts", true, true],
    ["read_file(src/**)", "read_file", "src/link/key", false, true],
    ["read_file(src/**)", "read_file", "src/key.ts", false, true],
    ["read_file(src/**)", "read_file", "src/out/secret.txt", false, true],
    ["read_file(src/**)", "read_file", "src/dangling.ts", false, true],
    ["read_file(src/**)", "read_file", "src/loop", true, true],
    ["read_file(secrets/**)", "read_file", "src/link/key", true, true],
    ["read_file(secrets/**)", "read_file", "src/key.ts", true, true],
    ["read_file(secrets/**)", "read_file", "src/link/new", true, true],
    ["read_file(secrets/**)", "read_file", "src/dangling.ts", true, true],
    ["read_file(secrets/**)", "read_file", "src/../secrets/key", false, true],
    ["read_file(secrets/**)", "read_file", "./src//link/./key", true, true],
    ["read_file(secrets/**)", "read_file", "SECRETS/key", false, true],
    ["read_file(deep/in/y)", "read_file", "up/../y", false, true],
    ["read_file(y)", "read_file", "up/../y", false, true],
    ["read_file(/etc/**)", "read_file", "/etc/passwd", true, true],
    ["read_file(/etc/**)", "read_file", "../../../../../../../../etc/passwd", false, true],
    ["read_file(/etc/**)", "read_file", "etc/passwd", false, false],
    ["read_file(**)", "read_file", "/etc/passwd", false, false],
    ["read_file(**)", "read_file", "src/a.ts", true, true],
    ["read_file(.env)", "search_text", ".env", false, true],
    ["read_file(.env)", "write_file", ".env", false, false],
    ["write_file(src/**)", "edit_file", "src/a.ts", false, true],
    ["edit_file(secrets/**)", "write_file", "src/link/key", false, true],
  ];
  for (const [rule, name, path, allows, denies] of rows) {
    test(`${rule} and ${name} ${path}`, async (context) => {
      const workspace = temporaryWorkspace(context, entries);
      const subject = await resolveSubject(subjectOf(workspace, name, { path }));
      const mode = "read-only";
      const allowed = decidePermission(rulesOf({ ...server, mode, allow: [rule] }, undefined), [], {
        ...subject,
        readOnly: false,
      });
      assert.equal(allowed.decision, allows ? "allow" : "deny");
      const denied = decidePermission(rulesOf({ ...server, mode: "bypass", deny: [rule] }, undefined), [], subject);
      assert.equal(denied.decision, denies ? "deny" : "allow");
    });
  }

  const guarded = [
    [".git/config", "write_file"],
    [".git/hooks/pre-commit", "write_file"],
    ["./src/../.git/config", "edit_file"],
    ["hooks/pre-commit", "write_file"],
    ["vendor/lib/.git/config", "edit_file"],
    [".GIT/config", "write_file"],
    [".codeagent/skills/x/SKILL.md", "write_file"],
    [".mcp.json", "write_file"],
    ["codeagent.yaml", "edit_file"],
  ] as const;
  for (const [path, name] of guarded) {
    test(`${name} asks for ${path} whatever allows it`, async (context) => {
      const subject = await resolveSubject(subjectOf(temporaryWorkspace(context, entries), name, { path }));
      for (const given of [
        { mode: "accept-edits" },
        { mode: "bypass" },
        { allow: [name, "write_file(**)"] },
      ] as const) {
        const rules = rulesOf({ ...server, ...given }, undefined);
        const finding = decidePermission(rules, [grantFor(subject)], subject);
        assert.deepEqual([finding.decision, finding.ruleSource, finding.grantable], ["ask", "built_in", false]);
      }
      const denied = decidePermission(rulesOf({ ...server, deny: [name] }, undefined), [], subject);
      assert.equal(denied.decision, "deny");
      const read = await resolveSubject({ ...subject, name: "read_file", edits: false, readOnly: true });
      assert.equal(decidePermission(rulesOf(server, undefined), [], read).decision, "allow");
    });
  }

  test("each file of a patch counts for itself", async (context) => {
    const workspace = temporaryWorkspace(context, entries);
    const patch = (...files: readonly string[]) =>
      ["*** Begin Patch", ...files.flatMap((file) => [`*** Add File: ${file}`, "+x"]), "*** End Patch"].join("\n");
    const decide = async (given: Partial<ServerPermissions>, ...files: readonly string[]) => {
      const subject = await resolveSubject(subjectOf(workspace, "apply_patch", { patch: patch(...files) }));
      return decidePermission(rulesOf({ ...server, ...given }, undefined), [], subject);
    };
    const accepting = { mode: "accept-edits" } as const;
    assert.equal((await decide(accepting, "src/b.ts", "src/c.ts")).decision, "allow");
    const hook = await decide(accepting, "src/b.ts", "hooks/pre-commit");
    assert.deepEqual([hook.decision, hook.ruleSource, hook.parts.length], ["ask", "built_in", 2]);
    assert.equal((await decide({ deny: ["write_file(secrets/**)"] }, "src/b.ts", "src/link/key")).decision, "deny");
  });

  test("a redirection through a link counts where it leads", async (context) => {
    const workspace = temporaryWorkspace(context, entries);
    const decide = async (command: string) => {
      const call = { ...subjectOf(workspace, "run_command", { command }), runsProgram: true };
      const session = { ...noRules, mode: "accept-edits", allow: ["run_command(echo:*)"] } as const;
      return decidePermission(rulesOf(server, session), [], await resolveSubject(call)).decision;
    };
    assert.equal(await decide("echo a > src/b.ts"), "allow");
    assert.equal(await decide("echo a > src/out/b.ts"), "ask");
    assert.equal(await decide("echo a > hooks/b"), "ask");
  });
});

describe("URLs", () => {
  const rows: [pattern: string, url: string, allows: boolean, denies: boolean][] = [
    ["https://example.com/:*", "https://example.com/", true, true],
    ["https://example.com/:*", "https://example.com/a/b?c#d", true, true],
    ["https://example.com/:*", "https://EXAMPLE.com:443/a", true, true],
    ["https://example.com/:*", "https://example.com./a", true, true],
    ["https://example.com/:*", "https://example.com.evil.org/", false, false],
    ["https://example.com/:*", "https://example.com@evil.org/", false, false],
    ["https://example.com/:*", "https://user:secret@example.com/", false, true],
    ["https://example.com/:*", "http://example.com/", false, true],
    ["https://example.com/:*", "https://example.com:8443/", false, true],
    ["https://example.com:8443/:*", "https://example.com/", false, false],
    ["https://example.com/:*", "https://sub.example.com/", false, false],
    ["https://example.com/:*", "https:\\\\example.com\\a", true, true],
    ["https://example.com/:*", "https://evil.org\\@example.com/", false, false],
    ["https://example.com/:*", "https://ex\u00adample.com/", true, true],
    ["https://bücher.example/:*", "https://xn--bcher-kva.example/a", true, true],
    ["https://example.com/a:*", "https://example.com/a/b", true, true],
    ["https://example.com/a:*", "https://example.com/ab", false, false],
    ["https://example.com/a/:*", "https://example.com/a/../b", false, false],
    ["https://example.com/a/:*", "https://example.com/a/%2e%2e/b", false, false],
    ["https://example.com/a/:*", "https://example.com/a/..%2fb", false, true],
    ["https://example.com/b/:*", "https://example.com/a/..%2fb/c", false, true],
    ["https://example.com/a", "https://example.com/a", true, true],
    ["https://example.com/a", "https://example.com/a/b", false, false],
    ["https://example.com/a", "https://example.com/a?b", false, false],
    ["domain:example.com", "https://example.com/a", true, true],
    ["domain:example.com", "http://www.example.com:81/a", true, true],
    ["domain:example.com", "https://notexample.com/", false, false],
    ["domain:example.com", "https://example.com.evil.org/", false, false],
    ["domain:example.com", "https://evil.org/example.com", false, false],
    ["domain:example.com", "https://x:y@example.com/", false, true],
    ["http://127.0.0.1/:*", "http://2130706433/", true, true],
    ["http://127.0.0.1/:*", "http://0x7f.1/", true, true],
    ["https://example.com/:*", "no url at all", false, false],
  ];
  for (const [pattern, url, allows, denies] of rows) {
    test(`${pattern} and ${url}`, () => {
      const rule = `fetch_url(${pattern})`;
      assert.equal(ruleFault(rule), undefined);
      const call = { ...subjectOf("/w", "fetch_url", { url }), readOnly: false };
      const decide = (given: object) =>
        decidePermission(rulesOf({ ...server, ...given }, undefined), [], call).decision;
      assert.equal(decide({ allow: [rule] }), allows ? "allow" : "ask");
      assert.equal(decide({ mode: "bypass", deny: [rule] }), denies ? "deny" : "allow");
    });
  }
});

describe("rules that would not do what they say are refused", () => {
  const rows: [rule: string, why: RegExp][] = [
    ["run_command(git status; ls:*)", /plain words of one command/],
    ["run_command($x:*)", /plain words of one command/],
    ["run_command(ls > x:*)", /plain words of one command/],
    ["run_command(echo 'a)", /shell can read in full/],
    ["run_command(git * x)", /\* inside its pattern/],
    ["fetch_url(example.com)", /names no URL/],
    ["fetch_url(https://u:p@example.com/:*)", /user or password/],
    ["fetch_url(domain:a/b)", /names no domain/],
    ["read_file(../x)", /\.\. in its path/],
    ["write_file(a/../b)", /\.\. in its path/],
    ["read_file(~/x)", /begins with ~/],
  ];
  for (const [rule, why] of rows) test(rule, () => assert.match(ruleFault(rule) ?? "a good rule", why));

  for (const rule of [
    "run_command(A=b make test:*)",
    "run_command(a && b | c)",
    "mcp__x__*",
    "*",
    "read_file(/etc/**)",
  ])
    test(`${rule} is a rule`, () => assert.equal(ruleFault(rule), undefined));
});
