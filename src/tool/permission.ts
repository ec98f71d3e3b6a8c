import { posix } from "node:path";
import type { PermissionMode, PermissionPolicy } from "../chat/session-config.ts";
import { judgeCommandLine } from "./judge-command.ts";
import { patchedPaths } from "./patch-text.ts";
import {
  type ArgumentKind,
  faultOfRule,
  matchesPath,
  matchesUrl,
  type PermissionRule,
  permissionRule,
} from "./permission-rule.ts";
import { type ResolvedPath, resolveRealPath } from "./real-path.ts";
import type { SandboxKind } from "./sandbox/sandbox.ts";
import { type CommandLine, everyCommand, readCommandLine } from "./shell/command-line.ts";

/** What may become of a call. */
export type PermissionDecision = "allow" | "ask" | "deny";

/** Where a rule stands; `answer` is a call that somebody allowed for the session, `mode` decides where no rule matches. */
export type RuleSource = "built_in" | "server" | "profile" | "session" | "skill" | "answer" | "mode";

/** Rules for all sessions of a server, and what holds where a session says nothing. */
export interface ServerPermissions extends PermissionPolicy {
  /** The walls around programs; `none` where there are none, and then each program is asked for. */
  readonly sandbox: SandboxKind;
}

/** What a skill of the operator's that is loaded in the session needs for its work (`allowed-tools`). */
export interface SkillPermissions {
  readonly skill: string;
  readonly allow: readonly string[];
}

/** What the operator says of the turns of a profile; without a mode the one there is without the profile holds. */
export interface ProfilePermissions extends Omit<PermissionPolicy, "mode"> {
  readonly profile: string;
  readonly mode?: PermissionMode;
}

/** Rules of one source. */
export interface PermissionLayer {
  readonly source: "server" | "profile" | "session" | "skill";
  /** Name of the profile. */
  readonly profile?: string;
  /** Name of the skill. */
  readonly skill?: string;
  readonly allow: readonly string[];
  readonly ask: readonly string[];
  readonly deny: readonly string[];
}

/** All that calls of a session are judged by. */
export interface SessionRules {
  readonly mode: PermissionMode;
  readonly layers: readonly PermissionLayer[];
  readonly sandbox: SandboxKind;
}

/** A call whose arguments are parsed, and what is known of its function. */
export interface PermissionSubject {
  readonly name: string;
  /** Where the function comes from, as `mcp:github`; default the server's own. */
  readonly source?: string;
  readonly readOnly: boolean;
  /** The function changes files of the workspace and nothing else. */
  readonly edits?: boolean;
  /** The function starts a process. */
  readonly runsProgram?: boolean;
  /** What it is given may leave this server. */
  readonly openWorld?: boolean;
  /** The function comes with the workspace: its name says nothing of what it runs, so that no rule allows it. */
  readonly ofWorkspace?: boolean;
  /** All it does is done by calls of another turn, each judged there by the same policy. */
  readonly delegates?: boolean;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Absolute path of the folder that relative paths begin in. */
  readonly workspace: string;
  /** Of what the call would run besides its arguments (`callContent`). */
  readonly contentSha256: string;
  /** Where the paths of the call lead, by how they are written; one that is missing is taken as it is written. */
  readonly paths?: ReadonlyMap<string, ResolvedPath>;
  /** The command of the call. */
  readonly commandLine?: CommandLine;
}

/** A call that somebody allowed for the rest of the session. */
export interface PermissionGrant {
  readonly name: string;
  /** What of the arguments has to be the same (`grantFor`). */
  readonly argument: string;
  /** What the call would run besides its arguments has to be the same too. */
  readonly contentSha256: string;
}

/** What a part of a call came to: one simple command, one path, one URL, or all of it. */
export interface PermissionPart {
  readonly subject: string;
  readonly decision: PermissionDecision;
  /** The rule that decided, as it was written; empty where none matched. */
  readonly rule: string;
  readonly ruleSource: RuleSource;
  /** A sentence for people, without a full stop. */
  readonly explanation: string;
}

