import { posix } from "node:path";
import type { PermissionPolicy } from "../chat/session-config.ts";
import { pathGlob } from "./path-glob.ts";
import { TooSlow } from "./within-time.ts";

/** What may become of a call. */
export type PermissionDecision = "allow" | "ask" | "deny";

/** A call whose arguments are parsed, and what is known of its function. */
export interface PermissionSubject {
  readonly name: string;
  readonly readOnly: boolean;
  /** The function changes files of the workspace and nothing else. */
  readonly edits?: boolean;
  /** All it does is done by calls of another turn, each judged there by the same policy. */
  readonly delegates?: boolean;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Absolute path of the folder that relative paths begin in. */
  readonly workspace: string;
  /** Of what the call would run besides its arguments (`callContent`). */
  readonly contentSha256: string;
}

/** A call that somebody allowed for the rest of the session. */
export interface PermissionGrant {
  readonly name: string;
  /** What of the arguments has to be the same (`grantFor`). */
  readonly argument: string;
  /** What the call would run besides its arguments has to be the same too. */
  readonly contentSha256: string;
}

export interface PermissionFinding {
  readonly decision: PermissionDecision;
  /** The rule that decided, as it was written; empty where none matched and the mode decided. */
  readonly rule: string;
  readonly ruleSource: "session" | "answer" | "mode";
  /** A sentence for people, without a full stop. */
  readonly explanation: string;
}

interface PermissionRule {
  readonly name: string;
  readonly pattern: string | undefined;
}

type ArgumentKind = "path" | "command" | "url";

/** The argument that says what a function of the server does it to. */
const mainArguments: Readonly<Record<string, { readonly argument: string; readonly kind: ArgumentKind }>> = {
  read_file: { argument: "path", kind: "path" },
  list_files: { argument: "pattern", kind: "path" },
  search_text: { argument: "path", kind: "path" },
  write_file: { argument: "path", kind: "path" },
  edit_file: { argument: "path", kind: "path" },
  run_command: { argument: "command", kind: "command" },
  fetch_url: { argument: "url", kind: "url" },
};

/** How the main argument of other functions is found: the first of these names that they are called with. */
const usualArguments = [
  { argument: "path", kind: "path" },
  { argument: "command", kind: "command" },
  { argument: "url", kind: "url" },
] as const;

const maxRuleCharacters = 1000;
const anyMore = ":*";

/**
 * Says what may become of a call: rules that deny beat those that ask, these beat those that allow, and where none matches
 * the mode decides. What would be asked and was allowed for the session is allowed.
 *
 * A pattern is held against the main argument. Paths: a glob, as for `list_files`. Commands and URLs: the whole text, or its
 * beginning where the pattern ends in `:*`. In doubt a pattern that allows does not match and one that asks or denies does: a
 * shell's punctuation ends what can be allowed by a beginning, and words that ask or deny are found anywhere in a command.
 */
export function decidePermission(
  policy: PermissionPolicy,
  grants: readonly PermissionGrant[],
  subject: PermissionSubject,
): PermissionFinding {
  const finding = ruleFinding(policy, subject) ?? modeFinding(policy, subject);
  if (finding.decision !== "ask") return finding;
  if (!isGranted(grants, subject)) return finding;
  const { name, argument } = grantFor(subject);
  return {
    decision: "allow",
    rule: `${name}(${mainArgument(subject)?.text ?? argument})`,
    ruleSource: "answer",
    explanation: "it was allowed for the rest of the session",
  };
}

/** Whether somebody allowed this very call for the rest of the session. */
export function isGranted(grants: readonly PermissionGrant[], subject: PermissionSubject): boolean {
  const { name, argument, contentSha256 } = grantFor(subject);
  return grants.some(
    (grant) => grant.name === name && grant.argument === argument && grant.contentSha256 === contentSha256,
  );
}

/** What is remembered when a call is allowed for the rest of the session: the same function with the same argument. */
export function grantFor(subject: Pick<PermissionSubject, "name" | "arguments" | "contentSha256">): PermissionGrant {
  const { name, contentSha256 } = subject;
  const named = mainArguments[name]?.argument;
  const main = named === undefined ? undefined : subject.arguments[named];
  return { name, argument: main === undefined ? sortedJson(subject.arguments) : sortedJson(main), contentSha256 };
}

/** What a call is about, in a text for people: its main argument, where it has one. */
export function mainArgumentText(subject: Pick<PermissionSubject, "name" | "arguments">): string {
  return mainArgument(subject)?.text ?? "";
}

/** Says what is wrong with a rule as somebody wrote it, as the end of a sentence; `undefined` for a good one. */
export function ruleFault(text: string): string | undefined {
  const wanted = "write a rule as name or name(pattern), for example run_command(git status:*) or read_file(src/**)";
  if (text.length > maxRuleCharacters) return `has ${text.length} characters; ${maxRuleCharacters} is the most`;
  const rule = parseRule(text);
  if (rule === undefined) return `is no rule; ${wanted}`;
  const { name, pattern } = rule;
  if (pattern === undefined) return undefined;
  if (pattern.trim() === "" || pattern === anyMore) return `has an empty pattern; ${wanted}`;
  const kind = mainArguments[name]?.kind;
  if (kind !== "command" && kind !== "url") return undefined;
  const plain = pattern.endsWith(anyMore) ? pattern.slice(0, -anyMore.length) : pattern;
  return plain.includes("*")
    ? `has a * inside its pattern; for ${name} only :* at its end has a meaning, for any text that begins so`
    : undefined;
}

