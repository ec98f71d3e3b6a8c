// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are for a shell.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { decidePermission, type PermissionSubject, rulesOf } from "../../../src/tool/permission.ts";
import { everyCommand, filesRunBy, readCommandLine } from "../../../src/tool/shell/command-line.ts";
import { parseShell } from "../../../src/tool/shell/parse-shell.ts";

const seed = 20_261_122;

/** Runs a script with the bash of this machine, in an empty folder and without any program to be found. */
function runBash(script: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-shell-"));
  try {
    const file = join(folder, "script");
    writeFileSync(file, `PATH=/nonexistent\n${script}`);
    const work = mkdtempSync(join(folder, "work-"));
    const { stdout, error } = spawnSync("bash", [file], {
      cwd: work,
      env: { PATH: process.env["PATH"], LC_ALL: "C.UTF-8" },
      timeout: 30_000,
      maxBuffer: 64 * 1024 * 1024,
    });
    if (error !== undefined) throw error;
    return stdout;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function pick<Item>(items: readonly Item[]): fc.Arbitrary<Item> {
  return fc.constantFrom(...items);
}

test("words are what bash makes of them, where they are called literal", () => {
  const piece = pick([
    ..."ab-=/.,:@%+_#!~{}[]^* é$",
    "\\ ",
    "\\$",
    "\\\\",
    "\\n",
    "\\\n",
    "'a b'",
    "'$x'",
    "'\\'",
    '"a b"',
    '"\\$x"',
    '"\\\\"',
    '"\\a"',
    '"\'"',
    "$'a\\tb'",
    "$'\\x41\\'\\u00e9'",
    "$'\\101'",
    '""',
    "''",
    "{a,b}",
    "{}",
  ]);
  const word = fc.array(piece, { minLength: 1, maxLength: 6 }).map((pieces) => pieces.join(""));
  const lines = fc.sample(
    fc.array(word, { minLength: 1, maxLength: 4 }).map((words) => words.join(" ")),
    { numRuns: 600, seed },
  );
  const script = ['show() { printf \'%s\\0\' "$#" "$@"; }'];
  const expected: string[] = [];
  let literal = 0;
  for (const line of lines) {
    const { commands, doubts } = parseShell(`show ${line}`);
    const [command] = commands;
    if (doubts.length > 0 || commands.length !== 1 || command?.words.every((each) => each.literal) !== true) continue;
    if (command.assignments.length > 0 || command.redirections.length > 0) continue;
    literal++;
    const words = command.words.slice(1).map((each) => each.text);
    expected.push(String(words.length), ...words);
    script.push(`show ${line}`);
  }
  const shown = runBash(script.join("\n")).toString().split("\0").slice(0, -1);
  assert.deepEqual(shown, expected);
  assert.ok(literal > 200, `${literal} lines of ${lines.length} were literal`);
});

test("nothing runs in bash that is not among the commands, whatever the text", () => {
  const token = pick([
    ..."rm ;rm;\nrm;rm x;echo ;echo a;&&;||;|;&;'\";`;$(;);{ ; };};(;[;];\\;\\\n;<<E;<<'E';<<-E;\nE\n;\tE;E\n;${x:-;${x;${;$((;))"
      .split(";")
      .filter((each) => each !== ""),
    ...["case x in x)", ";;", " esac", "if :; then ", "; fi", "for i in 1; do ", "; done", ";", ";", "\n", " ", " "],
    ...["$'", '$"', "=", "a=", "a=(", "[[ ", " ]]", "! ", "f() ", "function f ", "coproc ", "time ", "<<<", "<", ">f "],
    ...[
      "2>&1",
      "&>",
      "|&",
      ">&",
      "x",
      "$x",
      "*",
      "?",
      "~",
      "@(",
      "#",
      " #",
      ",",
      "$[",
      "<(",
      ">(",
      "1",
      "a[",
      "+=",
      "rm",
    ],
    ...["$(rm)", "`rm`", "'", '"', "'", '"', "rm ", "rm "],
  ]);
  const lines = fc.sample(
    fc.array(token, { minLength: 2, maxLength: 12 }).map((tokens) => tokens.join("")),
    { numRuns: 1000, seed },
  );
  const script = [
    "exec 9>&1 </dev/null >/dev/null 2>/dev/null",
    'rm() { builtin echo "$ID" >&9; }',
    ...lines.map((line, at) => `( ID=${at}; ulimit -t 1; builtin eval ${quoted(line)} )`),
  ];
  const ran = new Set(
    runBash(script.join("\n"))
      .toString()
      .split("\n")
      .filter((line) => line !== "")
      .map(Number),
  );
  const holes = [...ran].filter((at) => {
    const { commands, doubts } = readCommandLine(lines[at] ?? "");
    return doubts.length === 0 && ![...everyCommand(commands)].some(({ program }) => program === "rm");
  });
  assert.deepEqual(
    holes.map((at) => lines[at]),
    [],
  );
  assert.ok(ran.size > 30, `${ran.size} lines ran it`);
});

describe("compositions", () => {
  const workspace = "/home/somebody/shop";
  const subjectOf = (command: string): PermissionSubject => {
    const given = { command };
    return { name: "run_command", readOnly: false, runsProgram: true, arguments: given, workspace, contentSha256: "" };
  };
  const noRules = { allow: [], ask: [], deny: [] };
  const server = { ...noRules, mode: "ask", sandbox: "bwrap" } as const;

  type Wrap = (inner: string) => string;
  const name = pick(["rm", "/bin/rm", "\\rm", "'rm'", "r''m", 'r"m"', "$'r\\x6d'", "r\\\nm", "./../bin/rm"]);
  const harmless = pick(["ls", "echo a", "git status", "cat 'a;b'", 'echo "$x"', ":"]);
  const joint = pick([";", "&&", "||", "|", "|&", "&", "\n", " ; ", "\n\n"]);
  const wrap: fc.Arbitrary<Wrap> = fc.oneof(
    fc.tuple(harmless, joint).map(
      ([other, by]): Wrap =>
        (inner) =>
          `${other}${by}${inner}`,
    ),
    fc.tuple(harmless, pick([";", "&&", "||", "|", "&", "\n"])).map(
      ([other, by]): Wrap =>
        (inner) =>
          `${inner}\n${by === "\n" ? "" : `:${by}`}${other}`,
    ),
    pick<Wrap>([
      (inner) => `(${inner}\n)`,
      (inner) => `{ ${inner}\n}`,
      (inner) => `if ${inner}\nthen :; fi`,
      (inner) => `for i in a; do ${inner}\ndone`,
      (inner) => `while ${inner}\ndo :; done`,
      (inner) => `case a in a) ${inner}\n;; esac`,
      (inner) => `f() { ${inner}\n}`,
      (inner) => `echo $(${inner}\n)`,
      (inner) => `echo "$(${inner}\n)"`,
      (inner) => `echo "\${a:-$(${inner}\n)}"`,
      (inner) => `cat <(${inner}\n)`,
      (inner) => `cat <<END_OF_IT\n$(${inner}\n)\nEND_OF_IT`,
      (inner) => `echo $[ a[$(${inner}\n)] ]`,
      (inner) => `! ${/^[!:]|^(if|for|while|case|f\(|\(|\{)/.test(inner) ? `{ ${inner}\n}` : inner}`,
      (inner) => `bash -c ${quoted(inner)}`,
      (inner) => `sh -ec ${quoted(inner)}`,
      (inner) => `eval ${quoted(inner)}`,
      (inner) => `sudo -u bob bash -c ${quoted(inner)}`,
      (inner) => `env A=b bash -lc ${quoted(inner)}`,
      (inner) => `xargs -0 bash -c ${quoted(inner)}`,
      (inner) => `timeout 5 nice -n 3 bash -c ${quoted(inner)}`,
      (inner) => `find . -exec bash -c ${quoted(inner)} \\;`,
      (inner) => `trap ${quoted(inner)} EXIT`,
      (inner) => `ssh host ${quoted(inner)}`,
      (inner) => `watch ${quoted(inner)}`,
      (inner) => `su bob -c ${quoted(inner)}`,
    ]),
  );
  const composition = fc
    .tuple(name, pick(["", " x", " -rf x", " $y", " 'a b'"]), fc.array(wrap, { maxLength: 4 }))
    .map(([program, words, wraps]) => wraps.reduce((inner, each) => each(inner), `${program}${words}`));

  test("a command that is denied is found however it is wrapped", () => {
    fc.assert(
      fc.property(composition, (command) => {
        const rules = rulesOf(server, {
          ...noRules,
          mode: "bypass",
          allow: ["run_command"],
          deny: ["run_command(rm:*)"],
        });
        assert.equal(decidePermission(rules, [], subjectOf(command)).decision === "allow", false, command);
      }),
      { numRuns: 1500, seed },
    );
  });

  test("rules that allow others don't allow it", () => {
    const allowed = [
      "ls",
      "echo",
      "git status",
      "cat",
      ":",
      "f",
      "bash",
      "sh",
      "eval",
      "sudo",
      "env",
      "xargs",
      "find",
      "ssh",
    ];
    const allow = allowed.map((each) => `run_command(${each}:*)`);
    fc.assert(
      fc.property(composition, (command) => {
        const rules = rulesOf(server, { ...noRules, mode: "ask", allow });
        assert.equal(decidePermission(rules, [], subjectOf(command)).decision, "ask", command);
      }),
      { numRuns: 1500, seed },
    );
  });

  test("compositions are commands that bash can read", () => {
    const lines = fc.sample(composition, { numRuns: 300, seed });
    const script = lines.map((line, at) => `builtin eval ${quoted(`f() {\n${line}\n}`)} 2>&- && printf '%s\\n' ${at}`);
    const read = runBash(script.join("\n")).toString().trim().split("\n").map(Number);
    const refused = read.filter((at) =>
      readCommandLine(lines[at] ?? "").doubts.some((doubt) => doubt.includes("grammar")),
    );
    assert.deepEqual(
      refused.map((at) => lines[at]),
      [],
    );
    assert.ok(read.length > 250, `bash read ${read.length} of ${lines.length}`);
  });
});

test("64 KiB of anything are read or refused in no time", () => {
  const fill = (text: string) => text.repeat(Math.floor(65_536 / text.length));
  const nested = (open: string, close: string, times: number) => open.repeat(times) + close.repeat(times);
  const texts = [
    ...[
      "$(",
      '"$(',
      "`",
      "${x:-",
      "(",
      "{a,",
      "$((",
      "((",
      "if ",
      "<<E ",
      "cat <<E\n$(x)\nE\n",
      "a;",
      "a|",
      "\\",
      "'\"",
    ].map(fill),
    ...[
      "case x in x) ",
      "f() ",
      "$",
      "@(",
      "[[ (",
      "<(",
      "a[",
      "$[",
      "a=(",
      "a",
      " x",
      "{1..9}",
      "a&&",
      "env ",
      "eval ",
    ].map(fill),
    nested("$(", ")", 20_000),
    nested("${x:-", "}", 8_000),
    nested('"$(', ')"', 5_000),
    nested("$((1+", "))", 6_000),
    ...["$(", "`", "(", "if ", "a;", "env ", "eval ", "sed '\n", "find -exec a \\; ", "git -c x ", "f() ", "x=1 "].map(
      (text) => fill(text).slice(0, 32_000),
    ),
  ];
  for (const text of texts) {
    const before = process.threadCpuUsage();
    const { doubts, commands } = readCommandLine(text);
    const { user, system } = process.threadCpuUsage(before);
    const tookMs = (user + system) / 1000;
    assert.ok(tookMs < 200, `${tookMs} ms for ${text.slice(0, 20)}`);
    assert.ok(text.length < 32_769 || (doubts.length > 0 && commands.length === 0), text.slice(0, 20));
  }
});

test("the files that a line runs are named", () => {
  const rows: readonly (readonly [command: string, files: readonly string[]])[] = [
    ["./x.sh a", ["./x.sh"]],
    ["sh x.sh", ["x.sh"]],
    ["bash -eu x.sh a", ["x.sh", "a"]],
    ["python3 -u x.py", ["x.py"]],
    ["node --import tsx x.js", ["tsx", "x.js"]],
    ["source x; . ./y", ["x", "./y"]],
    ["cd a && ./b.sh", ["./b.sh", "a/b.sh"]],
    ["bash -c './x.sh; python3 y.py'", ["./x.sh", "y.py"]],
    ["sudo -u bob timeout 5 ./x.sh", ["./x.sh"]],
    ["bash < x.sh", ["x.sh"]],
    ["find . -exec ./y.sh {} \\;", ["./y.sh"]],
    ["echo $(./x.sh)", ["./x.sh"]],
    ["/usr/bin/make test", ["/usr/bin/make"]],
    ["ls -l x", []],
    ["python3 -c 'x'", []],
  ];
  for (const [command, files] of rows) assert.deepEqual(filesRunBy(command), files, command);
});
