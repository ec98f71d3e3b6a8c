import type { Judge, Judgement, PermissionPart } from "./permission.ts";
import type { PermissionRule } from "./permission-rule.ts";
import type { ResolvedPath } from "./real-path.ts";
import { type CommandLine, everyCommand, type RunCommand } from "./shell/command-line.ts";
import { coveredWords, isAbout, isMentioned, whyNotCovered } from "./shell/command-rule.ts";
import type { ShellRedirection } from "./shell/parse-shell.ts";
import { riskOf } from "./shell/risky-options.ts";

const mostPartsNamed = 100;
const harmlessFiles: ReadonlySet<string> = new Set([
  "/dev/null",
  "/dev/stdout",
  "/dev/stderr",
  "/dev/stdin",
  "/dev/tty",
]);
const moving: ReadonlySet<string> = new Set(["cd", "pushd", "popd"]);

/**
 * Judges a command line: each simple command in it at any depth, each file its redirections open, and what can't be told. A
 * rule that allows has to cover a command in full, and what runs it; one that denies or asks is found in any of them.
 * @param pathOf says where a path of the line leads
 */
export function judgeCommandLine(
  judge: Judge,
  line: CommandLine,
  pathOf: (given: string) => ResolvedPath,
): readonly PermissionPart[] {
  const text = line.text.trim();
  const parts: PermissionPart[] = [];
  const add = (subject: string, judgement: Judgement) => {
    // A hostile line has hundreds; the strictest are what counts.
    const isNew = parts.every((part) => part.decision !== judgement.decision);
    if (parts.length < mostPartsNamed || isNew) parts.push({ subject, ...judgement });
  };
  const all = [...everyCommand(line.commands)];
  const moves = all.some(({ program }) => moving.has(program));
  // A rule that restricts no command in particular needs no understanding.
  const byWhole = judge.byRules(({ pattern }) => pattern === undefined);
  if (byWhole?.decision === "deny") return [{ subject: text, ...byWhole }];
  const isWhole = ({ pattern, command }: PermissionRule) =>
    pattern === undefined || (command?.isPrefix === false && command.text === text);
  const allowing = judge.byRules((rule, decision) => decision === "allow" && isWhole(rule));
  const restricting = restrictions(judge);

  const judgeNode = (node: RunCommand, covering: Judgement | undefined): void => {
    const strict = restricted(judge, node, text) ?? possiblyRestricted(judge, node);
    const needsRule =
      node.words.length > 0 && !(node.harmless && node.runs.length > 0 && node.assignments.length === 0);
    let covers = allowing ?? covering;
    if (strict !== undefined) add(node.text, strict);
    else if (byWhole?.decision === "ask") add(node.text, byWhole);
    else if (covers !== undefined) add(node.text, covers);
    else if (needsRule) {
      const { judgement, coversInner } = allowance(judge, node, moves);
      add(node.text, judgement);
      if (coversInner) covers = judgement;
    } else if (node.words.length === 0 && node.sets !== undefined) add(node.text, inDoubt(judge, node.sets));
    for (const redirection of node.redirections) judgeRedirection(redirection, node);
    const unknown = node.hides ?? node.sets;
    if (restricting.length > 0 && unknown !== undefined) add(node.text, hidden(judge, text, unknown));
    else if (restricting.length > 0 && mayRunMore(node, moves)) {
      const named = mentioned(judge, node.text);
      if (named !== undefined) add(node.text, named);
    }
    for (const named of namedPaths(judge, node, pathOf)) add(named.subject, named);
    for (const inner of node.runs) judgeNode(inner, covers);
  };
  const judgeRedirection = ({ opens, path }: ShellRedirection, node: RunCommand): void => {
    if (path.literal && (harmlessFiles.has(path.text) || /^\/dev\/fd\/\d+$/.test(path.text))) return;
    if (/^\/dev\/(tcp|udp)\//.test(path.start)) add(path.text, inDoubt(judge, "it opens a connection"));
    const isKnown = path.literal && !(moves && !path.text.startsWith("/"));
    if (isKnown) {
      const judgement = judge.path(pathOf(path.text), opens);
      const isLoose = judgement.ruleSource === "mode" && judgement.decision === "ask";
      if (opens === "write" || judgement.decision !== "allow")
        add(path.text, isLoose && allowing !== undefined ? allowing : judgement);
    } else if (allowing === undefined || restrictsPaths(judge)) {
      if (opens === "write" || restrictsPaths(judge))
        add(node.text, inDoubt(judge, `where it ${opens}s is only known when it runs`, restrictsPaths(judge)));
    }
  };

  for (const node of line.commands) judgeNode(node, undefined);
  if (line.doubts.length > 0 && (allowing === undefined || restricting.length > 0)) {
    const [doubt = ""] = line.doubts;
    add(text, restricting.length > 0 ? hidden(judge, text, doubt) : inDoubt(judge, doubt));
  }
  if (parts.length > 0) return parts;
  return [{ subject: text, ...(allowing ?? byWhole ?? (isEmpty(line) ? judge.byMode() : harmlessLine)) }];
}

const harmlessLine: Judgement = {
  decision: "allow",
  rule: "",
  ruleSource: "built_in",
  explanation: "it runs nothing and writes nothing",
};

function isEmpty({ commands }: CommandLine): boolean {
  return commands.length === 0;
}

/** Rules about commands that deny or ask for some of them. */
function restrictions(judge: Judge): readonly PermissionRule[] {
  const found: PermissionRule[] = [];
  judge.byRules((rule, decision) => {
    if (decision !== "allow" && rule.pattern !== undefined) found.push(rule);
    return false;
  });
  return found;
}

function restricted(judge: Judge, node: RunCommand, text: string): Judgement | undefined {
  return judge.byRules(({ command }, decision) => {
    if (decision === "allow" || command === undefined) return false;
    // A pattern of several commands is a text, found as it is written.
    return command.command === undefined ? text.includes(command.text) : isAbout(command, node) === "yes";
  });
}

function possiblyRestricted(judge: Judge, node: RunCommand): Judgement | undefined {
  const found = judge.byRules(
    ({ command }, decision) => decision !== "allow" && command !== undefined && isAbout(command, node) === "maybe",
  );
  if (found === undefined) return undefined;
  const explanation = `only when it runs it is known whether the rule ${found.rule} is about it`;
  return { ...found, decision: judge.mode === "read-only" ? "deny" : "ask", explanation };
}

/** What the rules that allow and the mode say of one command. */
function allowance(judge: Judge, node: RunCommand, moves: boolean): { judgement: Judgement; coversInner: boolean } {
  let coversInner = false;
  let why: string | undefined;
  const found = judge.byRules(({ command }, decision) => {
    if (decision !== "allow" || command === undefined) return false;
    const covered = node.unclear ? undefined : coveredWords(command, node, moves);
    if (covered === undefined) {
      why ??= node.unclear ? undefined : whyNotCovered(command, node, moves);
      return false;
    }
    // A program that carries another one says by its second word at least what it does with it.
    if (node.carries && node.runs.length === 0 && covered < 2 && node.words.length > 1) return false;
    coversInner = node.runsFrom !== undefined && covered > node.runsFrom;
    return true;
  });
  if (found !== undefined) return { judgement: found, coversInner };
  const byMode = judge.byMode();
  const isExplained = why !== undefined && byMode.decision === "ask";
  return {
    judgement: isExplained ? { ...byMode, explanation: `a rule allows ${node.program}, but ${why}` } : byMode,
    coversInner,
  };
}

/** What can't be told is asked for, where not everything may be run. */
function inDoubt(judge: Judge, doubt: string, isRestricted = false): Judgement {
  const byMode = judge.byMode();
  if (byMode.decision === "deny" || (judge.mode === "bypass" && !isRestricted)) return byMode;
  return { decision: "ask", rule: "", ruleSource: "mode", explanation: `not all that it does can be told: ${doubt}` };
}

/** A command that is denied may hide in what can't be told: where it is named the rule holds, else somebody is asked. */
function hidden(judge: Judge, text: string, doubt: string): Judgement {
  const named = mentioned(judge, text);
  if (named !== undefined) return named;
  const byMode = judge.byMode();
  if (byMode.decision === "deny") return byMode;
  const explanation = `some commands are restricted, and not all that it does can be told: ${doubt}`;
  return { decision: "ask", rule: "", ruleSource: "mode", explanation };
}

/** Whether a program may run what its options say, or words that are not known to be a command. */
function mayRunMore(node: RunCommand, moves: boolean): boolean {
  return (node.carries && node.runs.length === 0) || riskOf(node, 1, moves) !== undefined;
}

/** The rule about a command that is denied or asked for, where its words stand in a text. */
function mentioned(judge: Judge, text: string): Judgement | undefined {
  return judge.byRules(
    ({ command }, decision) => decision !== "allow" && command !== undefined && isMentioned(command, text),
  );
}

function restrictsPaths(judge: Judge): boolean {
  return judge.rules.layers.some(({ ask, deny }) =>
    [...ask, ...deny].some((rule) => /^(read|write|edit)_file\(/.test(rule)),
  );
}

/** Arguments that are, as they are written, files that a rule keeps from being read or written. */
function* namedPaths(
  judge: Judge,
  { words }: RunCommand,
  pathOf: (given: string) => ResolvedPath,
): Generator<PermissionPart> {
  if (!restrictsPaths(judge)) return;
  for (const word of words.slice(1, mostPartsNamed)) {
    const [, value = ""] = /^-[^=]*=(.*)$/s.exec(word.text) ?? [];
    for (const given of value === "" ? [word.text] : [word.text, value]) {
      if (!word.literal || given === "" || given.startsWith("-")) continue;
      const found = judge.path(pathOf(given), "read");
      const judgement = found.decision === "allow" ? writeRule(judge, pathOf(given)) : found;
      if (judgement === undefined) continue;
      const decision = judge.mode === "read-only" ? "deny" : "ask";
      yield {
        ...judgement,
        subject: given,
        decision,
        explanation: `it names a path that the rule ${judgement.rule} is about`,
      };
    }
  }
}

function writeRule(judge: Judge, path: ResolvedPath): Judgement | undefined {
  const found = judge.path(path, "write");
  return found.rule !== "" && found.decision !== "allow" ? found : undefined;
}
