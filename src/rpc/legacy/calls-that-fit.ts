import { create } from "@bufbuild/protobuf";
import { type ToolCall, ToolCallSchema } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { boundedText } from "../../tool/bounded-text.ts";

/**
 * The calls of a turn with their results, small enough for one answer: where their texts are more than `mostBytes` together,
 * the longest of them lose their middle, which the result's metadata tells (`truncated`). Arguments are JSON and whole or
 * `{}` (`arguments_left_out`).
 */
export function callsThatFit(calls: readonly ToolCall[], mostBytes: number): ToolCall[] {
  const sizes = calls.flatMap(({ arguments: given, result }) => [
    Buffer.byteLength(given),
    ...textsOf(result).map((text) => Buffer.byteLength(text)),
  ]);
  const limitBytes = limitFor(sizes, mostBytes);
  return limitBytes === undefined ? [...calls] : calls.map((call) => shortened(call, limitBytes));
}

function textsOf(result: ToolCall["result"]): readonly string[] {
  return result === undefined ? [] : [result.output, result.error, ...Object.values(result.metadata)];
}

/** How long each may be, where what short ones leave is for the others; undefined where all fit. */
function limitFor(sizes: readonly number[], mostBytes: number): number | undefined {
  let left = mostBytes;
  for (const [index, size] of sizes.toSorted((one, other) => one - other).entries()) {
    const limit = Math.floor(left / (sizes.length - index));
    if (size > limit) return Math.max(0, limit);
    left -= size;
  }
  return undefined;
}

function shortened(call: ToolCall, limitBytes: number): ToolCall {
  const { id, name, arguments: given, result } = call;
  let isCut = false;
  const cut = (text: string): string => {
    if (Buffer.byteLength(text) <= limitBytes) return text;
    isCut = true;
    return boundedText(text, limitBytes).text;
  };
  const isLeftOut = Buffer.byteLength(given) > limitBytes;
  const shown = { id, name, arguments: isLeftOut ? "{}" : given };
  if (result === undefined) return create(ToolCallSchema, shown);
  const { success } = result;
  const texts = { output: cut(result.output), error: cut(result.error) };
  const metadata = Object.fromEntries(Object.entries(result.metadata).map(([key, value]) => [key, cut(value)]));
  if (isCut) metadata["truncated"] = "true";
  if (isLeftOut) metadata["arguments_left_out"] = "true";
  return create(ToolCallSchema, { ...shown, result: { success, ...texts, metadata } });
}
