import {
  type Assignment,
  forEachChild,
  type ParameterExpansionPart,
  type ParsedScript,
  parse,
  type Redirection,
  type SyntaxNode,
  type TestBinaryExpression,
  type Word,
  type WordPart,
} from "unbash";

/** A word of a command. */
export interface ShellWord {
  /** Without its quotes where it is literal, else as it was written. */
  readonly text: string;
  /** The program is given exactly `text`: nothing in the word is replaced, expanded or split. */
  readonly literal: boolean;
  /** What the word is sure to begin with; all of it where it is literal. */
  readonly start: string;
}

export interface ShellAssignment {
  readonly name: string;
  /** As it was written, the name included. */
  readonly text: string;
}

/** What a redirection opens; `>&2` and the like open nothing and are left out. */
export interface ShellRedirection {
  readonly opens: "read" | "write";
  readonly path: ShellWord;
}

/** A program with its arguments, or what stands alone: assignments, the redirections of a loop. */
export interface SimpleCommand {
  readonly words: readonly ShellWord[];
  readonly assignments: readonly ShellAssignment[];
  readonly redirections: readonly ShellRedirection[];
  /** It is given a text to read: a here-document or a here-string. */
  readonly readsText: boolean;
  /** As it was written. */
  readonly text: string;
}

export interface ShellText {
  /** Every simple command at any depth, substitutions included, in the order they are written. */
  readonly commands: readonly SimpleCommand[];
  /** Why the commands may not be all that runs, as the beginning of a sentence; empty where they are. */
  readonly doubts: readonly string[];
}

