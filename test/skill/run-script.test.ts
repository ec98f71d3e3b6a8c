import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chmod, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Skills } from "../../src/skill/skills.ts";
import { indexFunctions } from "../../src/tool/function-index.ts";
import { runFunction } from "../../src/tool/run-function.ts";
import { createSandbox } from "../../src/tool/sandbox/create-sandbox.ts";
import { skillText, temporaryFolder, toolsText, writeFiles } from "./write-files.ts";

const typed = `    parameters:
      text: {type: string, required: true}
      count: {type: integer, default: 3}
      share: {type: number}
      isTrue: {type: boolean}
      list: {type: array, items: {type: string}}
      map: {type: object}
      how: {enum: [fast, slow], default: fast}
`;
/** Each prints what it was given, in one shape: its variables, standard input and the whole once more. */
const told = [
  "ARG_text",
  "ARG_TEXT",
  "ARG_count",
  "ARG_share",
  "ARG_isTrue",
  "ARG_ISTRUE",
  "ARG_list",
  "ARG_map",
  "ARG_how",
];
const shell = `${told.map((name) => `printf '%s=%s\\n' ${name} "$${name}"`).join("\n")}\nprintf 'stdin=%s\\n' "$(cat)"\nprintf 'all=%s\\n' "$TOOL_ARGS"\n`;
const python = `import os, sys\nfor name in ${JSON.stringify(told)}: print(name + "=" + os.environ.get(name, ""))\nprint("stdin=" + sys.stdin.read())\nprint("all=" + os.environ["TOOL_ARGS"])\n`;
const node = (read: string) =>
  `${read}\nfor (const name of ${JSON.stringify(told)}) console.log(name + "=" + (process.env[name] ?? ""));\nconsole.log("stdin=" + readFileSync(0, "utf8"));\nconsole.log("all=" + process.env.TOOL_ARGS);\n`;

const scripts: Readonly<Record<string, string>> = {
  in_sh: "run.sh",
  in_bash: "scripts/run.bash",
  in_python: "run.py",
  in_node: "run.js",
  in_module: "run.mjs",
  in_common: "run.cjs",
  itself: "bin/itself",
};
const files: Readonly<Record<string, string>> = {
  "run.sh": shell,
  "scripts/run.bash": `declare -A map=([a]=b)\n${shell}`,
  "run.py": python,
  "run.js": node('const { readFileSync } = require("node:fs");'),
  "run.mjs": node('import { readFileSync } from "node:fs";'),
  "run.cjs": node('const { readFileSync } = require("node:fs");'),
  "bin/itself": `#!/bin/sh\n${shell}`,
};

/** One skill of the operator, one of the workspace, and what runs their tools. */
async function start(
  context: { after(work: () => unknown): void },
  options: { readonly env?: Record<string, string> } = {},
) {
  const folder = await temporaryFolder(context);
  const workspace = join(folder, "workspace");
  const skillsFolder = join(folder, "skills");
  await writeFiles(workspace, { "a.txt": "a\n" });
  await writeFiles(skillsFolder, {});
  const env = { PATH: process.env["PATH"], SECRET_KEY: "do-not-tell", ...options.env };
  const sandbox = createSandbox({
    kind: "bwrap",
    dataDir: join(folder, "data"),
    readable: [],
    writable: [],
    network: false,
    domains: [],
    env,
  });
  const skills = new Skills({ folders: [skillsFolder], sandbox, env, now: Date.now, report: () => {} });
  context.after(async () => {
    await skills.close();
    await sandbox.close();
  });
  const call = async (name: string, given: unknown = {}, signal = new AbortController().signal) => {
    const index = await indexFunctions(await skills.providersFor(workspace));
    const context = { sessionId: "s", turnId: "t", toolCallId: "c", workspace, signal };
    return runFunction(index, { name, argumentsText: JSON.stringify(given) }, context);
  };
  return { folder, workspace, skillsFolder, skills, call };
}