export interface PermissionFinding extends Omit<PermissionPart, "subject"> {
  /** Whether an `ask` may be answered for the rest of the session; what is asked for each time may not. */
  readonly grantable: boolean;
  /** At least one; the finding is the strictest of them. */
  readonly parts: readonly PermissionPart[];
}

/** Judges a call by one rule after the other. */
export interface Judge {
  readonly rules: SessionRules;
  readonly subject: PermissionSubject;
  readonly mode: PermissionMode;
  /** The strictest rule that matches: deny, ask, allow. */
  byRules(matches: (rule: PermissionRule, decision: PermissionDecision) => boolean): Judgement | undefined;
  byMode(): Judgement;
  /** What becomes of writing to a file, or reading it, whichever function does it. */
  path(path: ResolvedPath, access: "read" | "write"): Judgement;
}

export type Judgement = Omit<PermissionPart, "subject">;

/** The argument that says what a function of the server does it to. */
const mainArguments: Readonly<Record<string, { readonly argument: string; readonly kind: ArgumentKind }>> = {
  read_file: { argument: "path", kind: "path" },
  list_files: { argument: "pattern", kind: "path" },
  search_text: { argument: "path", kind: "path" },
  write_file: { argument: "path", kind: "path" },
  edit_file: { argument: "path", kind: "path" },
  apply_patch: { argument: "patch", kind: "path" },
  run_command: { argument: "command", kind: "command" },
  fetch_url: { argument: "url", kind: "url" },
};

/** How the main argument of other functions is found: the first of these names that they are called with. */
const usualArguments = [
  { argument: "path", kind: "path" },
  { argument: "command", kind: "command" },
  { argument: "url", kind: "url" },
] as const;

/** Rules for one of these that deny or ask are about all: what one may not see, no other may show. */
const families: Readonly<Record<"read" | "write", readonly string[]>> = {
  read: ["read_file", "search_text"],
  write: ["write_file", "edit_file", "apply_patch"],
};

/** Files that decide what this server, its agents or git run; file functions ask before they change one. */
const protectedNames: ReadonlySet<string> = new Set([
  ".git",
  ".codeagent",
  ".mcp.json",
  "codeagent.yaml",
  "codeagent.yml",
]);

/**
 * Puts together what the calls of a session are judged by. The rules of a profile count as the server's do. Its mode holds
 * in place of the server's; where the session has a mode of its own, the stricter of the two holds.
 */
export function rulesOf(
  server: ServerPermissions,
  session: PermissionPolicy | undefined,
  skills: readonly SkillPermissions[] = [],
  profile?: ProfilePermissions,
): SessionRules {
  const layers: PermissionLayer[] = [{ ...server, source: "server" }];
  if (profile !== undefined) layers.push({ ...profile, source: "profile" });
  if (session !== undefined) layers.push({ ...session, source: "session" });
  for (const { skill, allow } of skills) layers.push({ source: "skill", skill, allow, ask: [], deny: [] });
  const modes = [session?.mode, profile?.mode].filter((mode) => mode !== undefined);
  const mode = strictestFirst.find((each) => modes.includes(each)) ?? server.mode;
  return { mode, layers, sandbox: server.sandbox };
}

const strictestFirst: readonly PermissionMode[] = ["read-only", "ask", "accept-edits", "bypass"];

/** Finds out what of a call depends on the file system, so that `decidePermission` need not look. */
export async function resolveSubject<Subject extends PermissionSubject>(subject: Subject): Promise<Subject> {
  const main = mainArgument(subject);
  if (main === undefined || main.kind === "url") return subject;
  const commandLine = main.kind === "command" ? readCommandLine(main.text) : undefined;
  const named = commandLine === undefined ? pathsOf(subject, main.text) : pathsNamedIn(commandLine);
  const resolved = await Promise.all(
    named.map(async (path): Promise<[string, ResolvedPath]> => [path, await resolveRealPath(subject.workspace, path)]),
  );
  return { ...subject, paths: new Map(resolved), ...(commandLine === undefined ? {} : { commandLine }) };
}