const maxCharacters = 32 * 1024;
const maxCommands = 500;
const maxNodes = 50_000;
/** Substitutions, however they nest: the parser takes quadratic time for deep ones. */
const maxOpenings = 250;
const openings = /\$[({[]|`|[<>]\(|\(\(|<</g;

/**
 * Reads a text as bash does and finds the simple commands in it. Never throws and is quick for any text: what is too long, too
 * deep or not understood comes back with a doubt.
 */
export function parseShell(text: string): ShellText {
  if (text.length > maxCharacters) return doubtful(`it has more than ${maxCharacters} characters`);
  if (text.includes("\0")) return doubtful("it contains a NUL character");
  if ((text.match(openings)?.length ?? 0) > maxOpenings)
    return doubtful(`it has more than ${maxOpenings} substitutions`);
  try {
    return readScript(text);
  } catch (error) {
    if (error instanceof RangeError) return doubtful("it is nested too deep");
    throw error;
  }
}

function doubtful(doubt: string): ShellText {
  return { commands: [], doubts: [doubt] };
}

function readScript(text: string): ShellText {
  const commands: SimpleCommand[] = [];
  const doubts = new Set<string>();
  let nodes = 0;
  // Positions within an escaped backtick count in a text of their own.
  const visit = (node: SyntaxNode, source: string): void => {
    if (++nodes > maxNodes || commands.length > maxCommands) {
      doubts.add(`it has more than ${maxCommands} commands`);
      return;
    }
    const doubt = doubtAbout(node);
    if (doubt !== undefined) doubts.add(doubt);
    let within = source;
    if (node.type === "Script") within = node.source ?? source;
    else if (node.type === "Command") {
      commands.push({
        words: [...(node.name === undefined ? [] : [node.name]), ...node.args].map(wordOf),
        assignments: node.prefix.flatMap((part) => (part.type === "Assignment" ? [assignmentOf(part)] : [])),
        ...redirectionsOf(node.redirects),
        text: within.slice(node.pos, node.end),
      });
      if (node.name !== undefined && !wordOf(node.name).literal)
        doubts.add("the name of a command is only known when it runs");
    } else if (node.type === "Redirected") {
      const text = within.slice(node.redirects[0]?.pos ?? node.pos, node.end);
      commands.push({ words: [], assignments: [], ...redirectionsOf(node.redirects), text });
    }
    forEachChild(node, (child) => visit(child, within));
  };
  visit(parse(text), text);
  return { commands, doubts: [...doubts] };
}

/** What in a node may run more than the commands that are written. */
function doubtAbout(node: SyntaxNode): string | undefined {
  switch (node.type) {
    case "Script":
      return errorOf(node);
    case "CommandExpansion":
    case "ProcessSubstitution":
      return node.script === undefined ? "a substitution can't be read" : undefined;
    case "ArithmeticCommandExpansion":
      return "the result of a command is computed with";
    case "ArithmeticExpansion":
    case "ArithmeticCommand":
      return node.expression === undefined ? "an arithmetic expression can't be read" : undefined;
    case "ArithmeticWord":
      return isNumber(node.value) ? undefined : computes;
    case "TestUnary":
      return node.operator === "-v" && !isName(wordOf(node.operand)) ? computes : undefined;
    case "TestBinary":
      return testDoubt(node);
    case "ParameterExpansion":
      return parameterDoubt(node);
    case "Assignment":
      return node.index === undefined || isIndex(node.index) ? undefined : computes;
    case "Unknown":
      return "an expansion can't be read";
    case "Redirect":
    case "HereString":
      return node.target === undefined ? "a redirection can't be read" : undefined;
    case "HereDoc":
      return node.delimiter === undefined || node.closing === undefined ? "a here-document does not end" : undefined;
    default:
      return undefined;
  }
}

/** Bash evaluates the value of a variable as an expression, and a subscript in it may run commands. */
const computes = "it computes with variables, whose values may run commands";

function errorOf({ errors }: ParsedScript): string | undefined {
  const [first] = errors ?? [];
  return first === undefined ? undefined : `the shell's grammar does not fit: ${first.message}`;
}

function testDoubt({ operator, left, right }: TestBinaryExpression): string | undefined {
  if (!["-eq", "-ne", "-lt", "-le", "-gt", "-ge"].includes(operator)) return undefined;
  return [left, right].map(wordOf).every((word) => word.literal && isNumber(word.text)) ? undefined : computes;
}

function parameterDoubt({ prefix, index, operation }: ParameterExpansionPart): string | undefined {
  if (prefix === "!" && operation?.type !== "Names") return "a variable names another one";
  if (index !== undefined && !isIndex(index)) return computes;
  switch (operation?.type) {
    case "Transform":
      return "QEAaUuLKk".includes(operation.operand.text) ? undefined : "a value is expanded as a prompt";
    case "Slice":
      return [operation.offset, operation.length].every((word) => word === undefined || isNumber(word.text.trim()))
        ? undefined
        : computes;
    case "Unknown":
      return "an expansion can't be read";
    default:
      return undefined;
  }
}

function isIndex(word: Word): boolean {
  return isNumber(word.text) || word.text === "@" || word.text === "*";
}

function isNumber(text: string): boolean {
  return /^-?\d+$/.test(text);
}

function isName(word: ShellWord): boolean {
  return word.literal && /^[A-Za-z_]\w*$/.test(word.text);
}

function redirectionsOf(all: readonly Redirection[]): Pick<SimpleCommand, "redirections" | "readsText"> {
  const redirections: ShellRedirection[] = [];
  for (const redirection of all) {
    if (redirection.type !== "Redirect" || redirection.target === undefined) continue;
    const path = wordOf(redirection.target);
    const duplicates = redirection.operator === "<&" || redirection.operator === ">&";
    if (duplicates && path.literal && /^(\d+-?|-)$/.test(path.text)) continue;
    if (redirection.operator !== "<" && redirection.operator !== "<&") redirections.push({ opens: "write", path });
    if (["<", "<&", "<>"].includes(redirection.operator)) redirections.push({ opens: "read", path });
  }
  return { redirections, readsText: all.some((redirection) => redirection.type !== "Redirect") };
}

function assignmentOf({ name, text }: Assignment): ShellAssignment {
  return { name, text };
}

function wordOf(word: Word | Assignment): ShellWord {
  if (word.type === "Assignment") {
    // An argument of `export` and its like: what is replaced in its value makes no other words.
    const isPlain = /^[\w[\]]+\+?=[\w@%+,./:-]*$/.test(word.text) && !/[=:]~/.test(word.text);
    return { text: word.text, literal: isPlain, start: isPlain ? word.text : `${word.name}=` };
  }
  const { text, value, parts } = word;
  if (parts === undefined) {
    const literal = isPlainText(text);
    return { text: literal ? value : text, literal, start: literal ? value : "" };
  }
  let start = "";
  for (const [position, part] of parts.entries()) {
    const plain = literalPart(part, position === 0);
    if (plain === undefined) return { text, literal: false, start };
    start += plain;
  }
  return { text: value, literal: value === start, start };
}

/** What a part of a word comes to; `undefined` for what the shell replaces. */
function literalPart(part: WordPart, isFirst: boolean): string | undefined {
  switch (part.type) {
    case "Literal":
      return isPlainText(part.text, isFirst) ? part.value : undefined;
    case "SingleQuoted":
    case "AnsiCQuoted":
      return part.value;
    case "DoubleQuoted": {
      const texts = part.parts.map((each) => (each.type === "Literal" ? each.value : undefined));
      return texts.includes(undefined) ? undefined : texts.join("");
    }
    default:
      return undefined;
  }
}

/** Whether nothing is replaced in a text without quotes. */
function isPlainText(text: string, isFirst = true): boolean {
  const unescaped = text.replace(/\\[\s\S]/g, "");
  if (isFirst && unescaped.startsWith("~") && text.startsWith("~")) return false;
  return !/[*?[`]|[=:]~|\$[\w({['"@*#?!$-]|\{[^}]*(,|\.\.)/.test(unescaped);
}