describe("a script gets its arguments typed, whatever it is written in", () => {
  let started: Awaited<ReturnType<typeof start>>;
  const cleanups: (() => unknown)[] = [];
  before(async () => {
    started = await start({ after: (work) => cleanups.unshift(work) });
    await writeFiles(join(started.skillsFolder, "typed"), {
      "SKILL.md": skillText("typed", toolsText(scripts, typed)),
      ...files,
    });
  });
  after(async () => {
    for (const cleanup of cleanups) await cleanup();
  });

  for (const name of Object.keys(scripts)) {
    test(name, async () => {
      const text = 'it\'s $(rm -rf /) `x`; "q"\n\\ é😀';
      const given = { text, share: 0.5, isTrue: false, list: ["a b", "$c"], map: { a: { b: 1 } } };
      const { success, output, error, metadata } = await started.call(name, given);
      assert.equal(error, undefined, output);
      assert.ok(success);
      const all = JSON.stringify({ count: 3, how: "fast", ...given });
      const wanted = [
        ...[
          `ARG_text=${text}`,
          `ARG_TEXT=${text}`,
          "ARG_count=3",
          "ARG_share=0.5",
          "ARG_isTrue=false",
          "ARG_ISTRUE=false",
        ],
        ...['ARG_list=["a b","$c"]', 'ARG_map={"a":{"b":1}}', "ARG_how=fast", `stdin=${all}`, `all=${all}`],
      ];
      assert.equal(output, `${wanted.join("\n")}\n`);
      assert.deepEqual([metadata?.["exit_code"], metadata?.["ended_by"]], ["0", "itself"]);
      assert.match(metadata?.["duration_ms"] ?? "", /^\d+$/);
    });
  }

  const refused: readonly (readonly [string, unknown, RegExp])[] = [
    ["a missing one", {}, /"text" is missing/],
    ["one of another type", { text: 7 }, /"text" must be string; 7 was given/],
    ["none of an enumeration", { text: "a", how: "never" }, /"how" must be one of/],
    ["one that is not declared", { text: "a", PATH: "/tmp" }, /"PATH" is not an argument it has/],
    ["one that would be a variable", { text: "a", LD_PRELOAD: "x" }, /"LD_PRELOAD" is not an argument it has/],
    ["a NUL character", { text: "a\0b" }, /argument text of in_sh has a NUL character/],
    [
      "more than the environment takes",
      { text: "x".repeat(110_000) },
      /are 1100\d\d bytes long and go through the environment, which takes 102400/,
    ],
  ];
  for (const [name, given, says] of refused) {
    test(`${name} is refused, and nothing runs`, async () => {
      const { success, error, metadata } = await started.call("in_sh", given);
      assert.equal(success, false);
      assert.match(error ?? "", says);
      assert.equal(metadata, undefined);
    });
  }

  test("100 KiB of arguments get through", async () => {
    const text = "x".repeat(100 * 1024 - 100);
    const { output } = await started.call("in_python", { text });
    assert.ok(output.includes(`ARG_text=${text}\n`));
  });
});

test("what a script may see: its folder, the workspace, its own settings, no secret of the server", async (context) => {
  const env = { SKILL_ENV_TEST__URL: "https://example.com", SKILL_ENV__TEST: "other", SKILL_ENV_TEST_X: "other" };
  const { skillsFolder, workspace, call } = await start(context, { env });
  const tools = toolsText({ show_env: "env.sh", write_here: "write.sh" });
  await writeFiles(join(skillsFolder, "env-test"), {
    "SKILL.md": skillText("env-test", tools),
    "env.sh": 'pwd; cat "$SKILL_DIR/data.txt"; cat a.txt; env\n',
    "write.sh": 'echo new > new.txt; echo changed > "$SKILL_DIR/data.txt"\n',
    "data.txt": "of the skill\n",
  });
  const { output } = await call("show_env");
  const lines = output.split("\n");
  assert.deepEqual(lines.slice(0, 3), [workspace, "of the skill", "a"]);
  assert.ok(lines.includes("SKILL_ENV_TEST__URL=https://example.com"));
  assert.doesNotMatch(output, /do-not-tell|SKILL_ENV__TEST|SKILL_ENV_TEST_X|NODE_OPTIONS/);
  const written = await call("write_here");
  assert.equal(written.success, false);
  assert.equal(await readFile(join(workspace, "new.txt"), "utf8"), "new\n");
  assert.equal(await readFile(join(skillsFolder, "env-test/data.txt"), "utf8"), "of the skill\n");
});

