import { posix } from "node:path";
import { type PathFilter, pathGlob } from "./path-glob.ts";
import type { ResolvedPath } from "./real-path.ts";
import { type CommandPattern, commandPattern, commandPatternFault } from "./shell/command-rule.ts";
import { TooSlow } from "./within-time.ts";

/** A rule as it is used, read from `name` or `name(pattern)`. */
export interface PermissionRule {
  readonly text: string;
  readonly pattern: string | undefined;
  /** The pattern read as one for commands. */
  readonly command?: CommandPattern;
  /** Whether it is about a function of that name and source. */
  isAbout(functionName: string, source: string): boolean;
}

export type ArgumentKind = "path" | "command" | "url";

const maxRuleCharacters = 1000;
const anyMore = ":*";
const domainPrefix = "domain:";
const wanted = "write a rule as name or name(pattern), for example run_command(git status:*) or read_file(src/**)";

/** Says what is wrong with a rule as somebody wrote it, as the end of a sentence; `undefined` for a good one. */
export function faultOfRule(
  text: string,
  kindOf: (functionName: string) => ArgumentKind | undefined,
): string | undefined {
  if (text.length > maxRuleCharacters) return `has ${text.length} characters; ${maxRuleCharacters} is the most`;
  const { name, pattern } = splitRule(text) ?? {};
  if (name === undefined) return `is no rule; ${wanted}`;
  if (pattern === undefined) return undefined;
  if (pattern.trim() === "" || pattern === anyMore) return `has an empty pattern; ${wanted}`;
  switch (kindOf(name)) {
    case "command":
      return commandPatternFault(pattern);
    case "url":
      return urlPatternFault(pattern);
    case "path":
      return pathPatternFault(pattern);
    default:
      return undefined;
  }
}

