import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { GenerateOptions, ModelOptions } from "../../src/chat/request.ts";
import { modelOptions } from "../../src/session/model-options.ts";

interface OptionCase {
  readonly name: string;
  readonly turn: GenerateOptions;
  readonly first?: ModelOptions;
  readonly later: ModelOptions;
  readonly lastResponseId?: string;
}

const cases: readonly OptionCase[] = [
  { name: "none", turn: {}, later: {} },
  {
    name: "what concerns the turn is kept from the model",
    turn: { maxSteps: 1, budget: {}, allowedTools: [], timeoutMs: 1, metadata: {}, topP: 1 },
    first: { topP: 1 },
    later: { topP: 1 },
  },
  { name: "a tool is forced once", turn: { toolChoice: "look" }, later: { toolChoice: "auto" } },
  { name: "no tools are none at every step", turn: { toolChoice: "none" }, later: { toolChoice: "none" } },
  { name: "storing", turn: { stateful: { store: true } }, later: { stateful: { store: true } } },
  {
    name: "each step goes on from the one before",
    turn: { stateful: { previousResponseId: "resp_0" }, toolChoice: "required" },
    later: { stateful: { previousResponseId: "resp_1" }, toolChoice: "auto" },
  },
  {
    name: "nothing goes on from an answer that is not kept",
    turn: { stateful: { previousResponseId: "resp_0", store: false } },
    later: { stateful: { store: false } },
  },
  {
    name: "nothing goes on from an answer nobody knows",
    turn: { stateful: { previousResponseId: "resp_0", store: true } },
    later: { stateful: { store: true } },
    lastResponseId: "",
  },
];

describe("the options of a step", () => {
  for (const { name, turn, first = turn, later, lastResponseId = "resp_1" } of cases) {
    test(name, () => {
      assert.deepEqual(modelOptions(turn, 1, "", true), first);
      assert.deepEqual(modelOptions(turn, 2, lastResponseId, true), later);
    });
  }

  test("another model goes on from nobody's answer", () => {
    const turn = { stateful: { previousResponseId: "resp_0", store: true } };
    assert.deepEqual(modelOptions(turn, 1, "", false), { stateful: { store: true } });
    assert.deepEqual(modelOptions(turn, 2, "resp_1", false), { stateful: { store: true } });
  });
});