test("how a script fails: its exit code, its output, its time", async (context) => {
  const { skillsFolder, call } = await start(context);
  const tools = toolsText({ exits: "exits.sh", floods: "floods.sh", sleeps: "sleeps.sh" }, "    timeout_ms: 400\n");
  await writeFiles(join(skillsFolder, "failing"), {
    "SKILL.md": skillText(
      "failing",
      tools.replace("floods.sh\n    timeout_ms: 400", "floods.sh\n    timeout_ms: 20000"),
    ),
    "exits.sh": "echo out; echo err >&2; exit 7\n",
    "floods.sh": "head -c 1000000 /dev/zero | tr '\\0' a; echo END\n",
    "sleeps.sh": "echo begun; trap '' TERM; sleep 30 & setsid sleep 30 & wait\n",
  });
  const exits = await call("exits");
  assert.deepEqual(
    [exits.success, exits.error, exits.metadata?.["exit_code"]],
    [false, "exits ended with exit code 7", "7"],
  );
  assert.deepEqual(exits.output.split("\n").sort(), ["", "err", "out"]);
  const floods = await call("floods");
  assert.ok(floods.success && floods.truncated === true);
  assert.match(floods.output, /^a{1000}[\s\S]*\d+ bytes left out[\s\S]*a{1000}END\n$/);
  assert.ok(floods.output.length < 300_000);
  const startMs = performance.now();
  const sleeps = await call("sleeps");
  assert.deepEqual([sleeps.success, sleeps.error], [false, "sleeps was stopped after 400 ms, the longest it may take"]);
  assert.equal(sleeps.output, "begun\n");
  assert.ok(performance.now() - startMs < 4000);
});

test("who says that a tool only reads: the operator is believed and it can't write, a workspace is not", async (context) => {
  const { skillsFolder, workspace, skills, call } = await start(context);
  const more = "    read_only: true\n    network: true\n";
  const script = { "w.sh": "echo x > written.txt\n" };
  await writeFiles(join(skillsFolder, "mine"), {
    "SKILL.md": skillText("mine", toolsText({ mine: "w.sh" }, more)),
    ...script,
  });
  await writeFiles(join(workspace, ".codeagent/skills/theirs"), {
    "SKILL.md": skillText("theirs", `allowed-tools: run_command\n${toolsText({ theirs: "w.sh" }, more)}`),
    ...script,
  });
  const index = await indexFunctions(await skills.providersFor(workspace));
  const facts = (name: string) => {
    const { source, readOnly, openWorld, runsProgram } = index.find(name)?.definition ?? {};
    return { source, readOnly, openWorld, runsProgram };
  };
  assert.deepEqual(facts("mine"), { source: "skill:mine", readOnly: true, openWorld: true, runsProgram: true });
  assert.deepEqual(facts("theirs"), {
    source: "skill:theirs",
    readOnly: false,
    openWorld: undefined,
    runsProgram: true,
  });
  const { skills: views } = await skills.catalog(workspace);
  const codes = views.map(({ name, diagnostics }) => [
    name,
    diagnostics.map(({ severity, code }) => `${severity} ${code}`),
  ]);
  assert.deepEqual(codes, [
    ["mine", []],
    [
      "theirs",
      ["warning ALLOWED_TOOLS_WITHOUT_EFFECT", "warning READ_ONLY_WITHOUT_EFFECT", "warning NETWORK_WITHOUT_EFFECT"],
    ],
  ]);
  assert.equal((await call("mine")).success, false);
  assert.equal(existsSync(join(workspace, "written.txt")), false);
  assert.equal((await call("theirs")).success, true);
});

