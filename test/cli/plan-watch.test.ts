import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setImmediate as nextMoment } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { PlanEventSchema, PlanSchema } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { askForm } from "../../src/cli/plan-form.ts";
import { liveView } from "../../src/cli/plan-watch.ts";
import { createPage } from "../../src/cli/terminal.ts";

const plan = create(PlanSchema, {
  steps: [
    { id: "list", kind: "function_call", function: "list_files" },
    {
      id: "each",
      kind: "for_each",
      dependsOn: ["list"],
      details: {
        case: "forEach",
        value: {
          items: '{"ref":"step.list.result"}',
          steps: [{ id: "read", kind: "function_call", function: "read_file" }],
        },
      },
    },
  ],
});

/** What a terminal shows that understands as much as is written to it here. */
function screen(columns: number, rows: number) {
  const lines: string[] = [""];
  let row = 0;
  let writes = 0;
  return {
    columns,
    rows,
    lines,
    writes: () => writes,
    write(text: string) {
      writes++;
      // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what steers a terminal
      for (const [part, up, code] of text.matchAll(/\u001b\[(\d+)A|\u001b\[(\??[\d]*[A-Za-z])|[^\u001b]/g)) {
        if (up !== undefined) row -= Number(up);
        else if (code === "J") lines.length = row + 1;
        else if (code === "K" || code?.startsWith("?") === true) continue;
        else if (part === "\n") {
          row++;
          lines[row] ??= "";
          if (row < lines.length) lines[row] = "";
        } else if (part === "\r") lines[row] = "";
        else lines[row] += part;
      }
      return true;
    },
  };
}

const step = (stepId: string, state: string, itemPath: number[] = []) =>
  create(PlanEventSchema, { seq: 1n, event: { case: "stepChanged", value: { stepId, state, itemPath } } });

describe("the live view of an execution", () => {
  test("draws the tree in place: marks, a bar for the whole, a line for each step that runs", () => {
    const terminal = screen(80, 24);
    const view = liveView(plan, terminal, (text) => text);
    for (const event of [step("list", "completed"), step("each", "running"), step("read", "completed", [0])])
      view.add(event);
    view.add(step("read", "running", [1]));
    const progress = { finishedSteps: 2, totalSteps: 4, runningSteps: 2 };
    view.add(create(PlanEventSchema, { event: { case: "progress", value: progress } }));
    view.close();
    assert.equal(terminal.writes(), 1, "one write for one picture");
    assert.deepEqual(terminal.lines, [
      "├─ ✓ list: function_call list_files",
      "└─ ▸ each: for_each step.list.result, after list",
      "   └─ ▸ read: function_call read_file (1/2 ended)",
      "[██████████░░░░░░░░░░] 2/4 steps",
      "▸ each  [██████████░░░░░░░░░░] 1/2",
      "▸ read[1]",
      "",
    ]);
  });

  test("draws over what it drew before", async () => {
    const terminal = screen(80, 24);
    const view = liveView(plan, terminal, (text) => text);
    view.add(step("list", "running"));
    while (terminal.writes() === 0) await nextMoment();
    view.add(step("list", "completed"));
    view.close();
    assert.deepEqual(terminal.lines.slice(0, 1), ["├─ ✓ list: function_call list_files"]);
    assert.equal(terminal.lines.length, 5);
  });

  test("leaves what is to stay above, and steps back for a question", async () => {
    const terminal = screen(60, 24);
    const view = liveView(plan, terminal, (text) => text);
    view.add(step("list", "running"));
    const notice = { level: "warning", code: "A", message: "beware \u001b[31mof this" };
    view.add(create(PlanEventSchema, { seq: 2n, event: { case: "notice", value: notice } }));
    const answer = await view.ask(async (page) => {
      page.write("really?\n");
      return "yes";
    });
    view.close();
    assert.equal(answer, "yes");
    const shown = terminal.lines.join("\n");
    assert.match(shown, /^beware \ufffd\[31mof this\n├─ ▸ list/);
    assert.match(shown, /▸ list\nreally\?\n├─ ▸ list/);
  });

  test("leaves the tree out where the terminal is too low for it, and cuts lines that are too long", () => {
    const terminal = screen(24, 4);
    const view = liveView(plan, terminal, (text) => text);
    view.add(step("list", "running"));
    view.close();
    assert.deepEqual(terminal.lines, ["[░░░░░░░░░░░░░░░░░░░░]…", "▸ list", ""]);
  });
});

describe("a form is asked for field by field", () => {
  const cases: readonly { name: string; schema: object; said: readonly string[]; values: object; told?: RegExp }[] = [
    { name: "a text", schema: { a: { type: "string" } }, said: [" x "], values: { a: " x " } },
    {
      name: "a number",
      schema: { a: { type: "number" } },
      said: ["many", "1.5"],
      values: { a: 1.5 },
      told: /a number/,
    },
    { name: "a whole number", schema: { a: { type: "integer" } }, said: ["1.5", "2"], values: { a: 2 }, told: /whole/ },
    {
      name: "yes or no",
      schema: { a: { type: "boolean" } },
      said: ["maybe", "Y"],
      values: { a: true },
      told: /y or n/,
    },
    { name: "a choice by its number", schema: { a: { enum: ["x", "y"] } }, said: ["3", "2"], values: { a: "y" } },
    { name: "a choice by its text", schema: { a: { enum: [1, 2] } }, said: ["2"], values: { a: 2 } },
    { name: "a list", schema: { a: { type: "array" } }, said: ["x", "[1]"], values: { a: [1] }, told: /JSON list/ },
    { name: "nothing for a default", schema: { a: { type: "string", default: "d" } }, said: [""], values: {} },
    { name: "nothing for what is not needed", schema: { b: { type: "string" } }, said: [""], values: {} },
    { name: "nothing where it is needed", schema: { a: { type: "string" } }, said: ["", "x"], values: { a: "x" } },
    { name: "no field", schema: {}, said: [], values: {} },
  ];
  for (const { name, schema, said, values, told = /^/ } of cases) {
    test(name, async () => {
      const answers = [...said];
      let shown = "";
      const page = createPage((text) => {
        shown += text;
      });
      const form = { prompt: "What?", schema: JSON.stringify({ type: "object", properties: schema, required: ["a"] }) };
      const ask = async () => answers.shift() ?? assert.fail("asked too often");
      const read = await askForm(form, ask, page, new AbortController().signal);
      assert.deepEqual(JSON.parse(read), values);
      assert.deepEqual(answers, []);
      assert.match(shown, told);
    });
  }
});
