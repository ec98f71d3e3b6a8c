import { AgentError, invalidField } from "../../chat/error.ts";
import {
  type PermissionMode,
  type PermissionPolicy,
  permissionModes,
  type SessionConfig,
} from "../../chat/session-config.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../../dialect/json.ts";
import type { SessionView } from "../../session/session-view.ts";
import { theCaller } from "../caller.ts";
import type { LegacyCore } from "./legacy-core.ts";
import {
  deniedReaders,
  legacyRuleFor,
  type MappedRule,
  type RuleList,
  ruleLists,
  rulesFromLegacy,
  withoutShadowedAsks,
} from "./legacy-rules.ts";

export const legacyDecisions = ["allow", "deny", "ask"] as const;
export type LegacyDecision = (typeof legacyDecisions)[number];

type Lists = Readonly<Record<RuleList, readonly string[]>>;

/** What clients of the earlier service said of a session, in their words. */
export interface LegacyPolicies {
  readonly confirmation?: {
    readonly enabled: boolean;
    readonly autoApprove: readonly string[];
    readonly requireConfirm: readonly string[];
  };
  readonly permissions?: Lists & {
    readonly enabled: boolean;
    /** Absent where only rules were added: the mode stays as it is. */
    readonly byDefault?: LegacyDecision;
  };
  /** Names of skills whose functions may not be called. */
  readonly unloadedSkills: readonly string[];
}

/** All that is kept of it, and what became of it, to be taken back when it changes. */
interface Kept extends LegacyPolicies {
  /** Rules of ours that are in the session's permissions only because of it. */
  readonly added: Lists;
  /** The mode that the session had by itself, and the one that was written. */
  readonly ownMode?: PermissionMode;
  readonly writtenMode?: PermissionMode;
}

/** Where it is kept: among the session's metadata. */
export const policyMetadata = "legacy.policy";

const noLists: Lists = { allow: [], ask: [], deny: [] };
const mostRules = 1000;
/** Of all rules of a session together. */
const mostCharacters = 32 * 1024;

/** A session's policies as clients of the earlier service see them. */
export interface SessionPolicy {
  readonly policies: LegacyPolicies;
  /** What holds, in our own words. */
  readonly permissions: PermissionPolicy;
  /** Rules of the session that came otherwise. */
  readonly own: Lists;
  readonly approvalTimeoutMs: number;
  /** The rules as they were written, by ours that came of them. */
  readonly written: ReadonlyMap<string, readonly string[]>;
}

/** @throws {AgentError} `not_found`. */
export async function readSessionPolicy(core: LegacyCore, sessionId: string): Promise<SessionPolicy> {
  const { config } = await core.sessions.get(theCaller, sessionId);
  return policyOf(core, config, await functionNames(core, config.workspace));
}

/**
 * Changes what clients of the earlier service said of a session, and with it the session's permissions. What came into these
 * otherwise stays.
 * @throws {AgentError} `not_found`; `invalid_request` for rules that can't be read or are too many; `failed_precondition` for
 *   a mode that can't be had.
 */
export async function changeSessionPolicy(
  core: LegacyCore,
  sessionId: string,
  change: (before: LegacyPolicies) => LegacyPolicies,
  approvalTimeoutMs?: number,
): Promise<SessionPolicy> {
  const before = await core.sessions.get(theCaller, sessionId);
  const known = await functionNames(core, before.config.workspace);
  const changed = (config: SessionConfig) =>
    withPolicies(core, config, change(keptOf(config)), known, approvalTimeoutMs);
  await core.checkMode(changed(before.config).permissions?.mode ?? core.defaultMode);
  const after: SessionView = await core.sessions.update(theCaller, sessionId, (config) => {
    const next = changed(config);
    const wasChecked = next.permissions?.mode === changed(before.config).permissions?.mode;
    if (next.permissions?.mode === "bypass" && !wasChecked)
      throw new AgentError("failed_precondition", "the session was changed meanwhile; try again");
    return next;
  });
  return policyOf(core, after.config, known);
}

async function functionNames(core: LegacyCore, workspace: string): Promise<readonly string[]> {
  return (await core.functions.current(workspace)).definitions.map(({ name }) => name);
}