test("commands that are no script of the skill are not offered", async (context) => {
  const { folder, skillsFolder, skills, workspace } = await start(context);
  await writeFiles(folder, { "outside.sh": "echo outside\n", "skills/other/run.sh": "echo other\n" });
  const commands = {
    parent: "../../outside.sh",
    neighbour: "../other/run.sh",
    absolute: "/bin/sh",
    home: "~/x.sh",
    missing: "missing.sh",
    folder: "folder.sh",
    link: "link.sh",
    linked_folder: "linked/outside.sh",
    shell: '"echo hi; sh"',
    plain: "plain.txt",
    pipe: "pipe.sh",
  };
  const skill = join(skillsFolder, "bad");
  await writeFiles(skill, {
    "SKILL.md": skillText("bad", toolsText({ ...commands, good: "inner.sh" })),
    "folder.sh/x": "",
    "plain.txt": "x",
    "real.sh": "echo real\n",
  });
  await symlink(join(folder, "outside.sh"), join(skill, "link.sh"));
  await symlink(folder, join(skill, "linked"));
  await symlink("real.sh", join(skill, "inner.sh"));
  await symlink("/dev/zero", join(skill, "pipe.sh"));
  const {
    skills: [view],
  } = await skills.catalog(workspace);
  assert.deepEqual(
    view?.version?.manifest.tools.map(({ name }) => name),
    ["good"],
  );
  const errors = view?.diagnostics.filter(({ severity }) => severity === "error") ?? [];
  assert.deepEqual(
    errors.map(({ code, message }) => `${/of (\w+)/.exec(message)?.[1]} ${code}`),
    [
      ...["parent", "neighbour", "absolute", "home", "missing", "folder", "link", "linked_folder", "shell"].map(
        (name) => `${name} COMMAND_OUTSIDE`,
      ),
      "plain COMMAND_NOT_EXECUTABLE",
      "pipe COMMAND_OUTSIDE",
    ],
  );
  assert.doesNotMatch(JSON.stringify(view?.diagnostics), new RegExp(folder));
});

test("a script that was changed after the turn began does not run; the next turn has the new one", async (context) => {
  const { skillsFolder, workspace, skills } = await start(context);
  const skill = join(skillsFolder, "changing");
  await writeFiles(skill, {
    "SKILL.md": skillText("changing", toolsText({ change: "run.sh" })),
    "run.sh": ". $SKILL_DIR/part.sh\n",
    "part.sh": "echo one\n",
  });
  const functionContext = {
    sessionId: "s",
    turnId: "t",
    toolCallId: "c",
    workspace,
    signal: new AbortController().signal,
  };
  const indexNow = async () => indexFunctions(await skills.providersFor(workspace));
  const index = await indexNow();
  const run = (of: typeof index) => runFunction(of, { name: "change", argumentsText: "" }, functionContext);
  const fingerprint = () =>
    index.find("change")?.provider.fingerprint?.({ name: "change", arguments: {} }, { workspace });
  assert.equal((await run(index)).output, "one\n");
  assert.equal(await fingerprint(), index.find("change")?.definition.digest);
  // Not the script itself: what it reads.
  await writeFile(join(skill, "part.sh"), "echo two\n");
  assert.notEqual(await fingerprint(), index.find("change")?.definition.digest);
  const refused = await run(index);
  assert.deepEqual([refused.success, refused.output], [false, ""]);
  assert.match(
    refused.error ?? "",
    /^the files of the skill changing have changed since this turn began, so change was not run/,
  );
  await skills.reload(workspace);
  const next = await indexNow();
  assert.equal((await run(next)).output, "two\n");
  // What is only for readers is no other script.
  await writeFile(join(skill, "SKILL.md"), `${await readFile(join(skill, "SKILL.md"), "utf8")}\nMore words.\n`);
  assert.equal((await run(next)).output, "two\n");
  await chmod(join(skill, "part.sh"), 0o755);
  assert.equal((await run(next)).success, false);
  await rm(skill, { recursive: true });
  assert.equal((await run(next)).success, false);
});