/**
 * Says what may become of a call: rules that deny beat those that ask, these beat those that allow, whoever wrote them, and
 * where none matches the mode decides. What would be asked and was allowed for the session is allowed.
 *
 * A pattern is held against the main argument. Paths: a glob, held against where the path leads. Commands: every simple
 * command within counts for itself; one that allows has to cover each of them. URLs: the whole, a beginning or a domain. In
 * doubt a pattern that allows does not match and one that asks or denies does.
 * @param subject as `resolveSubject` gives it; without that paths count as they are written
 */
export function decidePermission(
  rules: SessionRules,
  grants: readonly PermissionGrant[],
  subject: PermissionSubject,
): PermissionFinding {
  const parts = partsOf(judgeFor(rules, subject), subject);
  const strictest =
    parts.find((part) => part.decision === "deny") ?? parts.find((part) => part.decision === "ask") ?? parts[0];
  if (strictest === undefined) throw new Error(`no part of a call of ${subject.name} was judged`);
  const { subject: _, ...decided } = strictest;
  if (decided.decision === "deny") return { ...decided, grantable: false, parts };
  if (subject.runsProgram === true && rules.sandbox === "none") {
    const explanation = `${subject.name} runs programs, there is no sandbox around them, and so each call is asked for`;
    return { decision: "ask", rule: "", ruleSource: "built_in", explanation, grantable: false, parts };
  }
  const grantable = parts.every((part) => part.decision !== "ask" || part.ruleSource !== "built_in");
  if (decided.decision === "allow" || !grantable || !isGranted(grants, subject))
    return { ...decided, grantable, parts };
  const { name, argument } = grantFor(subject);
  return {
    decision: "allow",
    rule: `${name}(${mainArgument(subject)?.text ?? argument})`,
    ruleSource: "answer",
    explanation: "it was allowed for the rest of the session",
    grantable,
    parts,
  };
}

/** Whether somebody allowed this very call for the rest of the session. */
export function isGranted(grants: readonly PermissionGrant[], subject: PermissionSubject): boolean {
  const { name, argument, contentSha256 } = grantFor(subject);
  return grants.some(
    (grant) => grant.name === name && grant.argument === argument && grant.contentSha256 === contentSha256,
  );
}

/**
 * Tells files that nobody may read without being asked, by their real paths from the workspace; `undefined` where no rule
 * names any. What looks into a whole folder leaves them out.
 */
export function hiddenFiles(rules: SessionRules, workspace: string): ((path: string) => boolean) | undefined {
  const patterns = rules.layers
    .flatMap(({ deny, ask }) => [...deny, ...ask])
    .map(permissionRule)
    .filter((rule) => families.read.some((name) => rule?.isAbout(name, "local")))
    .flatMap((rule) => rule?.pattern ?? []);
  if (patterns.length === 0) return undefined;
  return (path) => {
    const place = { given: path, real: posix.join(workspace, path), relative: path };
    return patterns.some((pattern) => matchesPath(pattern, place, false));
  };
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
  return faultOfRule(text, (name) => (Object.hasOwn(mainArguments, name) ? mainArguments[name]?.kind : undefined));
}