function policyOf(core: LegacyCore, config: SessionConfig, known: readonly string[]): SessionPolicy {
  const kept = keptOf(config);
  const written = new Map<string, readonly string[]>();
  for (const { text, rules } of readRules(kept, known).filter((each) => "rules" in each))
    for (const { list, rule } of rules) {
      const key = writtenKey(list, rule);
      written.set(key, [...(written.get(key) ?? []), text]);
    }
  const { mode } = permissionsOf(core, config);
  return {
    policies: kept,
    permissions: permissionsOf(core, config),
    own: ownOf(core, config, kept, mode).lists,
    approvalTimeoutMs: config.approvalTimeoutMs ?? core.environment.limits.approvalTimeoutMs,
    written,
  };
}

/** What `SessionPolicy.written` is read by. */
export function writtenKey(list: RuleList, rule: string): string {
  return `${list} ${rule}`;
}

/** Rules of a list as clients of the earlier service are shown them: theirs as written, others in their words. */
export function shownRules({ policies, own }: SessionPolicy, list: RuleList): readonly string[] {
  const theirs = policies.permissions?.[list] ?? [];
  return [...new Set([...theirs, ...own[list].map(legacyRuleFor)])];
}

/** What clients of the earlier service are told of a mode. */
export function decisionOfMode(mode: PermissionMode): LegacyDecision {
  const decisions = { ask: "ask", "accept-edits": "ask", "read-only": "deny", bypass: "allow" } as const;
  return decisions[mode];
}

function permissionsOf(core: LegacyCore, config: SessionConfig): PermissionPolicy {
  return config.permissions ?? { mode: core.defaultMode, ...noLists };
}

function ownOf(core: LegacyCore, config: SessionConfig, kept: Kept, mode: PermissionMode) {
  const { allow, ask, deny } = permissionsOf(core, config);
  const without = (list: RuleList, rules: readonly string[]) =>
    rules.filter((rule) => !kept.added[list].includes(rule));
  return {
    mode: kept.ownMode !== undefined && kept.writtenMode === mode ? kept.ownMode : mode,
    lists: { allow: without("allow", allow), ask: without("ask", ask), deny: without("deny", deny) },
  };
}

function withPolicies(
  core: LegacyCore,
  config: SessionConfig,
  policies: LegacyPolicies,
  known: readonly string[],
  approvalTimeoutMs: number | undefined,
): SessionConfig {
  const own = ownOf(core, config, keptOf(config), permissionsOf(core, config).mode);
  checkSize(policies);
  const rules = readRules(policies, known).flatMap((reading) => {
    if ("rules" in reading) return [reading];
    throw invalidField(reading.field, `the rule ${JSON.stringify(reading.text.slice(0, 100))} ${reading.fault}`);
  });
  const mode = modeOf(policies, own.mode);
  const ofPolicy = rules.filter(({ layer }) => layer === "permissions").flatMap((each) => each.rules);
  const others = rules.filter(({ layer }) => layer !== "permissions").flatMap((each) => each.rules);
  const ownRules = ruleLists.flatMap((list) => own.lists[list].map((rule) => ({ list, rule })));
  const isClosed = policies.permissions?.enabled === true && policies.permissions.byDefault === "deny";
  const all = [
    ...withoutShadowedAsks(ofPolicy, mode === "ask"),
    ...others,
    ...(isClosed ? deniedReaders([...ofPolicy, ...others, ...ownRules]) : []),
  ];
  const added = (list: RuleList) => [
    ...new Set(all.filter((each) => each.list === list).map(({ rule }) => rule)).difference(new Set(own.lists[list])),
  ];
  const lists = { allow: added("allow"), ask: added("ask"), deny: added("deny") };
  const permissions = {
    mode,
    allow: [...own.lists.allow, ...lists.allow],
    ask: [...own.lists.ask, ...lists.ask],
    deny: [...own.lists.deny, ...lists.deny],
  };
  const kept: Kept = { ...policies, added: lists, ownMode: own.mode, writtenMode: mode };
  const { approvalTimeoutMs: timeoutBefore, ...rest } = config;
  const timeoutMs = approvalTimeoutMs === undefined ? timeoutBefore : approvalTimeoutMs || undefined;
  // Where nothing is said of them, the server's hold, or a profile's.
  const isUnsaid =
    config.permissions === undefined &&
    mode === own.mode &&
    !saysMode(policies) &&
    ruleLists.every((list) => lists[list].length === 0);
  return {
    ...rest,
    ...(isUnsaid ? {} : { permissions }),
    ...(timeoutMs === undefined ? {} : { approvalTimeoutMs: timeoutMs }),
    metadata: { ...config.metadata, [policyMetadata]: JSON.stringify(kept) },
  };
}

