import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { PlanEventSchema, PlanSchema } from "../../sdk/proto.ts";
import { runToEnd, start, startServe, temporaryFolder } from "./start-codeagent.ts";

const good = {
  goal: "The files are known.",
  success_criteria: ["Each file is named."],
  complexity: "simple",
  steps: [{ id: "list", kind: "function_call", description: "Find them.", function: "list_files" }],
};
const bad = { ...good, steps: [{ ...good.steps[0], function: "list_fils" }] };

const script = `
- when: { text: impossible }
  text: ${JSON.stringify(JSON.stringify(bad))}
- when: { text: list_fils }
  text: ${JSON.stringify(JSON.stringify(bad))}
- when: { text: name the files }
  text: ${JSON.stringify(JSON.stringify(good))}
  usage: { prompt_tokens: 100, completion_tokens: 20 }
`;

const yaml = `
goal: All is read.
steps:
  - { id: list, kind: function_call, function: list_files, description: Find them. }
  - id: each
    kind: for_each
    depends_on: [list]
    for_each:
      items: [README.md]
      max_concurrency: 2
      steps:
        - { id: read, kind: function_call, function: read_file, parameters: { path: { ref: item } } }
  - id: both
    kind: parallel
    depends_on: [each]
    on_error: continue
    parallel:
      branches:
        - name: one
          steps: [{ id: say, kind: model, condition: index == null, model: { prompt: "Say it." } }]
        - name: two
          steps: [{ id: ask, kind: user_input, user_input: { prompt: "Right?", schema: { type: object } } }]
  - id: choose
    kind: branch
    condition: step.list.result != ""
    retry: { max_attempts: 2 }
    depends_on: [list, both]
    branch:
      cases:
        - condition: step.each.result[0] != null
          steps: [{ id: yes, kind: function_call, function: read_file, parameters: { path: README.md } }]
      otherwise:
        - { id: no, kind: function_call, function: list_files }
`.replace(", condition: index == null", "");

/** A folder with a plan in it, and the id of that plan once it was taken over. */
async function withPlan(context: TestContext, text = yaml) {
  const folder = temporaryFolder(context);
  const file = join(folder, "plan.yaml");
  writeFileSync(file, text);
  const created = await runToEnd(context, ["plan", "create", "--file", file], { folder, script });
  const [, id = ""] = /^(plan_\w+) version 1 · /.exec(created.stdout) ?? [];
  assert.ok(id !== "", created.stderr);
  return { folder, file, id, created };
}

function plansIn(stdout: string) {
  return stdout
    .trim()
    .split("\n")
    .map((line): JsonValue => JSON.parse(line))
    .map((value) => fromJson(PlanSchema, value));
}