function partsOf(judge: Judge, subject: PermissionSubject): readonly PermissionPart[] {
  const { workspace, paths: resolved } = subject;
  const main = mainArgument(subject);
  const whole = (text: string, judgement: Judgement): PermissionPart => ({ subject: text, ...judgement });
  const ofName = () => judge.byRules((rule) => rule.pattern === undefined) ?? judge.byMode();
  if (main === undefined) return [whole(subject.name, ofName())];
  switch (main.kind) {
    case "command":
      return judgeCommandLine(judge, subject.commandLine ?? readCommandLine(main.text), pathIn(workspace, resolved));
    case "url":
      return [whole(main.text, judgeUrl(judge, main.text))];
    case "path": {
      const paths = pathsOf(subject, main.text).map(pathIn(workspace, resolved));
      if (paths.length === 0) return [whole(subject.name, ofName())];
      return paths.map((path) => whole(path.given, judgePath(judge, path)));
    }
    default:
      return main.kind satisfies never;
  }
}

function judgeUrl({ byRules, byMode }: Judge, url: string): Judgement {
  const found = byRules(
    ({ pattern }, decision) => pattern === undefined || matchesUrl(pattern, url, decision === "allow"),
  );
  return found ?? byMode();
}

function judgePath({ subject, byRules, byMode }: Judge, path: ResolvedPath): Judgement {
  const found = byRules(
    ({ pattern }, decision) => pattern === undefined || matchesPath(pattern, path, decision === "allow"),
  );
  if (found?.decision === "deny") return found;
  if (subject.edits === true || families.write.includes(subject.name)) {
    const guarded = protection(path);
    if (guarded !== undefined) return guarded;
  }
  return found ?? byMode();
}

/** Nobody's rule and no mode lets an agent change what decides about it without being asked. */
function protection({ given, real, relative }: ResolvedPath): Judgement | undefined {
  const names = [...(relative ?? real).split("/"), ...given.split("/")].map((name) => name.toLowerCase());
  const name = names.find((each) => protectedNames.has(each));
  if (name === undefined) return undefined;
  return { decision: "ask", rule: "", ruleSource: "built_in", explanation: `changes of ${name} are always asked for` };
}

function pathIn(workspace: string, resolved: ReadonlyMap<string, ResolvedPath> | undefined) {
  return (given: string): ResolvedPath => {
    const known = resolved?.get(given);
    if (known !== undefined) return known;
    const real = posix.resolve(workspace, given);
    if (real === workspace) return { given, real, relative: "." };
    return real.startsWith(`${workspace}/`)
      ? { given, real, relative: real.slice(workspace.length + 1) }
      : { given, real };
  };
}

function judgeFor(rules: SessionRules, subject: PermissionSubject): Judge {
  // Without walls a mode that asks for nothing would let a model do anything.
  const mode = rules.mode === "bypass" && rules.sandbox === "none" ? "ask" : rules.mode;
  const isAbout =
    (names: readonly string[]) =>
    (rule: PermissionRule): boolean =>
      names.some((name) => rule.isAbout(name, subject.source ?? "local"));
  const search = (
    namesFor: (decision: PermissionDecision) => (rule: PermissionRule) => boolean,
    matches: (rule: PermissionRule, decision: PermissionDecision) => boolean,
  ): Judgement | undefined => {
    for (const decision of ["deny", "ask", "allow"] as const) {
      const fits = namesFor(decision);
      for (const layer of rules.layers) {
        for (const text of layer[decision]) {
          const rule = permissionRule(text);
          if (rule !== undefined && fits(rule) && matches(rule, decision)) return ruleJudgement(layer, text, decision);
        }
      }
    }
    return undefined;
  };
  const family = Object.values(families).find((names) => names.includes(subject.name)) ?? [subject.name];
  const own = isAbout([subject.name]);
  const allowing = subject.ofWorkspace === true ? () => false : own;
  const related = (rule: PermissionRule) => own(rule) || (rule.pattern !== undefined && isAbout(family)(rule));
  return {
    rules,
    subject,
    mode,
    byRules: (matches) => search((decision) => (decision === "allow" ? allowing : related), matches),
    byMode: () => modeJudgement(mode, subject),
    path(path, access) {
      const found = search(
        () => isAbout(families[access]),
        ({ pattern }, decision) => pattern !== undefined && matchesPath(pattern, path, decision === "allow"),
      );
      if (found?.decision === "deny") return found;
      const guarded = access === "write" ? protection(path) : undefined;
      if (guarded !== undefined) return guarded;
      if (found !== undefined) return found;
      if (access === "read") return ofMode("allow", "files may be read");
      const may = `${subject.name} would write to it`;
      if (mode === "bypass") return ofMode("allow", "the mode bypass allows every tool");
      if (mode === "accept-edits" && path.relative !== undefined)
        return ofMode("allow", "the mode accept-edits allows edits");
      return mode === "read-only"
        ? ofMode("deny", `${may}, and the mode is read-only`)
        : ofMode("ask", `${may}, and no rule allows to write there`);
    },
  };
}

