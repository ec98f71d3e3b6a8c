import { posix } from "node:path";
import { parseShell, type ShellAssignment, type ShellText, type ShellWord, type SimpleCommand } from "./parse-shell.ts";
import {
  interpreterOf,
  isPowerfulVariable,
  otherShells,
  shells,
  starters,
  type Wrapper,
  wrappers,
} from "./wrappers.ts";

/** A simple command and what it runs in its turn. */
export interface RunCommand extends SimpleCommand {
  /** Name of the program without its folder; empty where there is none, or where it is only known at run time. */
  readonly program: string;
  /** The commands that this one's arguments name: behind `sudo`, `xargs`, `bash -c`, `find -exec`. */
  readonly runs: readonly RunCommand[];
  /** Where in `words` the command begins that it runs. */
  readonly runsFrom?: number;
  /** It does nothing but run what it runs: who may do that may do this. */
  readonly harmless: boolean;
  /** Any of its arguments may be the command that it runs. */
  readonly carries: boolean;
  /** It can't be said which of its arguments is the command. */
  readonly unclear: boolean;
  /** Why it may run what is not written in the line: code, a file, an alias. */
  readonly hides?: string;
  /** Why its assignments may change what is run. */
  readonly sets?: string;
}

export interface CommandLine {
  readonly text: string;
  /** In the order they are written; what commands run stands in them. */
  readonly commands: readonly RunCommand[];
  /** Why the commands may not be all that runs, as the beginning of a sentence. */
  readonly doubts: readonly string[];
}

const deepest = 8;

/** Reads a command line and everything that is run within it. Quick and never throws, as `parseShell`. */
export function readCommandLine(text: string): CommandLine {
  const doubts = new Set<string>();
  const commands = readText(text, 0, doubts);
  return { text, commands, doubts: [...doubts] };
}

/** Each command and what it runs, at every depth. */
export function* everyCommand(commands: readonly RunCommand[]): Generator<RunCommand> {
  for (const command of commands) {
    yield command;
    yield* everyCommand(command.runs);
  }
}

interface Unwrapped {
  readonly runs?: readonly RunCommand[];
  readonly runsFrom?: number;
  readonly harmless?: boolean;
  readonly carries?: boolean;
  readonly unclear?: boolean;
  readonly hides?: string | undefined;
}

/** Reads commands that stand in the arguments of another one. */
interface Inner {
  words(words: readonly ShellWord[], assignments?: readonly ShellAssignment[]): readonly RunCommand[];
  text(word: ShellWord | undefined, isBash?: boolean): readonly RunCommand[];
  doubt(doubt: string): void;
}

function readText(text: string, depth: number, doubts: Set<string>): readonly RunCommand[] {
  const read: ShellText = parseShell(text);
  for (const doubt of read.doubts) doubts.add(doubt);
  return read.commands.map((command) => readCommand(command, depth, doubts));
}

function readCommand(command: SimpleCommand, depth: number, doubts: Set<string>): RunCommand {
  const [name] = command.words;
  const program = name?.literal === true ? posix.basename(name.text) : "";
  const inner: Inner = {
    words(words, assignments = []) {
      const [first] = words;
      if (first === undefined) return [];
      if (!first.literal) doubts.add("the name of a command is only known when it runs");
      if (depth >= deepest) return tooDeep(doubts);
      const text = words.map((word) => word.text).join(" ");
      const { readsText } = command;
      return [readCommand({ words, assignments, redirections: [], readsText, text }, depth + 1, doubts)];
    },
    text(word, isBash = true) {
      if (word?.literal !== true) {
        doubts.add("a shell reads a text that is only known when it runs");
        return [];
      }
      if (!isBash && bashOnly.test(word.text)) doubts.add("shells differ in how they read it");
      return depth >= deepest ? tooDeep(doubts) : readText(word.text, depth + 1, doubts);
    },
    doubt: (doubt) => void doubts.add(doubt),
  };
  const { hides, ...unwrapped } = unwrap(program, command, inner);
  return {
    ...command,
    program,
    runs: [],
    harmless: false,
    carries: false,
    unclear: false,
    ...unwrapped,
    ...(hides === undefined ? {} : { hides }),
    ...(setsPowerfully(program, command) ? { sets: "it sets a variable that decides what is run" } : {}),
  };
}

function tooDeep(doubts: Set<string>): readonly RunCommand[] {
  doubts.add("it is nested too deep");
  return [];
}