describe("codeagent plan", { timeout: 120_000, concurrency: 2 }, () => {
  test("create has a plan written and shows it", async (context) => {
    const folder = temporaryFolder(context);
    const { exit, stdout, stderr } = await runToEnd(context, ["plan", "create", "name the files"], { folder, script });
    assert.deepEqual([exit, stderr], [0, ""]);
    assert.deepEqual(
      stdout
        .replace(/plan_\w+/, "plan")
        .trim()
        .split("\n"),
      [
        "plan version 1 · ready · simple · by scripted/test, 100 tokens in, 20 out",
        "The files are known.",
        "wanted: name the files",
        "has to hold: Each file is named.",
        "└─ list: function_call list_files  Find them.",
      ],
    );
  });

  test("create says precisely what keeps a plan from running, and exits 1", async (context) => {
    const folder = temporaryFolder(context);
    const { exit, stdout } = await runToEnd(context, ["plan", "create", "impossible"], { folder, script });
    assert.equal(exit, 1);
    assert.match(stdout, /^plan_\w+ version 1 · invalid/);
    assert.match(stdout, /^missing function list_fils \(called by list\)/m);
    assert.match(stdout, /^error in step list, function: .*list_files\? \[MISSING_FUNCTION\]$/m);
  });

  test("shows steps as a tree, in words, as YAML and as JSON", async (context) => {
    const { folder, id, created } = await withPlan(context);
    assert.equal(created.exit, 0);
    assert.deepEqual(created.stdout.trim().split("\n").slice(2), [
      "├─ list: function_call list_files  Find them.",
      '├─ each: for_each ["README.md"], 2 at a time, after list',
      '│  └─ read: function_call read_file {"path":item}',
      "├─ both: parallel, 4 at a time, after each, on error continue",
      "│  ├─ beside: one",
      '│  │  └─ say: model "Say it."',
      "│  └─ beside: two",
      '│     └─ ask: user_input "Right?"',
      '└─ choose: branch, after list and both, if step.list.result != "", tried 2 times',
      "   ├─ if step.each.result[0] != null",
      '   │  └─ yes: function_call read_file {"path":"README.md"}',
      "   └─ otherwise",
      "      └─ no: function_call list_files",
    ]);
    const shown = await runToEnd(context, ["plan", "show", id, "--version", "1"], { folder });
    assert.deepEqual([shown.exit, shown.stdout], [0, created.stdout]);
    const asYaml = await runToEnd(context, ["plan", "show", id, "--yaml"], { folder });
    const again = await withPlan(context, asYaml.stdout);
    assert.equal(again.created.stdout.replace(again.id, id), created.stdout);
    const json = await runToEnd(context, ["plan", "show", id, "--json"], { folder });
    assert.deepEqual(
      plansIn(json.stdout).map((plan) => [plan.id, plan.steps.length]),
      [[id, 4]],
    );
    const listed = await runToEnd(context, ["plan", "ls"], { folder });
    assert.match(listed.stdout, new RegExp(`^${id}  version 1  ready  \\S+  All is read\\.\n$`));
  });

  test("edit makes the next version in the editor, and keeps a text that is not taken", async (context) => {
    const { folder, id } = await withPlan(context);
    const edit = (change: string) => runToEnd(context, ["plan", "edit", id], { folder, env: { EDITOR: change } });
    const same = await edit("true");
    assert.deepEqual([same.exit, same.stdout], [0, "nothing was changed\n"]);
    const changed = await edit("sed -i s/All/Everything/");
    assert.equal(changed.exit, 0);
    assert.match(changed.stdout, /^plan_\w+ version 2 · ready.*\nEverything is read\.$/m);
    const wrong = await edit("sed -i s/goal:/gaol:/");
    assert.equal(wrong.exit, 1);
    const [, kept = ""] = /^codeagent: gaol: .*\(line 1\); the text is kept: (\S+)\n$/.exec(wrong.stderr) ?? [];
    assert.match(readFileSync(kept, "utf8"), /^gaol: Everything is read\.$/m);
    rmSync(dirname(kept), { recursive: true });
    const gone = await edit("/no/editor");
    assert.match(gone.stderr, /^codeagent: the editor \/no\/editor can't be started/);
    const listed = await runToEnd(context, ["plan", "ls", "--json"], { folder });
    assert.deepEqual(
      plansIn(listed.stdout).map(({ version }) => version),
      [2],
    );
  });

  const each = `
goal: All is read.
input_schema: { type: object, properties: { names: { type: array, default: [a.txt, b.txt] } } }
steps:
  - id: each
    kind: for_each
    for_each:
      items: { ref: input.names }
      steps: [{ id: read, kind: function_call, function: read_file, parameters: { path: { ref: item } } }]
  - id: write
    kind: function_call
    depends_on: [each]
    function: write_file
    parameters: { path: new.txt, content: { ref: "step.each.result[0]" } }
`;
  const runs: readonly { name: string; words: readonly string[]; exit: number; says: readonly RegExp[] }[] = [
    {
      name: "shows each step and the outcome",
      words: ["--yes"],
      exit: 0,
      says: [
        /^✓ read\[0\] completed/m,
        /^✓ read\[1\] completed/m,
        /^✓ write completed/m,
        /^completed · 4 completed · /m,
      ],
    },
    {
      name: "is denied what nobody approves",
      words: [],
      exit: 1,
      says: [
        /^\? write waiting: write_file new\.txt/m,
        /^✗ write failed .*nobody is there to be asked/m,
        /^failed · /m,
      ],
    },
    {
      name: "fails with a step and says which",
      words: ["--input", '{"names":["gone.txt"]}'],
      exit: 1,
      says: [/^read: .*"gone\.txt" does not exist$/m],
    },
  ];
  for (const { name, words, exit, says } of runs) {
    test(`run ${name}`, async (context) => {
      const folder = temporaryFolder(context);
      for (const file of ["a.txt", "b.txt"]) writeFileSync(join(folder, file), file);
      writeFileSync(join(folder, "plan.yaml"), each);
      const ran = await runToEnd(context, ["plan", "run", "plan.yaml", ...words], { folder });
      assert.equal(ran.exit, exit, ran.stderr);
      assert.match(ran.stdout, /^execution exec_\w+ of version 1$/m);
      for (const pattern of says) assert.match(ran.stdout, pattern);
    });
  }

  test("an execution that waits for a person is left, and followed over its end by another call", async (context) => {
    const { folder, id } = await withPlan(
      context,
      `{ goal: Ask., steps: [{ id: ask, kind: user_input, user_input: { prompt: "Which?", schema: { type: object } } }] }`,
    );
    const left = await runToEnd(context, ["plan", "run", id], { folder });
    assert.equal(left.exit, 1);
    const [, execution = ""] = /step ask waits for input, .* --follow (exec_\w+)\n/.exec(left.stderr) ?? [];
    const server = await startServe(context, [], { folder });
    using client = createCodeAgentClient({ baseUrl: server.url });
    const following = start(context, ["plan", "run", id, "--follow", execution, "--json"], { folder });
    await following.seen("stdout", /"inputRequested"/);
    await client.plans.submitPlanInput({ planId: id, stepId: "ask", values: '{"file":"a"}' });
    assert.equal(await following.ended, 0);
    const last = fromJson(PlanEventSchema, JSON.parse(following.stdout().trim().split("\n").at(-1) ?? ""));
    assert.equal(last.event.case === "finished" && last.event.value.output, '{"file":"a"}');
  });

  test("Ctrl-C cancels the execution, and that is seen", async (context) => {
    const { folder, id } = await withPlan(
      context,
      `{ goal: Wait., steps: [{ id: ask, kind: user_input, user_input: { prompt: "Which?", schema: { type: object } } }] }`,
    );
    await startServe(context, [], { folder });
    const running = start(context, ["plan", "run", id], { folder });
    await running.seen("stderr", /waits for input/);
    running.child.kill("SIGINT");
    assert.equal(await running.ended, 1);
    assert.match(running.stdout(), /^cancelled · /m);
  });

  const failures: readonly { name: string; words: readonly string[]; message: RegExp }[] = [
    { name: "no requirement", words: ["create"], message: /the requirement is empty/ },
    {
      name: "a file that is not there",
      words: ["create", "--file", "gone.yaml"],
      message: /gone\.yaml does not exist/,
    },
    { name: "an unknown plan", words: ["show", "plan_none"], message: /no plan plan_none/ },
    { name: "a version that is none", words: ["show", "plan_none", "--version", "0"], message: /--version is "0"/ },
    { name: "a file to follow", words: ["run", "a.yaml", "--follow", "exec_1"], message: /--follow needs the id/ },
    {
      name: "two inputs",
      words: ["run", "plan_none", "--input", "{}", "--input-file", "a"],
      message: /--input or --input-file/,
    },
  ];
  for (const { name, words, message } of failures) {
    test(`with ${name}: one sentence, exit 1`, async (context) => {
      const folder = temporaryFolder(context);
      const failed = await runToEnd(context, ["plan", ...words], { folder, script });
      assert.equal(failed.exit, 1);
      assert.match(failed.stderr, message);
      assert.match(failed.stderr, /^codeagent: [^\n]+\n$/);
    });
  }
});
