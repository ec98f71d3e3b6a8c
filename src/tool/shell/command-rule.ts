import { posix } from "node:path";
import type { RunCommand } from "./command-line.ts";
import { parseShell, type ShellWord, type SimpleCommand } from "./parse-shell.ts";
import { riskOf } from "./risky-options.ts";

/** What a rule says of commands, between its parentheses. */
export interface CommandPattern {
  /** As it was written, without `:*`. */
  readonly text: string;
  /** Any words may follow. */
  readonly isPrefix: boolean;
  /** Its words, and assignments before them; absent where it is no single command. */
  readonly command?: SimpleCommand;
}

const anyMore = ":*";

/** Reads what stands between the parentheses of a rule. */
export function commandPattern(pattern: string): CommandPattern {
  const isPrefix = pattern.endsWith(anyMore);
  const text = (isPrefix ? pattern.slice(0, -anyMore.length) : pattern).trim();
  const { commands, doubts } = parseShell(text);
  const [command] = commands;
  const isOne =
    command !== undefined &&
    commands.length === 1 &&
    doubts.length === 0 &&
    command.words.length > 0 &&
    command.redirections.length === 0 &&
    !command.readsText &&
    command.text === text &&
    command.words.every((word) => word.literal);
  return { text, isPrefix, ...(isOne ? { command } : {}) };
}

/** Says what is wrong with a pattern for commands, as the end of a sentence. */
export function commandPatternFault(pattern: string): string | undefined {
  const { isPrefix, text, command } = commandPattern(pattern);
  if (text.includes("*"))
    return "has a * inside its pattern; for commands only :* at its end has a meaning, for any words that follow";
  if (command !== undefined) return undefined;
  if (isPrefix) return "does not begin with the plain words of one command, as run_command(git status:*) does";
  const [doubt] = parseShell(text).doubts;
  return doubt === undefined ? undefined : `is no command a shell can read in full: ${doubt}`;
}

/**
 * Whether a pattern that allows covers a command, in full: its words and assignments are what the command begins with, and
 * nothing after them gives the program more power. Returns how many words it covers.
 */
export function coveredWords(
  { command: wanted, isPrefix }: CommandPattern,
  command: RunCommand,
  moves: boolean,
): number | undefined {
  if (wanted === undefined) return undefined;
  const { words, assignments } = command;
  const covered = wanted.words.length;
  if (isPrefix ? words.length < covered : words.length !== covered) return undefined;
  if (wanted.words.some(({ text }, at) => words[at]?.literal !== true || words[at]?.text !== text)) return undefined;
  if (wanted.assignments.length !== assignments.length) return undefined;
  if (wanted.assignments.some(({ text }, at) => assignments[at]?.text !== text)) return undefined;
  if (riskOf(command, covered, moves) !== undefined) return undefined;
  return covered;
}

/** Why a pattern whose words fit does not allow a command all the same, as the beginning of a sentence. */
export function whyNotCovered(
  { command: wanted }: CommandPattern,
  command: RunCommand,
  moves: boolean,
): string | undefined {
  const fits = wanted?.words.every(({ text }, at) => command.words[at]?.text === text) === true;
  return fits ? riskOf(command, wanted.words.length, moves) : undefined;
}

/**
 * Whether a pattern that denies or asks is about a command: its program by name, wherever it lies, and its other words in
 * their order among the arguments. What a command runs stands for itself, but of one that carries others any argument may
 * be the name.
 */
export function isAbout({ command: wanted }: CommandPattern, command: RunCommand): "yes" | "maybe" | "no" {
  const [first, ...rest] = wanted?.words ?? [];
  if (first === undefined) return "no";
  const name = posix.basename(first.text);
  let found: "maybe" | "no" = "no";
  const last = command.carries ? command.words.length : 1;
  for (let at = 0; at < last; at++) {
    const word = command.words[at];
    if (word === undefined || posix.basename(word.text) !== name) continue;
    const how = rest.length === 0 ? "yes" : hasWords(command.words.slice(at + 1), rest);
    if (how === "yes") return "yes";
    if (how === "maybe") found = "maybe";
  }
  return found;
}

function hasWords(given: readonly ShellWord[], wanted: readonly ShellWord[]): "yes" | "maybe" | "no" {
  const options = wanted.filter(({ text }) => isOption(text));
  const others = wanted.filter(({ text }) => !isOption(text));
  const unknown = given.some((word) => !word.literal && (word.start === "" || word.start.startsWith("-")));
  let how: "yes" | "maybe" = "yes";
  for (const option of options) {
    if (hasOption(given, option.text)) continue;
    if (!unknown) return "no";
    how = "maybe";
  }
  let from = 0;
  for (const { text } of others) {
    const at = given.findIndex((word, position) => position >= from && word.text === text);
    if (at !== -1) {
      from = at + 1;
      continue;
    }
    // A word that is only known at run time can be the one, unless the place of that is taken.
    const next = given.slice(from).find((word) => !isOption(word.start));
    const unclear = given.slice(from).some((word) => !word.literal && isOption(word.start));
    if (!unclear && (next === undefined || next.literal)) return "no";
    return "maybe";
  }
  return how;
}

function isOption(text: string): boolean {
  return text.startsWith("-") && text !== "-";
}

/** Whether an option is given, as it is written or in another way: among other letters, shortened, with its value. */
function hasOption(given: readonly ShellWord[], option: string): boolean {
  const texts = given.map((word) => word.start).filter(isOption);
  if (option.startsWith("--")) {
    return texts.some((text) => {
      const [name = ""] = text.split("=", 1);
      return name === option.split("=", 1)[0] || (name.length > 3 && option.startsWith(name));
    });
  }
  if (texts.includes(option)) return true;
  const letters = texts.filter((text) => !text.startsWith("--")).join("");
  return [...option.slice(1)].every((letter) => letters.includes(letter));
}

/** Whether the words of a pattern stand somewhere in a text, as whole words. */
export function isMentioned({ text: pattern }: CommandPattern, text: string): boolean {
  const words = pattern.split(/\s+/).map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  return new RegExp(`(?<![\\p{L}\\p{N}_-])${words.join("\\s+")}(?![\\p{L}\\p{N}_-])`, "u").test(text);
}
