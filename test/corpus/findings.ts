import { isDeepStrictEqual } from "node:util";

/** What a check of one exchange found. */
export interface Finding {
  /**
   * `failure`: the reader or writer is wrong. `difference`: a client or a tag says otherwise than this service, which
   * somebody has to look at; it may have its reasons. `note`: what this service takes as it is, and others might not.
   */
  readonly kind: "failure" | "difference" | "note";
  /** One line: what differs. */
  readonly what: string;
}

export type Findings = ReturnType<typeof createFindings>;

/** Collects what checks find, so that one that fails does not hide the others. */
export function createFindings() {
  const found: Finding[] = [];
  const add = (kind: Finding["kind"], what: string) => void found.push({ kind, what: oneLine(what, 300) });
  const claim = (tags: ReadonlySet<string>, tag: string | readonly string[], isSo: boolean, what: string): void => {
    const words = typeof tag === "string" ? [tag] : tag;
    const claimed = words.find((word) => tags.has(word));
    if (claimed !== undefined && !isSo) add("failure", `it has the tag ${claimed}, but read was no ${what}`);
    if (claimed === undefined && isSo) add("difference", `${what} was read, but it has no tag ${words.join(" or ")}`);
  };
  return {
    found: (): readonly Finding[] => found,
    fail: (what: string) => add("failure", what),
    differ: (what: string) => add("difference", what),
    note: (what: string) => add("note", what),
    holds(condition: boolean, what: string): void {
      if (!condition) add("failure", what);
    },
    same(actual: unknown, expected: unknown, what: string): void {
      if (!isDeepStrictEqual(actual, expected)) add("failure", `${what}: ${firstDifference(actual, expected)}`);
    },
    /** What tags say and what was read: a tag without what it says is a failure, the reverse a difference. */
    claim,
    /** Runs checks that throw, as assertions do; what they throw is a failure. */
    attempt(what: string, run: () => void): void {
      try {
        run();
      } catch (error) {
        add("failure", `${what}: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`);
      }
    },
  };
}

/** Where two values first differ, in one line. */
export function firstDifference(actual: unknown, expected: unknown, path = ""): string {
  if (isRecord(actual) && isRecord(expected) && Array.isArray(actual) === Array.isArray(expected)) {
    const keys = new Set([...Object.keys(actual), ...Object.keys(expected)]);
    for (const key of keys) {
      if (isDeepStrictEqual(actual[key], expected[key])) continue;
      return firstDifference(actual[key], expected[key], path === "" ? key : `${path}.${key}`);
    }
  }
  const where = path === "" ? "" : `${path} `;
  if (typeof actual === "string" && typeof expected === "string" && actual.length + expected.length > 120) {
    let same = 0;
    while (same < actual.length && actual[same] === expected[same]) same++;
    const near = (text: string) => JSON.stringify(text.slice(Math.max(0, same - 10), same + 40));
    return `${where}is from character ${same} on ${near(actual)}, not ${near(expected)}`;
  }
  return `${where}is ${shown(actual)}, not ${shown(expected)}`;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !(value instanceof Error) && !ArrayBuffer.isView(value);
}

function shown(value: unknown): string {
  if (value instanceof Error) return oneLine(`${value.name}: ${value.message}`, 100);
  return oneLine(typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value) ?? "missing"), 100);
}

function oneLine(text: string, length: number): string {
  const line = text.replaceAll(/\s+/g, " ");
  return line.length <= length ? line : `${line.slice(0, length - 1)}…`;
}
