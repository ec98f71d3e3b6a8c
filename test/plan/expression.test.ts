import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { checkCondition, evaluateCondition, inputsNamedIn, stepsNamedIn } from "../../src/plan/expression.ts";
import { type PlanScope, PlanValueError } from "../../src/plan/plan-scope.ts";

const results: Readonly<Record<string, unknown>> = {
  test: { failed: 2, list: [1, 2, 3], name: "x", nothing: null, ok: true, constructor: "c", big: 2 ** 53 },
  "a-b": 1,
  2: "two",
};
const scope: PlanScope = {
  input: { n: 0, mode: "fast", deep: { yes: false } },
  step: (id) => (Object.hasOwn(results, id) ? results[id] : null),
  item: { name: "i" },
  index: 3,
};

describe("conditions hold or not", () => {
  const holds: readonly string[] = [
    "",
    "true",
    "step.test.result.failed > 0",
    "step.test.result.failed == 2",
    "step.test.result.failed == 2.0",
    "2 == step.test.result.failed",
    "step.test.result.failed + 1 > 2",
    "step.test.result.failed * 2 == 4",
    "step.test.result.failed % 2 == 0",
    "step.test.result.failed / 4 == 0.5",
    "1 + 1.5 == 2.5",
    "1 == 1.0",
    'step["a-b"].result == 1',
    'step["2"].result == "two"',
    "step.test.result.list[0] == 1",
    "step.test.result.list[input.n] == 1",
    "step.test.result.list == [1, 2, 3]",
    "step.test.result.list.size() > 2",
    "size(step.test.result.list) == 3.0",
    "3 in step.test.result.list",
    "step.test.result.list.all(x, x > 0)",
    "step.test.result.list.exists(x, x + 1 == 4)",
    "has(step.test.result.failed) && !has(step.test.result.gone)",
    "step.test.result.ok",
    "step.test.result.ok && (input.mode == 'fast' || false)",
    "step.test.result.nothing == null",
    "step.test.result.gone.deeper[3].x == null",
    "step.never.result == null",
    "!(step.never.result.failed > 0)",
    "!step.never.result",
    "!input.deep.yes",
    "(step.never.result || true) && true",
    "step.never.result ? false : true",
    "size(step.never.result) == 0",
    '!("a" in step.never.result)',
    'step.test.result.constructor == "c"',
    "input.constructor == null && input.__proto__ == null && input.toString == null",
    "step.test.result.name.startsWith('x')",
    'input.mode in ["fast", "slow"]',
    "index % 2 == 1",
    'item.name == "i"',
    "step.test.result.big < 9007199254740993",
    "step.test.result.big != 9007199254740993",
    'step.test.result["list"][1] == 2',
    '{"a": 1}.a == 1',
  ];
  for (const text of holds) {
    test(text, () => {
      assert.equal(checkCondition(text, { inForEach: true }), undefined);
      assert.equal(evaluateCondition(text, scope), true);
      // The opposite is false and not also true.
      if (text !== "") assert.equal(evaluateCondition(`!(${text})`, scope), false);
    });
  }
  test("null is false", () => {
    assert.equal(evaluateCondition("step.never.result.x", scope), false);
    assert.equal(evaluateCondition("null", scope), false);
  });
});

const refused: readonly (readonly [string, RegExp])[] = [
  ["1 +", /can't be read: .*at character 4/],
  ["1 + 1", /has to be true or false; it is a int/],
  ['"text"', /has to be true or false; it is a string/],
  ["foo.x > 1", /there is no foo, at character 1; use step\.<id>\.result, input \(an id with -/],
  ["step.a-b.result > 1", /there is no b, at character 8|a step has nothing|go on with/],
  ["item.x == 1", /item is there only within for_each/],
  ["index == 1", /index is there only within for_each/],
  ["step == null", /uses step without an id/],
  ["step[input.x].result == 1", /uses step without an id/],
  ["input.all(step, step.x)", /uses step without an id|has to go on with \.result/],
  ["step.a == null", /has to go on with \.result after the id of the step a/],
  ["step.a.state == 'x'", /reads \.state of the step a/],
  ["step.a.result.x && 3", /requires bool operands/],
  ["launch(3)", /launch/],
  ["member_of_value(step, 3) == 1", /which there is not/],
  [`${"(".repeat(100)}true${")".repeat(100)}`, /can't be read/],
  [`true ${"|| true ".repeat(300)}`, /at most 2000/],
];
describe("conditions that can't be used say why", () => {
  for (const [text, wanted] of refused) {
    test(text.slice(0, 60), () => assert.match(checkCondition(text, { inForEach: false }) ?? "", wanted));
  }
});

describe("conditions that have no value", () => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ["step.test.result.failed", /has to be true or false; it is 2/],
    ["step.test.result.list", /it is a list of 3/],
    ["step.test.result", /it is an object/],
    ["step.test.result.name > 1", /no such overload: string > int/],
    ["step.never.result.startsWith('x')", /can't be evaluated/],
    ["step.test.result.failed % 0 == 1", /division by zero/],
    ["item.name &&", /can't be evaluated/],
  ];
  for (const [text, wanted] of cases) {
    test(text, () =>
      assert.throws(
        () => evaluateCondition(text, scope),
        (error) => error instanceof PlanValueError && wanted.test(error.message),
      ),
    );
  }
});

test("a condition that goes on and on is stopped", () => {
  const long = {
    ...scope,
    input: { list: Array.from({ length: 3000 }, (_, index) => index), text: `${"a".repeat(40)}!` },
  };
  for (const text of [
    "input.list.all(a, input.list.all(b, input.list.all(c, a + b + c >= 0)))",
    'input.text.matches("(a+)+$")',
  ]) {
    const begin = performance.now();
    assert.throws(() => evaluateCondition(text, long), /takes more than 150 ms/);
    assert.ok(performance.now() - begin < 3000);
  }
});

test("the steps and inputs a condition names", () => {
  assert.deepEqual(
    stepsNamedIn(
      'step.a.result > 1 && [1].all(x, step["b-c"].result[x] == step.a.result.step.d) && has(step.e.result.x)',
    ),
    ["a", "b-c", "e"],
  );
  assert.deepEqual(stepsNamedIn("step.a.result >"), []);
  assert.deepEqual(stepsNamedIn('"step.a.result" == input.step.b'), []);
  assert.deepEqual(inputsNamedIn('input.a > 1 && input["b c"].d && item.input.e'), ["a", "b c"]);
});

test("any text is read or refused, within its time", () => {
  const piece = fc.constantFrom(
    ..."step input item . a result [ ] ( ) \" ' 1 2.5 > == && || ! ? : , + - * in has size null true all exists x".split(
      " ",
    ),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 14 }), (pieces) => {
      const text = pieces.join(" ");
      const fault = checkCondition(text, { inForEach: true });
      if (fault !== undefined) return;
      try {
        assert.equal(typeof evaluateCondition(text, scope), "boolean");
      } catch (error) {
        assert.ok(error instanceof PlanValueError);
      }
    }),
    { numRuns: 300 },
  );
});