/** The stricter of what both policies say; neither makes a session looser than it asks for by name. */
function modeOf({ permissions, confirmation }: LegacyPolicies, own: PermissionMode): PermissionMode {
  const modes = { ask: "ask", deny: "read-only", allow: "bypass" } as const;
  const { enabled = false, byDefault } = permissions ?? {};
  const mode = enabled && byDefault !== undefined ? modes[byDefault] : own;
  const isLoose = mode === "bypass" || mode === "accept-edits";
  return confirmation?.enabled === true && isLoose ? "ask" : mode;
}

function saysMode({ permissions, confirmation }: LegacyPolicies): boolean {
  const isByDefault = permissions?.enabled === true && permissions.byDefault !== undefined;
  return isByDefault || confirmation?.enabled === true;
}

type Layer = "permissions" | "confirmation" | "skills";

type ReadRule =
  | { readonly layer: Layer; readonly text: string; readonly rules: readonly MappedRule[] }
  | { readonly text: string; readonly field: string; readonly fault: string };

/** All rules that are in force, each read for itself. */
function readRules({ permissions, confirmation, unloadedSkills }: LegacyPolicies, known: readonly string[]) {
  const read = (layer: Layer, list: RuleList, field: string, texts: readonly string[] = []) =>
    texts.map((text, index): ReadRule => {
      const reading = rulesFromLegacy(text, list, known);
      return "rules" in reading
        ? { layer, text, rules: reading.rules }
        : { text, field: `${field}[${index}]`, fault: reading.fault };
    });
  const inForce = permissions?.enabled === true ? permissions : undefined;
  return [
    ...ruleLists.flatMap((list) => read("permissions", list, `policy.${list}`, inForce?.[list])),
    ...read("confirmation", "allow", "policy.auto_approve_tools", confirmation?.autoApprove),
    ...read("confirmation", "ask", "policy.require_confirm_tools", confirmation?.requireConfirm),
    ...unloadedSkills.map((name): ReadRule => {
      const rule = `skill:${name}`;
      return { layer: "skills", text: rule, rules: [{ list: "deny", rule }] };
    }),
  ];
}

function checkSize({ permissions, confirmation, unloadedSkills }: LegacyPolicies): void {
  const { allow, ask, deny } = permissions ?? noLists;
  const lists = [allow, ask, deny, confirmation?.autoApprove ?? [], confirmation?.requireConfirm ?? [], unloadedSkills];
  const most = Math.max(...lists.map((list) => list.length));
  if (most > mostRules) throw invalidField("policy", `has ${most} rules in one list; ${mostRules} is the most`);
  const characters = lists.flat().reduce((sum, text) => sum + text.length, 0);
  if (characters > mostCharacters)
    throw invalidField(
      "policy",
      `the session has ${characters} characters of rules then; ${mostCharacters} is the most`,
    );
}

/** What is kept of a session; nothing where somebody put something else in its place. */
function keptOf({ metadata }: SessionConfig): Kept {
  const kept = objectOf(parseJson(metadata[policyMetadata] ?? ""));
  const { confirmation, permissions } = kept;
  const ownMode = modeFrom(kept["ownMode"]);
  const writtenMode = modeFrom(kept["writtenMode"]);
  const byDefault = legacyDecisions.find((each) => each === objectOf(permissions)["byDefault"]);
  return {
    unloadedSkills: textsOf(kept["unloadedSkills"]),
    added: listsOf(objectOf(kept["added"])),
    ...(isJsonObject(confirmation)
      ? {
          confirmation: {
            enabled: confirmation["enabled"] === true,
            autoApprove: textsOf(confirmation["autoApprove"]),
            requireConfirm: textsOf(confirmation["requireConfirm"]),
          },
        }
      : {}),
    ...(isJsonObject(permissions)
      ? {
          permissions: {
            ...listsOf(permissions),
            enabled: permissions["enabled"] === true,
            ...(byDefault === undefined ? {} : { byDefault }),
          },
        }
      : {}),
    ...(ownMode === undefined ? {} : { ownMode }),
    ...(writtenMode === undefined ? {} : { writtenMode }),
  };
}

function modeFrom(value: unknown): PermissionMode | undefined {
  return permissionModes.find((mode) => mode === value);
}

function listsOf(value: JsonObject): Lists {
  return { allow: textsOf(value["allow"]), ask: textsOf(value["ask"]), deny: textsOf(value["deny"]) };
}

function textsOf(value: unknown): readonly string[] {
  return arrayOf(value).map(textOf);
}
