import picomatch from "picomatch";
import { withinTime } from "./within-time.ts";

const matchLimitMs = 100;
const matchBatch = 1000;
const maxGlobCharacters = 1000;

const quickPathCharacters = 1000;

/** Whether matching takes a time that grows with the square of a path's length at most. */
function isQuick(glob: string): boolean {
  return !/[[\]{}()!+@\\]/.test(glob) && (glob.match(/\*+/g)?.length ?? 0) <= 2;
}

/** Chooses paths. Throws `TooSlow` for a pattern that takes too long. */
export type PathFilter = (paths: readonly string[]) => string[];

/**
 * A glob over paths from the workspace: `*` stays within a name, `**` crosses directories, hidden files count. Without a
 * slash it is held against file names at any depth; where its last name is a plain one, it also means all files beneath a
 * directory of that name.
 * @throws {RangeError} for a glob that is too long, with a message for the model.
 */
export function pathGlob(glob: string): PathFilter {
  if (glob.length > maxGlobCharacters) {
    throw new RangeError(`the glob is ${glob.length} characters long; at most ${maxGlobCharacters} are taken`);
  }
  const plain = glob.replace(/^(?:\.?\/)+/, "");
  const atAnyDepth = plain === glob && !glob.includes("/");
  const trimmed = plain.replace(/\/+$/, "") || "**";
  const globs = plain === trimmed ? [atAnyDepth ? `**/${trimmed}` : trimmed] : [];
  if (!/[*?[\]{}()!+@]/.test(trimmed.slice(trimmed.lastIndexOf("/") + 1))) globs.push(`${trimmed}/**`);
  else if (plain !== trimmed) globs.push(`${trimmed}/**`);
  const matches = withinTime(matchLimitMs, () => picomatch(globs, { dot: true, nonegate: true }));
  const isPlain = globs.every(isQuick);
  return (paths) => {
    // The limit costs a thread each time: much more than most patterns do.
    if (isPlain && paths.every((path) => path.length <= quickPathCharacters))
      return paths.filter((path) => matches(path));
    const chosen: string[] = [];
    for (let start = 0; start < paths.length; start += matchBatch) {
      const batch = paths.slice(start, start + matchBatch);
      chosen.push(...withinTime(matchLimitMs, () => batch.filter((path) => matches(path))));
    }
    return chosen;
  };
}
