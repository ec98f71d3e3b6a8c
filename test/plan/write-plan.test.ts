import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkPlan } from "../../src/plan/check-plan.ts";
import { offeredFunctions } from "../../src/plan/offered-functions.ts";
import { planFromAnswer, planSchema } from "../../src/plan/plan-schema.ts";
import { examplePlan, plannerPrompt } from "../../src/plan/planner-prompt.ts";
import { stepsWithin } from "../../src/plan/steps-within.ts";
import { readJsonAnswer } from "../../src/session/check-answer.ts";
import type { FunctionDefinition } from "../../src/tool/function-provider.ts";

function definition(name: string, description: string, parameters = '{"type":"object"}'): FunctionDefinition {
  return { name, description, parameters, source: "test", readOnly: true, timeoutMs: 1000 };
}

const none: ReadonlySet<string> = new Set();
const names = (definitions: readonly FunctionDefinition[]) => definitions.map(({ name }) => name);

describe("the functions a planner is shown", () => {
  const many = Array.from({ length: 500 }, (_, index) => definition(`tool_${index}`, `Does the thing ${index}.`));

  test("are all of them while they are few, one a line", () => {
    const few = [definition("b", "Second."), definition("a", "First.", '{"type":"object","properties":{"x":{}}}')];
    const { shown, text, leftOut } = offeredFunctions(few, "anything", none);
    assert.deepEqual([names(shown), leftOut], [["b", "a"], 0]);
    assert.deepEqual(
      text.split("\n").map((line) => JSON.parse(line)),
      [
        { name: "b", description: "Second.", parameters: { type: "object" } },
        { name: "a", description: "First.", parameters: { type: "object", properties: { x: {} } } },
      ],
    );
  });

  test("are of hundreds those that have most to do with what is wanted, and those that are needed", () => {
    const set = [
      ...many,
      definition("sendInvoices", "Sends a letter."),
      definition("x", "Prints an invoice for a customer."),
    ];
    const offered = offeredFunctions(set, "Write the invoice and send it", new Set(["tool_499"]));
    assert.equal(offered.shown.length + offered.leftOut, set.length);
    assert.equal(offered.shown.length, 120);
    assert.deepEqual(names(offered.shown).slice(-3), ["tool_499", "sendInvoices", "x"], "in the order of the set");
    assert.deepEqual(offeredFunctions(set, "Write the invoice and send it", new Set(["tool_499"])), offered);
    assert.ok(plannerPrompt(offered).includes(`There are ${offered.leftOut} more`));
  });

  test("take no more than their room, whatever their texts are", () => {
    const wordy = many.map((one) => ({ ...one, description: "Wörter ".repeat(2000), parameters: '{"a":"b"}' }));
    const offered = offeredFunctions(wordy, "x", none);
    assert.ok(Buffer.byteLength(offered.text) <= 120 * 1024);
    assert.ok(offered.shown.length > 50 && offered.shown.length < 120);
    const huge = definition("huge", "Takes much.", JSON.stringify({ type: "object", description: "x".repeat(10_000) }));
    const { text } = offeredFunctions([huge, definition("odd", "Odd.", "{")], "x", none);
    assert.deepEqual(
      text.split("\n").map((line) => JSON.parse(line).parameters),
      [{ type: "object" }, {}],
    );
    assert.match(text, /too long to be shown/);
  });
});

test("the example that models are shown is a plan as it is asked for", async () => {
  const text = JSON.stringify(examplePlan);
  const read = readJsonAnswer(text, planSchema({ definitions: [] }));
  assert.ok(read.ok, read.ok ? "" : read.what);
  const answer = planFromAnswer(examplePlan, "Report the TODOs.");
  assert.ok(answer.ok, answer.ok ? "" : answer.faults.join());
  const functions = [definition("search", "x"), definition("save", "x")];
  const find = (name: string) => {
    const found = functions.find((one) => one.name === name);
    return found && { definition: found };
  };
  const plans = async () => undefined;
  const { problems } = await checkPlan(answer.draft, { functions: { definitions: functions, find }, plans });
  assert.deepEqual(problems, []);
  assert.deepEqual(
    stepsWithin(answer.draft.steps).map(({ id }) => id),
    ["find", "each_file", "sum_up", "approve", "write"],
  );
});