function parseRule(text: string): PermissionRule | undefined {
  const [, name, , pattern] = /^([\p{L}\p{N}_.:/-]+)(\(([\s\S]*)\))?$/u.exec(text) ?? [];
  return name === undefined ? undefined : { name, pattern };
}

function ruleFinding(policy: PermissionPolicy, subject: PermissionSubject): PermissionFinding | undefined {
  for (const decision of ["deny", "ask", "allow"] as const) {
    const rule = policy[decision].find((text) => {
      const parsed = parseRule(text);
      return parsed !== undefined && matches(parsed, subject, decision === "allow");
    });
    if (rule === undefined) continue;
    const says = { deny: "denies it", ask: "asks for approval", allow: "allows it" }[decision];
    return { decision, rule, ruleSource: "session", explanation: `the rule ${rule} ${says}` };
  }
  return undefined;
}

function modeFinding({ mode }: PermissionPolicy, subject: PermissionSubject): PermissionFinding {
  const of = (decision: PermissionDecision, explanation: string) =>
    ({ decision, rule: "", ruleSource: "mode", explanation }) as const;
  if (mode === "bypass") return of("allow", "the mode bypass allows every tool");
  if (subject.readOnly) return of("allow", `${subject.name} only reads`);
  if (subject.delegates === true) return of("allow", `what ${subject.name} does is judged call by call`);
  if (mode === "accept-edits" && subject.edits === true) return of("allow", "the mode accept-edits allows edits");
  const may = `${subject.name} may change something`;
  return mode === "read-only"
    ? of("deny", `${may}, and the mode is read-only`)
    : of("ask", `${may}, and the mode ${mode} asks for approval of that`);
}

function mainArgument({ name, arguments: given }: Pick<PermissionSubject, "name" | "arguments">) {
  const known = mainArguments[name];
  const { argument, kind } = known ?? usualArguments.find((usual) => typeof given[usual.argument] === "string") ?? {};
  if (argument === undefined || kind === undefined) return undefined;
  const value = given[argument];
  if (typeof value === "string") return { text: value, kind };
  return kind === "path" ? { text: ".", kind } : undefined; // without a path a function works in the whole workspace
}

/** @param inFull for rules that allow: what is not understood in full does not match */
function matches(rule: PermissionRule, subject: PermissionSubject, inFull: boolean): boolean {
  if (rule.name !== subject.name) return false;
  if (rule.pattern === undefined) return true;
  const argument = mainArgument(subject);
  if (argument === undefined) return false;
  switch (argument.kind) {
    case "path":
      return matchesPath(rule.pattern, argument.text, subject.workspace, inFull);
    case "command":
      return matchesCommand(rule.pattern, argument.text, inFull);
    case "url":
      return matchesUrl(rule.pattern, argument.text);
    default:
      return argument.kind satisfies never;
  }
}

function matchesPath(pattern: string, given: string, workspace: string, inFull: boolean): boolean {
  const path =
    given === workspace ? "." : given.startsWith(`${workspace}/`) ? given.slice(workspace.length + 1) : given;
  // Where a link is on the way, `..` leads elsewhere than the text says.
  if (inFull && path.split("/").includes("..")) return false;
  const plain = posix.normalize(path).replace(/(?<=.)\/$/, "");
  if (plain === ".") return pattern === "**" || pattern === ".";
  try {
    return pathGlob(pattern)(inFull ? [plain] : [plain, path]).length > 0;
  } catch (error) {
    if (error instanceof TooSlow || error instanceof RangeError) return !inFull;
    throw error;
  }
}

/** Commands that a shell takes word by word: no second command, no redirection, nothing that is replaced by something else. */
const plainCommand = /^[\p{L}\p{N}_./:=@%+,~^"' \t-]*$/u;

function matchesCommand(pattern: string, given: string, inFull: boolean): boolean {
  const command = given.trim();
  const prefix = pattern.endsWith(anyMore) ? pattern.slice(0, -anyMore.length).trim() : undefined;
  if (inFull) {
    if (command === pattern) return true;
    return prefix !== undefined && plainCommand.test(command) && `${command} `.startsWith(`${prefix} `);
  }
  const words = (prefix ?? pattern).trim().split(/\s+/).map(inExpression);
  return new RegExp(`(?<![\\p{L}\\p{N}_-])${words.join("\\s+")}(?![\\p{L}\\p{N}_-])`, "u").test(command);
}

function inExpression(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

function matchesUrl(pattern: string, given: string): boolean {
  const url = URL.parse(given)?.href ?? given;
  if (!pattern.endsWith(anyMore)) return url === (URL.parse(pattern)?.href ?? pattern);
  const prefix = pattern.slice(0, -anyMore.length);
  if (!url.startsWith(prefix)) return false;
  const next = url.charAt(prefix.length);
  return prefix.endsWith("/") || next === "" || "/?#".includes(next);
}

/** JSON in which the order of keys makes no difference. */
function sortedJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([left], [right]) => (left < right ? -1 : 1)))
      : inner,
  );
}
