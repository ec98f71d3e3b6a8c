import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, fromBinary, fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { PlanSchema } from "../../../gen/codeagent/v1/plan_service_pb.ts";
import { AgentError } from "../../../src/chat/error.ts";
import {
  planDraftFromProto,
  planDraftToProto,
  planVersionFromText,
  planVersionText,
} from "../../../src/convert/proto/plan.ts";
import * as arbitrary from "../arbitrary.ts";

test("a plan is the same after the wire", () => {
  fc.assert(
    fc.property(arbitrary.planDraft, (draft) => {
      const sent = fromBinary(PlanSchema, toBinary(PlanSchema, planDraftToProto(draft)));
      assert.deepEqual(planDraftFromProto(sent, "plan"), draft);
    }),
    { numRuns: 100 },
  );
});

test("a version is the same after the log", () => {
  fc.assert(
    fc.property(arbitrary.planVersion, (version) => {
      assert.deepEqual(planVersionFromText(planVersionText(version)), version);
    }),
    { numRuns: 100 },
  );
});

test("a version that can't be read is lost data", () => {
  const isLoss = (error: unknown) => error instanceof AgentError && error.kind === "data_loss";
  for (const text of ["", "[]", '{"steps": [{"kind": "dance"}]}'])
    assert.throws(() => planVersionFromText(text), isLoss, text);
  // What was taken once stays readable when the bounds are drawn closer.
  assert.equal(planVersionFromText('{"steps":[{"id":"", "kind":"function_call"}], "new_field": 1}').steps.length, 1);
});

const call: JsonObject = { id: "a", kind: "function_call", function: "f", parameters: "{}" };
function nested(levels: number): JsonObject {
  const inner = levels === 1 ? call : nested(levels - 1);
  return { id: `n${levels}`, kind: "for_each", for_each: { items: "[]", steps: [inner] } };
}

const refused: readonly (readonly [string, JsonObject, string, RegExp])[] = [
  ["no kind", { id: "a" }, "plan.steps[0].kind", /is empty; use one of/],
  ["an unknown kind", { id: "a", kind: "dance" }, "plan.steps[0].kind", /"dance"/],
  ["no id", { ...call, id: "" }, "plan.steps[0].id", /is empty/],
  ["an id with a dot", { ...call, id: "a.b" }, "plan.steps[0].id", /A-Z a-z 0-9 _ -/],
  ["an id that is too long", { ...call, id: "a".repeat(65) }, "plan.steps[0].id", /1 to 64/],
  ["a dependency that is no id", { ...call, depends_on: ["b", "c d"] }, "plan.steps[0].depends_on[1]", /c d/],
  ["no function", { ...call, function: " " }, "plan.steps[0].function", /is empty/],
  [
    "details of another kind",
    { ...call, model: { prompt: "x" } },
    "plan.steps[0].model",
    /this one is a function_call/,
  ],
  ["no details", { id: "a", kind: "model" }, "plan.steps[0].model", /is missing/],
  [
    "a function for another kind",
    { id: "a", kind: "model", function: "f", model: { prompt: "x" } },
    "plan.steps[0].function",
    /kind function_call/,
  ],
  ["an empty prompt", { id: "a", kind: "model", model: {} }, "plan.steps[0].model.prompt", /is empty/],
  ["no cases", { id: "a", kind: "branch", branch: {} }, "plan.steps[0].branch.cases", /is empty/],
  [
    "an empty condition of a case",
    { id: "a", kind: "branch", branch: { cases: [{ condition: "true" }, {}] } },
    "plan.steps[0].branch.cases[1].condition",
    /is empty/,
  ],
  [
    "a fault within a for_each",
    { id: "a", kind: "for_each", for_each: { items: "[]", steps: [call, { ...call, on_error: "panic" }] } },
    "plan.steps[0].for_each.steps[1].on_error",
    /fail, skip, continue/,
  ],
  ["no attempts", { ...call, retry: { max_attempts: 0 } }, "plan.steps[0].retry.max_attempts", /within 1 and 20/],
  ["a factor below 1", { ...call, retry: { backoff_factor: 0.5 } }, "plan.steps[0].retry.backoff_factor", /0\.5/],
  [
    "a factor that is no number",
    { ...call, retry: { backoff_factor: "NaN" } },
    "plan.steps[0].retry.backoff_factor",
    /NaN/,
  ],
  ["a pause of days", { ...call, retry: { delay_ms: "100000000" } }, "plan.steps[0].retry.delay_ms", /3600000/],
  ["no time at all", { ...call, timeout_ms: "0" }, "plan.steps[0].timeout_ms", /within 1/],
  [
    "parameters that are too long",
    { ...call, parameters: `"${"x".repeat(65_536)}"` },
    "plan.steps[0].parameters",
    /65538 bytes/,
  ],
  ["an empty criterion", { success_criteria: ["a", " "] }, "plan.success_criteria[1]", /is empty/],
  ["an unknown complexity", { complexity: "huge" }, "plan.complexity", /very_complex/],
];

describe("a plan that can't be taken names the field", () => {
  for (const [what, json, field, description] of refused) {
    test(what, () => {
      const plan = fromJson(PlanSchema, "kind" in json || "id" in json ? { steps: [json] } : json);
      assert.throws(
        () => planDraftFromProto(plan, "plan"),
        (error) => {
          assert.ok(error instanceof AgentError);
          assert.equal(error.fieldViolations[0]?.field, field);
          assert.match(error.message, description);
          return true;
        },
      );
    });
  }

  test("too many steps, nested ones included", () => {
    const many = (count: number) => fromJson(PlanSchema, { steps: Array.from({ length: count }, () => nested(1)) });
    assert.equal(planDraftFromProto(many(250), "").steps.length, 250);
    assert.throws(() => planDraftFromProto(many(251), ""), /at most 500/);
  });

  test("too many lists within each other", () => {
    const deep = (levels: number) => fromJson(PlanSchema, { steps: [nested(levels)] });
    assert.equal(planDraftFromProto(deep(7), "").steps.length, 1);
    assert.throws(() => planDraftFromProto(deep(8), ""), /nests steps 9 deep; at most 8/);
  });

  test("half a surrogate pair", () => {
    assert.throws(() => planDraftFromProto(create(PlanSchema, { goal: "\ud800" }), ""), /surrogate/);
  });
});