/** What other shells than bash read in another way. */
const bashOnly = /&>|\$['"]|[<>]\(|\|&|\[\[|<<<|\(\(|;&|\b(coproc|function|select)\b/;

const assigners: ReadonlySet<string> = new Set(["export", "declare", "typeset", "local", "readonly", "printf", "read"]);

function setsPowerfully(program: string, { words, assignments }: SimpleCommand): boolean {
  if (assignments.some(({ name }) => isPowerfulVariable(name))) return true;
  if (!assigners.has(program)) return false;
  return words.slice(1).some((word) => isPowerfulVariable(word.start.split(/[=+]/, 1)[0] ?? ""));
}

function unwrap(program: string, command: SimpleCommand, inner: Inner): Unwrapped {
  const { words } = command;
  const [, first] = words;
  if (program === "") return {};
  if (shells.has(program)) return unwrapShell(program, words, inner);
  if (otherShells.has(program)) {
    inner.doubt(`${program} reads its text in a way of its own`);
    return { carries: true };
  }
  switch (program) {
    case "eval":
      return { runs: inner.text(joined(words.slice(first?.text === "--" ? 2 : 1))), harmless: true };
    case "source":
    case ".":
      return { hides: "it runs a file" };
    case "trap":
      return { runs: words.length > 2 ? inner.text(first) : [] };
    case "alias":
    case "enable":
    case "hash":
    case "complete":
    case "bind":
      return { hides: "it changes what the name of a command means", carries: true };
    case "mapfile":
    case "readarray":
      return words.some((word) => word.start.startsWith("-C")) ? { hides: "it runs a callback", carries: true } : {};
    case "find":
      return unwrapFind(words, inner);
    case "fd":
    case "fdfind":
      return unwrapAfter(words, ["-x", "-X", "--exec", "--exec-batch"], inner);
    case "git":
      return gitHides(words);
    case "sed":
    case "gsed":
      return isPlainSed(words) ? {} : { hides: "its script may run commands" };
    case "awk":
    case "gawk":
    case "mawk":
    case "nawk":
    case "original-awk":
      return isPlainAwk(words) ? {} : { hides: "its program may run commands" };
    case "sqlite3":
      if (words.some(({ text }) => sqliteCommand.test(text))) return { hides: codeInLine };
      break;
    case "command":
      if (first?.text === "-v" || first?.text === "-V") return {};
      break;
    case "let":
      return words.slice(1).every((word) => /^[\d+*-]+$/.test(word.start) && word.literal) ? {} : evaluates(inner);
    case "test":
    case "[":
    case "read":
    case "unset":
    case "declare":
    case "typeset":
    case "local":
    case "export":
    case "readonly":
    case "printf":
    case "wait":
    case "getopts":
      return namesSubscript(program, words) ? evaluates(inner) : {};
    default:
      break;
  }
  if (program === "env" && words.some(isSplitString)) return unwrapSplitString(words, inner);
  if (starters.has(program)) return { hides: "it may start what its arguments say", carries: true };
  const wrapper = Object.hasOwn(wrappers, program) ? wrappers[program] : undefined;
  const interpreter = interpreterOf(program);
  if (wrapper !== undefined) {
    const unwrapped = unwrapWrapper(wrapper, command, inner);
    if (interpreter === undefined || unwrapped.carries === true) return unwrapped;
  }
  return interpreter === undefined ? {} : unwrapInterpreter(interpreter, command, inner);
}

function evaluates(inner: Inner): Unwrapped {
  inner.doubt("it computes with a text, which may run commands");
  return {};
}

/** Whether a builtin may be given the name of a variable with a subscript, which bash evaluates. */
function namesSubscript(program: string, words: readonly ShellWord[]): boolean {
  const given = words.slice(1);
  if (program === "test" || program === "[") {
    const at = given.findIndex((word) => !word.literal || word.text === "-v");
    return given.some((word) => word.text === "-v") && !/^\w+$/.test(given[at + 1]?.text ?? "");
  }
  if (program === "printf" && !given.some((word) => word.start.startsWith("-v"))) return false;
  const isInteger = given.some((word) => /^[-+]\w*i/.test(word.start) || (!word.literal && word.start === ""));
  return (isInteger && program !== "read" && program !== "printf") || given.some((word) => word.text.includes("["));
}

function joined(words: readonly ShellWord[]): ShellWord {
  const text = words.map((word) => word.text).join(" ");
  return { text, literal: words.every((word) => word.literal), start: "" };
}

function unwrapShell(program: string, words: readonly ShellWord[], inner: Inner): Unwrapped {
  let isCode = false;
  let harmless = true;
  let at = 1;
  for (; at < words.length; at++) {
    const { text, literal, start } = words[at] ?? nothing;
    if (!/^[-+]./.test(start)) {
      if (!literal && start === "" && !isCode) return readsUnknown(program, inner);
      break;
    }
    if (!literal) return readsUnknown(program, inner);
    if (text === "--" || text === "-") {
      at++;
      break;
    }
    if (text.startsWith("--")) {
      harmless = false;
      if (text === "--rcfile" || text === "--init-file") return { ...readsUnknown(program, inner), carries: true };
      continue;
    }
    if (text.startsWith("-") && text.includes("c")) isCode = true;
    if (text.startsWith("-") && text.includes("s")) return readsUnknown(program, inner);
    if (!/^-[celux]+$/.test(text)) harmless = false;
    if (/[oO]$/.test(text)) at++;
  }
  if (isCode) return { runs: inner.text(words[at], program === "bash"), harmless };
  if (words[at] === undefined) return readsUnknown(program, inner);
  return { hides: "it runs a file", carries: true };
}

const nothing: ShellWord = { text: "", literal: true, start: "" };

function readsUnknown(program: string, inner: Inner): Unwrapped {
  inner.doubt(`${program} runs what it reads`);
  return {};
}

function isSplitString({ start }: ShellWord): boolean {
  return /^-[a-zA-Z0-9]*S/.test(start) || start.startsWith("--sp") || start === "--s";
}

function unwrapSplitString(words: readonly ShellWord[], inner: Inner): Unwrapped {
  inner.doubt("env splits a text into words in a way of its own");
  const at = words.findIndex(isSplitString);
  const text = words[at]?.text.replace(/^-[a-zA-Z0-9]*S|^--split-string=?|^--s\w*=?/, "") ?? "";
  const rest = joined([{ text, literal: words[at]?.literal === true, start: "" }, ...words.slice(at + 1)]);
  return { runs: rest.literal ? inner.text(rest) : [], carries: true };
}

const findActions: ReadonlySet<string> = new Set(["-exec", "-execdir", "-ok", "-okdir"]);

function unwrapFind(words: readonly ShellWord[], inner: Inner): Unwrapped {
  const runs: RunCommand[] = [];
  for (const [at, word] of words.entries()) {
    if (!word.literal && word.start === "" && at > 0 && !/["*?]/.test(word.text))
      inner.doubt("find is given words that are only known when it runs");
    if (!findActions.has(word.text)) continue;
    const rest = words.slice(at + 1);
    const end = rest.findIndex(
      ({ text }, position) => text === ";" || (text === "+" && rest[position - 1]?.text === "{}"),
    );
    const given = (end === -1 ? rest : rest.slice(0, end)).map((each) =>
      each.text.includes("{}") ? { text: each.text, literal: false, start: "" } : each,
    );
    runs.push(...inner.words(given));
  }
  return { runs, carries: runs.length > 0 };
}

function unwrapAfter(words: readonly ShellWord[], options: readonly string[], inner: Inner): Unwrapped {
  const at = words.findIndex(({ text }) => options.includes(text.split("=", 1)[0] ?? ""));
  if (at === -1) return {};
  return { runs: inner.words([...words.slice(at + 1), added]), carries: true };
}

/** A word that a program like `xargs` adds. */
const added: ShellWord = { text: "{}", literal: false, start: "" };

function unwrapWrapper(wrapper: Wrapper, command: SimpleCommand, inner: Inner): Unwrapped {
  const { words } = command;
  if (wrapper.verbs !== undefined) {
    const verb = words.slice(1).find((word) => !word.start.startsWith("-"));
    return verb !== undefined && wrapper.verbs.includes(verb.text) ? { carries: true } : {};
  }
  if (words.length === 1) return {};
  if (wrapper.textOption !== undefined) {
    const isText = ({ start }: ShellWord) =>
      new RegExp(`^-[a-zA-Z]*${wrapper.textOption}$`).test(start) || /^--(com|call)/.test(start);
    const at = words.findIndex((word, position) => position > 0 && isText(word));
    if (at !== -1) {
      const option = words[at] ?? nothing;
      const value = option.text.includes("=")
        ? { ...option, text: option.text.slice(option.text.indexOf("=") + 1) }
        : words[at + 1];
      return { runs: inner.text(value, false), carries: true };
    }
  }
  const found = commandWithin(wrapper, words);
  if (wrapper.assigns === true && words.some(({ text }) => /^[^-=][^=]*[^\w=][^=]*=/.test(text)))
    inner.doubt("it sets a variable that a shell may take for a function");
  if (found === undefined) {
    if (words.some((word) => !word.literal)) inner.doubt("the name of a command is only known when it runs");
    return { carries: true, unclear: true };
  }
  const { at, options, assignments } = found;
  const rest = words.slice(at);
  if (rest.length === 0) return { carries: true };
  const isText = wrapper.shellText === true;
  if (isText && wrapper.addsWords === true) inner.doubt("a shell reads a text that is only known when it runs");
  const runs = isText
    ? inner.text(joined(rest), false)
    : inner.words(wrapper.addsWords === true ? [...rest, added] : rest, assignments);
  const harmless = wrapper.harmless === true && (!wrapper.assigns || options === 0);
  return { runs, runsFrom: at, harmless, carries: true };
}

/** Where the command of a wrapper begins; `undefined` where its options are not understood. */
function commandWithin(wrapper: Wrapper, words: readonly ShellWord[]) {
  const { valued = "", plain = "", long = [], operands = 0, assigns } = wrapper;
  const assignments: ShellAssignment[] = [];
  let at = 1;
  for (; at < words.length; at++) {
    const { text, literal, start } = words[at] ?? nothing;
    if (!literal && (start === "" || start.startsWith("-"))) return undefined;
    if (!start.startsWith("-") || text === "-") break;
    if (text === "--") {
      at++;
      break;
    }
    if (text.startsWith("--")) {
      const [name = ""] = text.slice(2).split("=", 1);
      if (long.includes(`${name}=`)) at += text.includes("=") ? 0 : 1;
      else if (!long.includes(name)) return undefined;
      continue;
    }
    for (let position = 1; position < text.length; position++) {
      const letter = text.charAt(position);
      if (valued.includes(letter)) {
        if (position === text.length - 1) at++;
        break;
      }
      if (!plain.includes(letter)) return undefined;
    }
  }
  const options = at - 1;
  for (; assigns === true && at < words.length; at++) {
    const word = words[at] ?? nothing;
    const [, name] = /^([A-Za-z_]\w*)=/.exec(word.start) ?? [];
    if (name === undefined) break;
    assignments.push({ name, text: word.text });
  }
  const skipped = at + operands;
  if (words.slice(at, skipped).some((word) => !word.literal && word.start === "")) return undefined;
  return { at: skipped, options: options + assignments.length, assignments };
}

const codeInLine = "it runs code that is written in the line";
/** Beginnings of the commands of sqlite3 that run, read or write something else than the database. */
const sqliteCommand = /^\s*\.(sh|sy|o|imp|lo|re|ex|cl|sa|b|ar|cd)/;
/** Modules of Python that run what their arguments say. */
const codeModules: ReadonlySet<string> = new Set(["timeit", "pdb", "code", "asyncio", "doctest"]);
const readsInput = /^(-|\/dev\/stdin|\/dev\/fd\/\d+|\/proc\/[^/]+\/fd\/\d+)$/;

function unwrapInterpreter(
  { code, valued = "" }: NonNullable<ReturnType<typeof interpreterOf>>,
  { words, readsText }: SimpleCommand,
  inner: Inner,
): Unwrapped {
  let quiet = false;
  for (let at = 1; at < words.length; at++) {
    const { text, start, literal } = words[at] ?? nothing;
    if (!literal && start === "") return { hides: "it is given words that are only known when it runs" };
    if (text === "eval" || /^--?(eval|print|execute|command|run|cmd)\b/.test(text)) return { hides: codeInLine };
    if (/(^|=)data:/.test(text) || /^\+\D/.test(text)) return { hides: codeInLine };
    if (text === "--check-hash-based-pycs") at++;
    const [, inOne = ""] = /^-[A-Za-z]*?m(\w*)$/.exec(text) ?? [];
    if (text.startsWith("-") && codeModules.has(inOne === "" ? (words[at + 1]?.text ?? "") : inOne))
      return { hides: codeInLine };
    if (/^--?(version|help|v|V|h|m)$/.test(text) || text.startsWith("--check")) quiet = true;
    if (readsInput.test(text)) break;
    if (!text.startsWith("-")) return {};
    if (text.startsWith("--")) continue;
    if ([...text.slice(1)].some((letter) => code.includes(letter))) return { hides: codeInLine };
    if (valued.includes(text.charAt(1)) && text.length === 2) at++;
  }
  if (quiet && !readsText) return {};
  return readsUnknown(words[0]?.text ?? "", inner);
}

const gitRuns =
  /^(-c|--config-env.*|--exec-path=.*|--exec.*|-x.*|--upload-pack.*|--receive-pack.*|--ext.*|-O.*|--open-files.*|foreach|run|filter-branch|.*::.*)$/;

function gitHides(words: readonly ShellWord[]): Unwrapped {
  const given = words.slice(1);
  const verb = given.find(({ start }) => !start.startsWith("-"));
  if (!given.some(({ text }) => gitRuns.test(text))) return {};
  return verb?.text === "commit" || verb?.text === "log"
    ? {}
    : { hides: "git can be told to run a command", carries: true };
}

const sedOptions =
  /^-([nErszu]+|e)$|^--(quiet|silent|regexp-extended|null-data|unbuffered|separate|posix|debug|expression=.*)$/;
const sedAddress = "(?:\\d+|\\$|/(?:[^/\\\\\\n]|\\\\.)*/)";
const sedSubstitution =
  "s(?:/(?:[^/\\\\\\n]|\\\\.)*){2}/[gpiI\\d]*|s(?:\\|(?:[^|\\\\\\n]|\\\\.)*){2}\\|[gpiI\\d]*|s(?:#(?:[^#\\\\\\n]|\\\\.)*){2}#[gpiI\\d]*";
const sedCommand = `(?:${sedAddress}(?:,${sedAddress})?)?\\s*!?\\s*(?:[pdDgGhHxnNPlq=]|${sedSubstitution})`;
const sedScript = new RegExp(`^\\s*${sedCommand}(?:\\s*[;\\n]\\s*${sedCommand})*\\s*;?\\s*$`);

/** Whether a `sed` only edits what it reads: its scripts are known, and it writes no file. */
export function isPlainSed(words: readonly ShellWord[]): boolean {
  const scripts: ShellWord[] = [];
  let wantsScript = true;
  for (let at = 1; at < words.length; at++) {
    const word = words[at] ?? nothing;
    if (!word.literal && (word.start === "" || word.start.startsWith("-"))) return false;
    if (word.text.startsWith("-")) {
      if (!sedOptions.test(word.text)) return false;
      if (!word.text.endsWith("e") && !word.text.startsWith("--expression=")) continue;
      wantsScript = false;
      scripts.push(
        word.text.endsWith("e") && !word.text.includes("=")
          ? (words[++at] ?? nothing)
          : { ...word, text: word.text.slice(13) },
      );
    } else if (wantsScript) {
      wantsScript = false;
      scripts.push(word);
    }
  }
  return scripts.every(({ text, literal }) => literal && text.length < 1000 && sedScript.test(text));
}

/** Whether an `awk` only reads and prints: its program is in the line, runs nothing and opens nothing. */
export function isPlainAwk(words: readonly ShellWord[]): boolean {
  for (let at = 1; at < words.length; at++) {
    const { text, literal, start } = words[at] ?? nothing;
    if (!literal && (start === "" || start.startsWith("-"))) return false;
    if (/^-F/.test(text)) {
      if (text === "-F") at++;
    } else if (text === "-v") {
      at++;
    } else if (text !== "--") {
      return literal && !text.startsWith("-") && !/system|getline|[|>@"]\s*[|>]|[|>@]|\bclose\b|ENVIRON/.test(text);
    }
  }
  return true;
}

/**
 * The files that a command line has run directly, as it names them: `./x.sh`, `sh x.sh`, `python3 x.py`, `source x`. Not those
 * that programs of the system run by themselves, as `make` or `npm test` do. A file named after a `cd` is also given beneath
 * that folder.
 */
export function filesRunBy(text: string): string[] {
  const files = new Set<string>();
  let folder = "";
  for (const command of everyCommand(readCommandLine(text).commands)) {
    const { program, words, redirections } = command;
    const add = (path: string) => {
      files.add(path);
      if (folder !== "" && !path.startsWith("/")) files.add(posix.join(folder, path));
    };
    const [name, ...given] = words;
    if (name?.literal === true && name.text.includes("/")) add(name.text);
    if ((program === "cd" || program === "pushd") && given[0]?.literal === true)
      folder = posix.join(folder, given[0].text);
    const isShell = shells.has(program) || otherShells.has(program);
    if (isShell || interpreterOf(program) !== undefined || program === "source" || program === ".") {
      // Options may take values, so that each word up to the first that is no option may be the file, and the one after it.
      const isCode = isShell ? given.some((word) => /^-[a-zA-Z]*c/.test(word.start)) : command.hides === codeInLine;
      const at = isCode ? -1 : given.findIndex((word) => !word.start.startsWith("-"));
      for (const word of at === -1 ? [] : given.slice(at, at + 2)) if (word.literal) add(word.text);
      for (const { opens, path } of redirections) if (opens === "read" && path.literal) add(path.text);
    }
  }
  return [...files];
}