function ruleJudgement(
  { source, skill, profile }: PermissionLayer,
  rule: string,
  decision: PermissionDecision,
): Judgement {
  const says = { deny: "denies it", ask: "asks for approval", allow: "allows it" }[decision];
  const owners = { server: " of the server", profile: ` of the profile ${profile}`, skill: ` of the skill ${skill}` };
  const of = source === "session" ? "" : owners[source];
  return { decision, rule, ruleSource: source, explanation: `the rule ${rule}${of} ${says}` };
}

function ofMode(decision: PermissionDecision, explanation: string): Judgement {
  return { decision, rule: "", ruleSource: "mode", explanation };
}

function modeJudgement(mode: PermissionMode, subject: PermissionSubject): Judgement {
  if (mode === "bypass") return ofMode("allow", "the mode bypass allows every tool");
  if (subject.readOnly) return ofMode("allow", `${subject.name} only reads`);
  if (subject.delegates === true) return ofMode("allow", `what ${subject.name} does is judged call by call`);
  if (mode === "accept-edits" && subject.edits === true) return ofMode("allow", "the mode accept-edits allows edits");
  const isOutside = subject.openWorld === true;
  if (subject.ofWorkspace === true && mode !== "read-only")
    return ofMode("ask", `${subject.name} comes with the workspace, so that it is asked for whatever rules allow`);
  const may = `${subject.name} may ${isOutside ? "change or send something outside the workspace" : "change something"}`;
  return mode === "read-only"
    ? ofMode("deny", `${may}, and the mode is read-only`)
    : ofMode("ask", `${may}, and the mode ${mode} asks for approval of that`);
}

function mainArgument({ name, arguments: given }: Pick<PermissionSubject, "name" | "arguments">) {
  const known = Object.hasOwn(mainArguments, name) ? mainArguments[name] : undefined;
  const { argument, kind } = known ?? usualArguments.find((usual) => typeof given[usual.argument] === "string") ?? {};
  if (argument === undefined || kind === undefined) return undefined;
  const value = given[argument];
  if (typeof value === "string") return { text: value, kind };
  return kind === "path" ? { text: ".", kind } : undefined; // without a path a function works in the whole workspace
}

function pathsOf({ name }: PermissionSubject, text: string): readonly string[] {
  return name === "apply_patch" ? patchedPaths(text) : [text];
}

const mostPathsNamed = 100;

/** What a command line opens by redirections, and the arguments that may be paths. */
function pathsNamedIn({ commands }: CommandLine): readonly string[] {
  const paths = new Set<string>();
  for (const { words, redirections } of everyCommand(commands)) {
    for (const { path } of redirections) if (path.literal) paths.add(path.text);
    for (const word of words.slice(1)) {
      if (paths.size >= mostPathsNamed) return [...paths];
      if (word.literal && word.text !== "" && word.text.length < 1000 && !word.text.startsWith("-"))
        paths.add(word.text);
    }
  }
  return [...paths];
}

/** JSON in which the order of keys makes no difference. */
function sortedJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([left], [right]) => (left < right ? -1 : 1)))
      : inner,
  );
}
