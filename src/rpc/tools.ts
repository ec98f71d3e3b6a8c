import type { ServiceImpl } from "@connectrpc/connect";
import type { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { AgentError } from "../chat/error.ts";
import { checkRange } from "../convert/content-check.ts";
import { countFromProto } from "../convert/proto/field.ts";
import { longestTimeMs } from "../convert/proto/request.ts";
import { toolResultToProto } from "../convert/proto/tool-result.ts";
import type { Sessions } from "../session/sessions.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { runFunction } from "../tool/run-function.ts";
import { theCaller } from "./caller.ts";
import { optionalSessionIdFrom, requestIdFrom } from "./request-fields.ts";

/** The server's own tools. */
export function toolHandlers(sessions: Sessions, functions: () => Promise<FunctionIndex>, defaultWorkspace: string) {
  const workspaceOf = async (sessionId: string) =>
    sessionId === "" ? defaultWorkspace : (await sessions.get(theCaller, sessionId)).config.workspace;
  return {
    async listTools(request) {
      await workspaceOf(optionalSessionIdFrom(request.sessionId));
      const { definitions } = await functions();
      return {
        generation: 1n,
        tools: definitions.map(({ name, description, parameters, source, readOnly, timeoutMs }) => ({
          name,
          description,
          parameters,
          source,
          readOnly,
          timeoutMs: BigInt(timeoutMs),
        })),
      };
    },
    async executeTool(request, context) {
      requestIdFrom(request.requestId);
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const timeoutMs = countFromProto(request.timeoutMs, "timeout_ms");
      checkRange(timeoutMs, 0, longestTimeMs, "timeout_ms");
      const workspace = await workspaceOf(sessionId);
      const index = await functions();
      const found = index.find(request.name);
      if (found === undefined) {
        const known = index.definitions.map((definition) => definition.name).join(", ");
        throw new AgentError("not_found", `there is no tool ${request.name}; there are: ${known}`, {
          reason: "TOOL_NOT_FOUND",
        });
      }
      const signals = [context.signal];
      const limit = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
      if (limit !== undefined) signals.push(limit);
      try {
        const result = await runFunction(
          index,
          { name: request.name, argumentsText: request.arguments },
          { sessionId, turnId: "", toolCallId: "", workspace, signal: AbortSignal.any(signals) },
        );
        return { result: toolResultToProto(result) };
      } catch (error) {
        if (limit?.aborted !== true || error !== limit.reason) throw error;
        throw new AgentError("deadline", `${request.name} did not end within ${timeoutMs} ms; allow it more`, {
          cause: error,
        });
      }
    },
  } satisfies Partial<ServiceImpl<typeof ToolService>>;
}
