import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { GenerateResponseSchema, type ToolCall, ToolCallSchema } from "../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { callsThatFit } from "../../src/rpc/legacy/calls-that-fit.ts";

const call = (given: string, output: string, error = "", metadata: Record<string, string> = {}): ToolCall =>
  create(ToolCallSchema, { id: "c", name: "f", arguments: given, result: { success: true, output, error, metadata } });

describe("calls in one answer", () => {
  test("are whole where they fit", () => {
    const calls = [call('{"a":1}', "x".repeat(900)), create(ToolCallSchema, { id: "d", name: "f", arguments: "{}" })];
    assert.deepEqual(callsThatFit(calls, 1000), calls);
  });

  test("lose the middle of the longest texts, and short ones stay", () => {
    const [first, second, third] = callsThatFit(
      [
        call("{}", "short"),
        call("{}", `a${"x".repeat(5000)}z`),
        call("{}", "", "y".repeat(300), { diff: "d".repeat(5000) }),
      ],
      2000,
    );
    assert.deepEqual([first?.result?.output, first?.result?.metadata], ["short", {}]);
    assert.match(second?.result?.output ?? "", /^ax+\n\[\.\.\. \d+ bytes left out \.\.\.\]\nx+z$/);
    assert.equal(second?.result?.metadata["truncated"], "true");
    assert.equal(third?.result?.error, "y".repeat(300));
    assert.match(third?.result?.metadata["diff"] ?? "", /bytes left out/);
    assert.equal(third?.result?.metadata["truncated"], "true");
  });

  test("have arguments that are JSON, whole or left out", () => {
    const [long, short] = callsThatFit([call(`{"a":"${"x".repeat(5000)}"}`, "done"), call('{"b":1}', "done")], 1000);
    assert.deepEqual([long?.arguments, long?.result?.metadata], ["{}", { arguments_left_out: "true" }]);
    assert.deepEqual([short?.arguments, short?.result?.metadata], ['{"b":1}', {}]);
  });

  for (const [name, calls, mostBytes] of [
    ["many", Array.from({ length: 3200 }, () => call(`{"a":"${"ä".repeat(2000)}"}`, "ö".repeat(2000))), 3_000_000],
    ["with no room at all", [call('{"a":1}', "x".repeat(100))], -5],
  ] as const)
    test(`fit: ${name}`, () => {
      const toolCalls = callsThatFit(calls, mostBytes);
      assert.equal(toolCalls.length, calls.length);
      const bytes = toBinary(GenerateResponseSchema, create(GenerateResponseSchema, { toolCalls })).length;
      assert.ok(bytes < Math.max(0, mostBytes) + 150 * calls.length, `${bytes} bytes`);
      for (const { arguments: given } of toolCalls) JSON.parse(given);
    });
});
