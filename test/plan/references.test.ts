import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type PlanScope, PlanValueError } from "../../src/plan/plan-scope.ts";
import {
  parseReference,
  referencesIn,
  referencesInText,
  resolveParameters,
  resolveText,
} from "../../src/plan/references.ts";

const results = new Map<string, unknown>([
  ["x", { items: [{ name: "first" }, { "odd key": 2 }], count: 0, yes: false, none: null, ref: "own" }],
  ["2", "two"],
  ["a-b", [1, [2, 3]]],
]);
const scope: PlanScope = {
  input: JSON.parse('{"path": "src", "__proto__": {"mine": 1}}'),
  step: (id) => results.get(id) ?? null,
  item: { name: "it" },
  index: 4,
};

describe("a reference stands for a value with its type", () => {
  const values: readonly (readonly [string, unknown])[] = [
    ["step.x.result.items[0].name", "first"],
    ['step.x.result.items[1]["odd key"]', 2],
    ["step.x.result.count", 0],
    ["step.x.result.yes", false],
    ["step.x.result.none", null],
    ["step.x.result.items", [{ name: "first" }, { "odd key": 2 }]],
    ["step.2.result", "two"],
    ['step["a-b"].result[1][0]', 2],
    ["step.a-b.result[0]", 1],
    ["step.never.result.a.b[3]", null],
    ["step.x.result.items[7].name", null],
    ["step.x.result.items.length", null],
    ['step.x.result.items["0"]', null],
    ["step.2.result.length", null],
    ["step.x.result.constructor", null],
    ["step.x.result.toString.name", null],
    ["step.x.result.__proto__", null],
    ["input.__proto__.mine", 1],
    ["input.path", "src"],
    ["item.name", "it"],
    ["item", { name: "it" }],
    ["index", 4],
  ];
  for (const [text, value] of values) {
    test(text, () => {
      assert.deepEqual(resolveParameters(JSON.stringify({ ref: text }), scope), value);
      assert.deepEqual(resolveParameters(JSON.stringify([1, { in: { ref: text } }]), scope), [1, { in: value }]);
    });
  }
});

test("only an object with nothing but a text as ref is a reference", () => {
  const text =
    '{"a": {"ref": "index", "more": 1}, "b": {"ref": 3}, "c": "ref", "d": [{"ref": "index"}], "__proto__": {"ref": "index"}}';
  const value = resolveParameters(text, scope);
  assert.equal(JSON.stringify(value), '{"a":{"ref":"index","more":1},"b":{"ref":3},"c":"ref","d":[4],"__proto__":4}');
  assert.deepEqual(
    referencesIn(text).references.map((reference) => reference.text),
    ["index", "index"],
  );
  assert.deepEqual(resolveParameters("", scope), {});
  // What a reference gives is a value, also where it looks like a reference.
  const looks = { ...scope, step: () => ({ ref: "index" }) };
  assert.deepEqual(resolveParameters('{"ref": "step.x.result"}', looks), { ref: "index" });
});

describe("a reference that can't be read says why", () => {
  const faults: readonly (readonly [string, RegExp])[] = [
    ["", /is no reference; write step/],
    ["steps.x.result", /is no reference/],
    ["step", /names no step/],
    ["step[0].result", /names no step/],
    ["step.x", /has to go on with \.result after the step's id: step\.x\.result/],
    ["step.x.output", /has to go on with \.result/],
    ["step.x.result.", /from character 14 on/],
    ["step.x.result[01]", /from character 14 on/],
    ["step.x.result[-1]", /from character 14 on/],
    ["step.x.result['a']", /from character 14 on/],
    ["input path", /from character 6 on/],
    ["index.x", /which is a number/],
    [`input${".a".repeat(65)}`, /more than 64/],
    [`input.${"a".repeat(1000)}`, /at most 1000/],
  ];
  for (const [text, wanted] of faults) {
    test(text.slice(0, 40), () => {
      const parsed = parseReference(text);
      assert.ok(!parsed.ok);
      assert.match(parsed.fault, wanted);
      assert.equal(referencesIn(JSON.stringify([{ ref: text }])).faults.length, 1);
      assert.throws(() => resolveParameters(JSON.stringify({ ref: text }), scope), PlanValueError);
    });
  }
  test("a text that is no JSON", () => assert.throws(() => referencesIn("{"), PlanValueError));
});

test("texts have references of their own", () => {
  const text = `Say \${step.x.result.items[0].name} of \${ step.a-b.result } ($\${HOME}, $5, {}) \${input["}"]} \${step.x.result.count}`;
  assert.equal(resolveText(text, scope), `Say first of [1,[2,3]] (\${HOME}, $5, {}) null 0`);
  assert.deepEqual(
    referencesInText(text).references.map((reference) => reference.stepId),
    ["x", "a-b", "", "x"],
  );
  const [fault = ""] = referencesInText(`echo \${HOME}`).faults;
  assert.match(fault, /"HOME" is no reference; .*; for the characters \$\{ write \$\$\{/);
  assert.equal(referencesInText(`an open \${step.x.result`).references.length, 1);
  assert.throws(() => resolveText(`\${}`, scope), PlanValueError);
  const long = { ...scope, input: "x".repeat(700_000) };
  assert.throws(() => resolveText(`\${input}\${input}`, long), /more than/);
});

test("what references give has a bound", () => {
  const long = { ...scope, input: ["x".repeat(100_000)] };
  const many = (count: number) => JSON.stringify(Array.from({ length: count }, () => ({ ref: "input" })));
  assert.equal(JSON.stringify(resolveParameters(many(80), long)).length > 8_000_000, true);
  assert.throws(() => resolveParameters(many(90), long), /give more than 8388608 characters/);
});

test("JSON without references stays as it is, whatever its members are called", () => {
  const key = fc.oneof(fc.string(), fc.constantFrom("__proto__", "constructor", "toString"));
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(fc.jsonValue(), fc.dictionary(key, tie("value"), { maxKeys: 3 })),
  }));
  fc.assert(
    fc.property(value, (any) => {
      const text = JSON.stringify(any);
      fc.pre(referencesIn(text).references.length === 0 && referencesIn(text).faults.length === 0);
      assert.equal(JSON.stringify(resolveParameters(text, scope)), JSON.stringify(JSON.parse(text)));
    }),
  );
});

test("any path that is written is read again", () => {
  const member = fc.oneof(fc.string(), fc.nat({ max: 999_999_999 }));
  fc.assert(
    fc.property(fc.array(member, { maxLength: 6 }), (path) => {
      const parsed = parseReference(`input${path.map((part) => `[${JSON.stringify(part)}]`).join("")}`);
      assert.deepEqual(parsed.ok && parsed.reference.path, path);
    }),
  );
});
