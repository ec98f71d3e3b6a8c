import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type CodeAgentService,
  PermissionDecision,
  PermissionPolicySchema,
  type PermissionRule,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import { isJsonObject, type JsonObject, parseJson } from "../../dialect/json.ts";
import { callContent } from "../../tool/call-content.ts";
import { decidePermission, type PermissionFinding, resolveSubject } from "../../tool/permission.ts";
import { theCaller } from "../caller.ts";
import { checkLength, sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";
import { functionNameFor, legacyRuleFor, type RuleList, ruleLists, rulesFromLegacy } from "./legacy-rules.ts";
import {
  changeSessionPolicy,
  decisionOfMode,
  type LegacyDecision,
  type LegacyPolicies,
  readSessionPolicy,
  type SessionPolicy,
  shownRules,
  writtenKey,
} from "./session-policy.ts";

const mostArgumentsCharacters = 1024 * 1024;
const mostNameCharacters = 256;
const noRules: Readonly<Record<RuleList, readonly string[]>> = { allow: [], ask: [], deny: [] };

/**
 * Of the earlier service: permission rules. They become rules and mode of the session, under the core's own order: deny
 * beats ask beats allow. A policy that is not enabled has no rules in force and does not allow everything: what the session
 * had without it holds.
 */
export function legacyPermissionHandlers(core: LegacyCore) {
  return {
    async setPermissionPolicy(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { policy } = request;
      if (policy === undefined) throw invalidField("policy", "is missing; give a policy");
      const texts = (rules: readonly PermissionRule[]) => [...new Set(rules.map(({ rule }) => rule))];
      const permissions = {
        allow: texts(policy.allow),
        ask: texts(policy.ask),
        deny: texts(policy.deny),
        enabled: policy.enabled,
        byDefault: decisionFrom(policy.defaultDecision),
      };
      checkEnabledOrNot(permissions, await knownFunctions(core, sessionId));
      const after = await changeSessionPolicy(core, sessionId, (before) => ({ ...before, permissions }));
      return { success: true, policy: policyToProto(after) };
    },
    async getPermissionPolicy(request) {
      return { policy: policyToProto(await readSessionPolicy(core, sessionIdFrom(request.sessionId))) };
    },
    async addPermissionRule(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const list = ruleLists.find((each) => each === request.ruleType.trim().toLowerCase());
      if (list === undefined)
        throw invalidField("rule_type", `is ${JSON.stringify(request.ruleType.slice(0, 40))}; say allow, deny or ask`);
      const reading = rulesFromLegacy(request.rule, list, await knownFunctions(core, sessionId));
      if ("fault" in reading) return { success: false, error: `the rule ${reading.fault}` };
      const { policies } = await readSessionPolicy(core, sessionId);
      if (policies.permissions?.enabled === false)
        return { success: false, error: "the session's permission policy is not enabled; set it with enabled first" };
      await changeSessionPolicy(core, sessionId, (before) => withRule(before, list, request.rule));
      return { success: true, error: "" };
    },
    async checkPermission(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { toolName } = request;
      if (toolName === "") throw invalidField("tool_name", "is empty; name a tool");
      checkLength(toolName, mostNameCharacters, "tool_name");
      const policy = await readSessionPolicy(core, sessionId);
      const { decision, parts } = await findingFor(core, sessionId, toolName, argumentsFrom(request.arguments));
      const rules = parts.flatMap((part) => {
        if (part.rule === "") return [];
        return policy.written.get(writtenKey(part.decision, part.rule)) ?? [legacyRuleFor(part.rule)];
      });
      return { decision: decisionToProto(decision), matchingRules: [...new Set(rules)] };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

async function knownFunctions(core: LegacyCore, sessionId: string): Promise<readonly string[]> {
  const { config } = await core.sessions.get(theCaller, sessionId);
  return (await core.functions.current(config.workspace)).definitions.map(({ name }) => name);
}

/** Rules that can't be read are refused also where they are not in force yet. */
function checkEnabledOrNot(policy: Readonly<Record<RuleList, readonly string[]>>, known: readonly string[]): void {
  for (const list of ruleLists)
    for (const [index, text] of policy[list].entries()) {
      const reading = rulesFromLegacy(text, list, known);
      if ("fault" in reading)
        throw invalidField(
          `policy.${list}[${index}]`,
          `the rule ${JSON.stringify(text.slice(0, 100))} ${reading.fault}`,
        );
    }
}

function withRule(before: LegacyPolicies, list: RuleList, rule: string): LegacyPolicies {
  const permissions = before.permissions ?? { ...noRules, enabled: true };
  return { ...before, permissions: { ...permissions, [list]: [...new Set([...permissions[list], rule])] } };
}

/** Judges a call as a turn of the session would. Of a tool there is not it is taken that it may change something. */
async function findingFor(
  core: LegacyCore,
  sessionId: string,
  toolName: string,
  given: JsonObject,
): Promise<PermissionFinding> {
  const permissions = await core.sessions.permissions(theCaller, sessionId);
  const { workspace, rules, grants } = permissions;
  const index = await core.functions.current(workspace);
  const name = functionNameFor(
    toolName,
    index.definitions.map((definition) => definition.name),
  );
  const found = index.find(name);
  const named = ownArguments(name, given);
  if (found === undefined) {
    const [, server] = /^mcp__((?:(?!__).)+)__/.exec(name) ?? [];
    const source = server === undefined ? "unknown" : `mcp:${server}`;
    const unknown = { name, source, readOnly: false, arguments: named, workspace, contentSha256: "" };
    return decidePermission(rules, grants, await resolveSubject(unknown));
  }
  const contentSha256 = await callContent(found, named, workspace);
  return decidePermission(
    rules,
    grants,
    await resolveSubject({ ...found.definition, arguments: named, workspace, contentSha256 }),
  );
}

/** The arguments of the earlier service's tools by the names that ours have for them, as far as rules look at them. */
function ownArguments(name: string, given: JsonObject): JsonObject {
  const { file_path: filePath, ...others } = given;
  const named = filePath === undefined || others["path"] !== undefined ? given : { ...others, path: filePath };
  if (name !== "list_files" || named["pattern"] !== undefined || named["path"] === undefined) return named;
  return { ...named, pattern: named["path"] };
}

function argumentsFrom(text: string): JsonObject {
  checkLength(text, mostArgumentsCharacters, "arguments");
  const value = text.trim() === "" ? {} : parseJson(text);
  if (!isJsonObject(value)) throw invalidField("arguments", "is no JSON object");
  return value;
}

function policyToProto(policy: SessionPolicy): MessageInitShape<typeof PermissionPolicySchema> {
  const rules = (list: RuleList) => shownRules(policy, list).map((rule) => ({ rule }));
  return create(PermissionPolicySchema, {
    allow: rules("allow"),
    ask: rules("ask"),
    deny: rules("deny"),
    defaultDecision: decisionToProto(decisionOfMode(policy.permissions.mode)),
    enabled: policy.policies.permissions?.enabled ?? true,
  });
}

function decisionToProto(decision: LegacyDecision): PermissionDecision {
  const decisions = { allow: PermissionDecision.ALLOW, deny: PermissionDecision.DENY, ask: PermissionDecision.ASK };
  return decisions[decision];
}

/** What is not said is asked. */
function decisionFrom(decision: PermissionDecision): LegacyDecision {
  switch (decision) {
    case PermissionDecision.ALLOW:
      return "allow";
    case PermissionDecision.DENY:
      return "deny";
    case PermissionDecision.ASK:
    case PermissionDecision.UNKNOWN:
      return "ask";
    default:
      throw invalidField("policy.default_decision", `is ${Number(decision)}; say ALLOW, DENY or ASK`);
  }
}
