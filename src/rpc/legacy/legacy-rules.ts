import { ruleFault } from "../../tool/permission.ts";
import { type ArgumentKind, permissionRule } from "../../tool/permission-rule.ts";

/** In which list of a policy a rule stands. */
export const ruleLists = ["allow", "ask", "deny"] as const;
export type RuleList = (typeof ruleLists)[number];

/** A rule of ours, and the list it belongs into. */
export interface MappedRule {
  readonly list: RuleList;
  readonly rule: string;
}

export type RuleReading = { readonly rules: readonly MappedRule[] } | { readonly fault: string };

interface OldTool {
  /** Our function. */
  readonly name: string;
  /** Functions that do the same by other means: what denies or asks holds for these too. */
  readonly also?: readonly string[];
}

/** The tools of the earlier service, in small letters without `_`. */
const oldTools: Readonly<Record<string, OldTool>> = {
  bash: { name: "run_command" },
  shell: { name: "run_command" },
  read: { name: "read_file" },
  write: { name: "write_file", also: ["apply_patch"] },
  edit: { name: "edit_file", also: ["apply_patch"] },
  multiedit: { name: "edit_file", also: ["apply_patch"] },
  patch: { name: "apply_patch" },
  grep: { name: "search_text" },
  glob: { name: "list_files" },
  ls: { name: "list_files" },
  webfetch: { name: "fetch_url" },
  todowrite: { name: "update_todos" },
  task: { name: "task" },
  askuserquestion: { name: "ask_user" },
  skill: { name: "load_skill" },
};

/** What clients of the earlier service call our functions. */
const oldNames: Readonly<Record<string, string>> = {
  run_command: "Bash",
  read_file: "Read",
  write_file: "Write",
  edit_file: "Edit",
  apply_patch: "Patch",
  search_text: "Grep",
  list_files: "Glob",
  fetch_url: "WebFetch",
  update_todos: "TodoWrite",
  task: "Task",
  ask_user: "AskUserQuestion",
  load_skill: "Skill",
};

const kinds: Readonly<Record<string, ArgumentKind>> = {
  run_command: "command",
  read_file: "path",
  write_file: "path",
  edit_file: "path",
  apply_patch: "path",
  search_text: "path",
  list_files: "path",
  fetch_url: "url",
};

function oldTool(name: string): OldTool | undefined {
  const key = name.toLowerCase().replaceAll("_", "");
  return Object.hasOwn(oldTools, key) ? oldTools[key] : undefined;
}

/**
 * Our name for a tool: that of a function there is, in whichever case it is written, or of the tool that the earlier service
 * had; else the name as it is.
 * @param known names of the functions there are
 */
export function functionNameFor(name: string, known: readonly string[]): string {
  if (known.includes(name)) return name;
  const tool = oldTool(name);
  if (tool !== undefined) return tool.name;
  const small = name.toLowerCase();
  const found = known.find((each) => each.toLowerCase() === small);
  return found ?? name.replace(/^mcp__/i, "mcp__");
}

