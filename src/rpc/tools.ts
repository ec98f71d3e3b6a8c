import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { ExecuteToolResponseSchema, ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { AgentError, invalidField } from "../chat/error.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { checkRange } from "../convert/content-check.ts";
import { countFromProto } from "../convert/proto/field.ts";
import { longestTimeMs } from "../convert/proto/request.ts";
import { toolResultToProto } from "../convert/proto/tool-result.ts";
import type { SessionPermissions, Sessions } from "../session/sessions.ts";
import { callContent } from "../tool/call-content.ts";
import { checkArguments } from "../tool/check-arguments.ts";
import type { FunctionIndex, IndexedFunction } from "../tool/function-index.ts";
import type { FunctionCall, FunctionDefinition } from "../tool/function-provider.ts";
import type { FunctionSets } from "../tool/function-sets.ts";
import { decidePermission, hiddenFiles, type PermissionFinding, resolveSubject } from "../tool/permission.ts";
import { runFunction } from "../tool/run-function.ts";
import { theCaller } from "./caller.ts";
import { defaultStreamLimits } from "./chunk-stream.ts";
import type { OnceCalls } from "./once.ts";
import { optionalSessionIdFrom } from "./request-fields.ts";
import { serverIsStopping } from "./stopping.ts";
import { watchTools } from "./watch-tools.ts";

/** The server's own tools. */
export function toolHandlers(sessions: Sessions, once: OnceCalls, functions: FunctionSets, shuttingDown: AbortSignal) {
  return {
    async listTools(request) {
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const { workspace } = await sessions.permissions(theCaller, sessionId);
      const { definitions, generation } = await functions.current(workspace);
      return {
        generation: BigInt(generation),
        tools: definitions.map(({ name, title = "", description, parameters, source, readOnly, timeoutMs }) => ({
          name,
          title,
          description,
          parameters,
          source,
          readOnly,
          timeoutMs: BigInt(timeoutMs),
        })),
      };
    },
    async executeTool(request, context) {
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const timeoutMs = countFromProto(request.timeoutMs, "timeout_ms");
      checkRange(timeoutMs, 0, longestTimeMs, "timeout_ms");
      return once.execute(ToolService.method.executeTool, request, context.signal, async () => {
        const permissions = await sessions.permissions(theCaller, sessionId);
        const { workspace } = permissions;
        const isHidden = hiddenFiles(permissions.rules, workspace);
        const index = await functions.current(workspace);
        const found = findTool(index, request.name);
        const { definition } = found;
        const checked = checkArguments(definition, request.arguments);
        // What can't run anyhow is refused by nobody: its result says why.
        if (checked.ok) refuseUnlessAllowed(definition, await findingFor(permissions, found, checked.arguments));
        return {
          isRepeatable: definition.readOnly,
          interrupted: () => answerOf(toolFailure(interruptedText)),
          async run(signal) {
            const limit = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
            try {
              const result = await runFunction(
                index,
                { name: request.name, argumentsText: request.arguments },
                {
                  sessionId,
                  turnId: "",
                  toolCallId: "",
                  workspace,
                  ...(isHidden === undefined ? {} : { isHidden }),
                  signal: limit === undefined ? signal : AbortSignal.any([signal, limit]),
                },
              );
              return answerOf(result);
            } catch (error) {
              if (limit?.aborted !== true || error !== limit.reason) throw error;
              throw new AgentError("deadline", `${request.name} did not end within ${timeoutMs} ms; allow it more`, {
                cause: error,
              });
            }
          },
        };
      });
    },
    async *watchTools(request, context) {
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const afterGeneration = countFromProto(request.afterGeneration, "after_generation");
      const { workspace } = await sessions.permissions(theCaller, sessionId);
      const signal = AbortSignal.any([context.signal, shuttingDown]);
      yield* watchTools(functions, workspace, { afterGeneration, silenceMs: defaultStreamLimits.silenceMs, signal });
      if (shuttingDown.aborted) throw serverIsStopping("come back and name the last generation you have");
    },
    async checkPermission(request) {
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const permissions = await sessions.permissions(theCaller, sessionId);
      const found = findTool(await functions.current(permissions.workspace), request.name);
      const { definition } = found;
      const checked = checkArguments(definition, request.arguments);
      if (!checked.ok) throw invalidField("arguments", checked.error);
      const finding = await findingFor(permissions, found, checked.arguments);
      const { decision, rule, ruleSource, explanation, parts } = finding;
      const findings = parts.map((part) => ({ ...part, subject: shortSubject(part.subject) }));
      return { decision, rule, ruleSource, explanation, mode: permissions.rules.mode, findings };
    },
  } satisfies Partial<ServiceImpl<typeof ToolService>>;
}

const mostSubjectCharacters = 1000;

function shortSubject(subject: string): string {
  if (subject.length <= mostSubjectCharacters) return subject;
  const kept = subject.slice(0, mostSubjectCharacters).toWellFormed();
  return `${kept} … (${subject.length - mostSubjectCharacters} more characters)`;
}

const interruptedText = "interrupted, outcome unknown: check what it did before trying again";

function answerOf(result: ToolResult) {
  return create(ExecuteToolResponseSchema, { result: toolResultToProto(result) });
}

function findTool(index: FunctionIndex, name: string): IndexedFunction {
  const found = index.find(name);
  if (found !== undefined) return found;
  const known = index.definitions.map((definition) => definition.name).join(", ");
  throw new AgentError("not_found", `there is no tool ${name}; there are: ${known}`, { reason: "TOOL_NOT_FOUND" });
}

async function findingFor(
  { rules, grants, workspace }: SessionPermissions,
  found: IndexedFunction,
  given: FunctionCall["arguments"],
): Promise<PermissionFinding> {
  const contentSha256 = await callContent(found, given, workspace);
  const subject = { ...found.definition, arguments: given, workspace, contentSha256 };
  return decidePermission(rules, grants, await resolveSubject(subject));
}

function refuseUnlessAllowed(
  { name }: FunctionDefinition,
  { decision, explanation, rule, grantable }: PermissionFinding,
): void {
  if (decision === "allow") return;
  const isDenied = decision === "deny";
  // What is asked for each time no rule allows.
  const remedy = grantable ? "; allow it by a rule of the session, or of the server (permissions.allow)" : "";
  throw new AgentError(
    "permission_denied",
    isDenied
      ? `${name} is denied by the policy: ${explanation}`
      : `${name} has to be approved, and outside a turn nobody is asked: ${explanation}${remedy}`,
    { reason: isDenied ? "TOOL_DENIED" : "APPROVAL_NEEDED", metadata: { tool: name, rule } },
  );
}
