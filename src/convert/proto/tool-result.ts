import { create } from "@bufbuild/protobuf";
import type { ToolResult as ProtoToolResult } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolResultSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { ToolResult } from "../../chat/tool-result.ts";
import { present, presentMap, presentText } from "../present.ts";
import { countFromProto, integerToProto } from "./field.ts";

/** Reads what a tool run came to. The contract knows no absent duration: 0 milliseconds is read as unknown. */
export function toolResultFromProto(result: ProtoToolResult, path = "result"): ToolResult {
  return present({
    success: result.success,
    output: result.output,
    error: presentText(result.error),
    durationMs: countFromProto(result.durationMs, `${path}.duration_ms`) || undefined,
    truncated: result.truncated || undefined,
    metadata: presentMap(result.metadata),
  });
}

/** Writes what a tool run came to; the duration is rounded to milliseconds. */
export function toolResultToProto(result: ToolResult): ProtoToolResult {
  return create(ToolResultSchema, {
    success: result.success,
    output: result.output,
    error: result.error ?? "",
    durationMs: integerToProto(result.durationMs) ?? 0n,
    truncated: result.truncated ?? false,
    metadata: { ...result.metadata },
  });
}