function splitRule(text: string) {
  const [, name, , pattern] = /^([\p{L}\p{N}_.:/*-]+)(\(([\s\S]*)\))?$/u.exec(text) ?? [];
  return name === undefined ? undefined : { name, pattern };
}

const rulesKept = 4096;
const kept = new Map<string, PermissionRule | undefined>();

/** Reads a rule; `undefined` for a text that is none. */
export function permissionRule(text: string): PermissionRule | undefined {
  const before = kept.get(text);
  if (before !== undefined || kept.has(text)) return before;
  if (kept.size >= rulesKept) kept.clear();
  const split = splitRule(text);
  const rule =
    split === undefined
      ? undefined
      : {
          text,
          pattern: split.pattern,
          ...(split.pattern === undefined ? {} : { command: commandPattern(split.pattern) }),
          isAbout: nameMatcher(split.name),
        };
  kept.set(text, rule);
  return rule;
}

/** A name is a function's or a source's, `*` stands for any characters, and `mcp__github` for all of that server. */
function nameMatcher(name: string): PermissionRule["isAbout"] {
  const [, server] = /^mcp__((?:(?!__)[^*])+)$/.exec(name) ?? [];
  if (server !== undefined)
    return (given, source) => given === name || given.startsWith(`${name}__`) || source === `mcp:${server}`;
  if (!name.includes("*")) return (given, source) => given === name || (name.includes(":") && source === name);
  const parts = name.split(/\*+/).map((part) => part.replace(/[\\^$.+?()[\]{}|/-]/g, "\\$&"));
  const whole = new RegExp(`^${parts.join(".*")}$`, "su");
  return (given, source) => whole.test(given) || (name.includes(":") && whole.test(source));
}

function pathPatternFault(pattern: string): string | undefined {
  if (pattern.split("/").includes(".."))
    return "has .. in its path; name the folder itself, from the workspace or from /";
  if (pattern.startsWith("~")) return "begins with ~, which is a plain name here; write the path from / on";
  try {
    pathGlob(pattern.slice(0, maxRuleCharacters));
    return undefined;
  } catch (error) {
    return error instanceof TooSlow ? "takes too long to match; write a simpler glob" : "is no glob that can be read";
  }
}

/**
 * Whether a glob is about a path: by where the path leads, and for rules that deny or ask by how it was written too, in
 * whichever case. Globs count from the workspace, those that begin with `/` from there.
 * @param inFull for rules that allow: what is not understood in full does not match
 */
export function matchesPath(pattern: string, { given, real, relative }: ResolvedPath, inFull: boolean): boolean {
  const isAbsolute = pattern.startsWith("/");
  if (inFull && given.split("/").includes("..")) return false;
  const paths = isAbsolute ? [real.slice(1)] : relative === undefined ? [] : [relative];
  if (!inFull) {
    const written = posix.normalize(given);
    if (isAbsolute === given.startsWith("/")) paths.push(given.replace(/^\/+/, ""), written.replace(/^\/+/, ""));
  }
  const plain = paths.map((path) => path.replace(/(?<=.)\/+$/, ""));
  if (plain.includes(".") && (pattern === "**" || pattern === ".")) return true;
  const candidates = plain.filter((path) => path !== "." && path !== "");
  if (candidates.length === 0) return false;
  try {
    if (globOf(pattern)(candidates).length > 0) return true;
    return !inFull && globOf(pattern.toLowerCase())(candidates.map((path) => path.toLowerCase())).length > 0;
  } catch (error) {
    if (error instanceof TooSlow || error instanceof RangeError) return !inFull;
    throw error;
  }
}

const globs = new Map<string, PathFilter>();

function globOf(pattern: string): PathFilter {
  const before = globs.get(pattern);
  if (before !== undefined) return before;
  if (globs.size >= rulesKept) globs.clear();
  const glob = pathGlob(pattern);
  globs.set(pattern, glob);
  return glob;
}

function urlPatternFault(pattern: string): string | undefined {
  if (pattern.startsWith(domainPrefix)) {
    const host = pattern.slice(domainPrefix.length);
    return hostOf(host) === undefined ? "names no domain; write it as fetch_url(domain:example.com)" : undefined;
  }
  const plain = pattern.endsWith(anyMore) ? pattern.slice(0, -anyMore.length) : pattern;
  if (plain.includes("*"))
    return "has a * inside its pattern; for URLs only :* at its end has a meaning, for any text that begins so";
  const url = URL.parse(plain);
  if (url === null || url.hostname === "") return "names no URL; write it as fetch_url(https://example.com/:*)";
  return url.username === "" && url.password === "" ? undefined : "has a user or password in its URL; leave them out";
}

function hostOf(domain: string): string | undefined {
  if (!/^[^/:?#@\\\s]+$/.test(domain)) return undefined;
  const host = URL.parse(`https://${domain}/`)?.hostname;
  return host === undefined || host === "" ? undefined : withoutLastDot(host);
}

function withoutLastDot(host: string): string {
  return host.replace(/\.$/, "");
}

/**
 * Whether a pattern is about a URL: the whole of it, its beginning up to `:*` by whole path components, or its domain and
 * all beneath. Hosts are compared as browsers read them. A rule that denies or asks takes any scheme, and any port where it
 * names none.
 * @param inFull for rules that allow
 */
export function matchesUrl(pattern: string, given: string, inFull: boolean): boolean {
  const url = URL.parse(given);
  if (url === null) return !inFull && given.includes(pattern.replace(/^domain:|:\*$/g, ""));
  const host = withoutLastDot(url.hostname);
  if (inFull && (url.username !== "" || url.password !== "")) return false;
  if (pattern.startsWith(domainPrefix)) {
    const domain = hostOf(pattern.slice(domainPrefix.length));
    if (domain === undefined || (inFull && url.protocol !== "https:" && url.protocol !== "http:")) return false;
    return host === domain || host.endsWith(`.${domain}`);
  }
  const isPrefix = pattern.endsWith(anyMore);
  const wantedUrl = URL.parse(isPrefix ? pattern.slice(0, -anyMore.length) : pattern);
  if (wantedUrl === null || withoutLastDot(wantedUrl.hostname) !== host) return false;
  if (
    inFull
      ? wantedUrl.protocol !== url.protocol || wantedUrl.port !== url.port
      : wantedUrl.port !== "" && wantedUrl.port !== url.port
  )
    return false;
  // Some servers take an escaped slash for a slash, and go up from there.
  const paths = inFull ? [url.pathname] : [url.pathname, decoded(url.pathname)];
  if (inFull && isPrefix && wantedUrl.pathname !== "/" && /%(2f|5c|25)/i.test(url.pathname)) return false;
  if (!isPrefix) return wantedUrl.pathname === url.pathname && wantedUrl.search === url.search;
  const beginning = `${wantedUrl.pathname}${wantedUrl.search}`;
  return paths.some((path) => {
    const whole = `${path}${url.search}`;
    const next = whole.charAt(beginning.length);
    return whole.startsWith(beginning) && (beginning.endsWith("/") || next === "" || "/?&".includes(next));
  });
}

function decoded(path: string): string {
  try {
    return posix.normalize(decodeURIComponent(path));
  } catch {
    return path;
  }
}