/** A rule of ours as clients of the earlier service write it. */
export function legacyRuleFor(rule: string): string {
  const [, name = rule, rest = ""] = /^([^(]*)([\s\S]*)$/.exec(rule) ?? [];
  return `${Object.hasOwn(oldNames, name) ? oldNames[name] : name}${rest}`;
}

/**
 * Reads a rule of the earlier service, `Tool` or `Tool(pattern)`, as rules of ours. Where ours can't say the same, a rule
 * that allows comes to less, so that somebody is asked, and one that denies comes to more, or to being asked about all
 * that it may mean: nothing runs unasked that it would have kept from running.
 * @param known names of the functions there are
 * @returns rules, none for one that can allow nothing, or what is wrong with it as the end of a sentence
 */
export function rulesFromLegacy(text: string, list: RuleList, known: readonly string[]): RuleReading {
  if (!text.isWellFormed()) return { fault: "has half a surrogate pair" };
  const [, written, , pattern] = /^([\p{L}\p{N}_.:/*-]+)(\(([\s\S]*)\))?$/u.exec(text.trim()) ?? [];
  if (written === undefined)
    return { fault: ruleFault(text.trim()) ?? "is no rule; write it as Tool or Tool(pattern)" };
  const name = functionNameFor(written, known);
  if (pattern === undefined) {
    const also = list === "allow" || known.includes(written) ? [] : (oldTool(written)?.also ?? []);
    return checked([name, ...also].map((each) => ({ list, rule: each })));
  }
  if (pattern.trim() === "") return { fault: "has an empty pattern; leave out the parentheses to mean every call" };
  return checked(
    patternsFor(name, pattern.trim(), list).map(({ list: into, pattern: inner }) => ({
      list: into,
      rule: inner === undefined ? name : `${name}(${inner})`,
    })),
  );
}

function checked(rules: readonly MappedRule[]): RuleReading {
  for (const { rule } of rules) {
    const fault = ruleFault(rule);
    if (fault !== undefined) return { fault };
  }
  return { rules };
}

interface MappedPattern {
  readonly list: RuleList;
  /** Absent for every call. */
  readonly pattern?: string;
}

function patternsFor(name: string, pattern: string, list: RuleList): readonly MappedPattern[] {
  switch (kinds[name]) {
    case "command":
      return commandPatterns(pattern, list);
    case "path":
      return pathPatterns(pattern, list).map((each) => ({ list, pattern: each }));
    case "url":
      return urlPatterns(pattern, list);
    default:
      // Of other functions nobody knows what the pattern was held against.
      return [{ list, pattern }, ...(list === "deny" && !name.includes("*") ? [{ list: "ask" } as const] : [])];
  }
}

const prefixMark = ":*";

function commandPatterns(pattern: string, list: RuleList): readonly MappedPattern[] {
  const isPrefix = pattern.endsWith(prefixMark);
  const text = (isPrefix ? pattern.slice(0, -prefixMark.length) : pattern).trim();
  if (text === "" || text === "**") return [{ list }];
  if (!/[*?]/.test(text)) return [{ list, pattern: isPrefix ? `${text}${prefixMark}` : text }];
  if (list === "allow") {
    // A single * stops at a slash, which no rule of ours says of commands.
    const [, words] = /^([^*?]*[^*?\s])\s+\*\*$/.exec(text) ?? [];
    return words === undefined ? [] : [{ list, pattern: `${words}${prefixMark}` }];
  }
  if (text === "*") return [{ list }];
  const [, beginning = "", glued = ""] = /^([^*?]*?)\s*([^\s*?]*)[*?]/.exec(text) ?? [];
  const ends = /^[^*?]*\*+$/.test(text);
  const words = beginning.trim();
  if (ends && glued === "") return [{ list, pattern: `${words}${prefixMark}` }];
  const about = words === "" ? { list: "ask" as const } : { list: "ask" as const, pattern: `${words}${prefixMark}` };
  const whole = `${words} ${glued}`.trim();
  return ends && list === "deny" ? [{ list, pattern: `${whole}${prefixMark}` }, about] : [about];
}

function urlPatterns(pattern: string, list: RuleList): readonly MappedPattern[] {
  if (pattern === "**" || (pattern === "*" && list !== "allow")) return [{ list }];
  const isPrefix = pattern.endsWith(prefixMark);
  const text = isPrefix ? pattern.slice(0, -prefixMark.length) : pattern;
  if (!text.includes("*")) return [{ list, pattern }];
  const [, plain] = /^([^*]+)\*\*$/.exec(text) ?? (list === "allow" ? [] : (/^([^*]+)\*$/.exec(text) ?? []));
  if (plain !== undefined && URL.canParse(plain)) return [{ list, pattern: `${plain}${prefixMark}` }];
  return list === "allow" ? [] : [{ list: "ask" }];
}

function pathPatterns(pattern: string, list: RuleList): readonly string[] {
  const isPrefix = pattern.endsWith(prefixMark);
  const text = isPrefix ? `${pattern.slice(0, -prefixMark.length)}**` : pattern;
  const patterns = new Set<string>();
  for (const each of [inWholeSegments(text, "*"), inWholeSegments(text, "*/**/*")]) {
    const literal = each.replace(/[[\]{}()!+@]/g, "\\$&");
    // Ours without a slash are about names at any depth, which may be more than it allowed.
    if (list === "allow") patterns.add(each.includes("/") || each === "**" ? literal : `./${literal}`);
    else for (const any of [each, literal]) patterns.add(any);
  }
  return [...patterns];
}

/** Ours know `**` as a whole segment only; elsewhere it is any text, with slashes (`between`) or without. */
function inWholeSegments(pattern: string, between: string): string {
  return pattern
    .split("/")
    .map((segment) => (segment === "**" ? segment : segment.split(/\*{2,}/).join(between)))
    .join("/");
}

/**
 * The rules of a policy of the earlier service where they are to hold together. There, allowing beats asking; here, asking
 * beats allowing. A rule that asks is left out where that changes nothing but this: where the same is allowed, and where
 * the mode `ask` asks anyway and part of it is allowed. What is left is the stricter.
 */
export function withoutShadowedAsks(rules: readonly MappedRule[], modeAsks: boolean): readonly MappedRule[] {
  const allowed = rules.filter(({ list }) => list === "allow").map(({ rule }) => rule);
  const isShadowed = (rule: string) => {
    if (allowed.includes(rule)) return true;
    return modeAsks && changing.has(rule) && allowed.some((each) => permissionRule(each)?.isAbout(rule, "local"));
  };
  return rules.filter(({ list, rule }) => list !== "ask" || !isShadowed(rule));
}

/** What the mode `ask` asks for. */
const changing: ReadonlySet<string> = new Set(["run_command", "write_file", "edit_file", "apply_patch", "fetch_url"]);

/** What only reads runs in every mode; these read files. */
const readers = ["read_file", "list_files", "search_text"];

/** Rules that deny what reads files and what no rule allows or asks for. */
export function deniedReaders(rules: readonly MappedRule[]): readonly MappedRule[] {
  const named = rules.filter(({ list }) => list !== "deny").map(({ rule }) => permissionRule(rule));
  return readers
    .filter((name) => !named.some((rule) => rule?.isAbout(name, "local")))
    .map((name) => ({ list: "deny", rule: name }));
}
