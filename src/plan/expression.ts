import { type ASTNode, Environment } from "@marcbachmann/cel-js";
import { TooSlow, withinTime } from "../tool/within-time.ts";
import { type PlanScope, PlanValueError } from "./plan-scope.ts";

/** Where a condition stands: within `for_each` there are `item` and `index` too. */
export interface ConditionPlace {
  readonly inForEach: boolean;
}

const maxCharacters = 2000;
const limits = { maxAstNodes: 500, maxDepth: 32, maxListElements: 200, maxMapEntries: 50, maxCallArguments: 8 };
const checkLimitMs = 100;
const evaluateLimitMs = 150;
/** What every read of a member becomes; conditions themselves can't call it. */
const memberOf = "member_of_value";
/** What a value that is to be true or false becomes. */
const truthOf = "truth_of_value";

type Numeric = number | bigint;

/**
 * Conditions are CEL with three differences. All numbers of values are doubles, as in JSON, and those may stand beside
 * whole numbers: `step.count.result + 1 > 3`. What isn't there is null, and so is what is within null. Null is false, and
 * is less than, greater than or equal to no number or text.
 */
const shared = new Environment({ homogeneousAggregateLiterals: false, limits })
  .registerVariable("step", "map<string, dyn>")
  .registerVariable("input", "dyn")
  .registerOperator("int == double", (left: bigint, right: number) => Number(left) === right)
  .registerOperator("double % double", (left: number, right: number) => remainder(left, right))
  .registerOperator("!null", () => true)
  .registerFunction("size(null): int", () => 0n);
for (const [left, right] of [
  ["int", "double"],
  ["double", "int"],
] as const) {
  shared
    .registerOperator(`${left} + ${right}: double`, (a: Numeric, b: Numeric) => Number(a) + Number(b))
    .registerOperator(`${left} - ${right}: double`, (a: Numeric, b: Numeric) => Number(a) - Number(b))
    .registerOperator(`${left} * ${right}: double`, (a: Numeric, b: Numeric) => Number(a) * Number(b))
    .registerOperator(`${left} / ${right}: double`, (a: Numeric, b: Numeric) => Number(a) / Number(b))
    .registerOperator(`${left} % ${right}: double`, (a: Numeric, b: Numeric) => remainder(Number(a), Number(b)));
}
for (const operator of ["<", "<=", ">", ">="]) {
  shared.registerOperator(`null ${operator} null: bool`, () => false);
  for (const type of ["int", "double", "string"]) {
    shared.registerOperator(`null ${operator} ${type}: bool`, () => false);
    shared.registerOperator(`${type} ${operator} null: bool`, () => false);
  }
}
shared.registerOperator("dyn in null: bool", () => false);

const outside = shared.clone();
const inside = shared.clone().registerVariable("item", "dyn").registerVariable("index", "double");
/** A condition as it is evaluated is longer and nested deeper than as it is written. */
const evaluating = inside
  .clone({ limits: { ...limits, maxAstNodes: 10 * limits.maxAstNodes, maxDepth: 250 } })
  .registerFunction(`${memberOf}(dyn, dyn): dyn`, (value: unknown, key: unknown) => memberValue(value, key))
  .registerFunction(`${truthOf}(dyn): dyn`, (value: unknown) => value ?? false);

/**
 * Why a condition can't be used, as the end of a sentence like `is no condition: ... at character 7`; undefined when it can.
 * Empty text is none and so always can.
 */
export function checkCondition(text: string, place: ConditionPlace): string | undefined {
  if (text.trim() === "") return undefined;
  if (text.length > maxCharacters) return `has ${text.length} characters; a condition has at most ${maxCharacters}`;
  try {
    return withinTime(checkLimitMs, () => faultOf(text, place));
  } catch (error) {
    if (error instanceof TooSlow) return `takes more than ${checkLimitMs} ms to read; make it simpler`;
    return "can't be read; make it simpler";
  }
}

function faultOf(text: string, { inForEach }: ConditionPlace): string | undefined {
  const environment = inForEach ? inside : outside;
  let parsed: ReturnType<Environment["parse"]>;
  try {
    parsed = environment.parse(text);
  } catch (error) {
    return `can't be read: ${explained(error)}`;
  }
  // Reads through what is parsed before the check, which adds to it.
  const fault = formFault(parsed.ast);
  if (fault !== undefined) return fault;
  const { valid, type, error } = parsed.check();
  if (!valid) return `can't be used: ${explained(error, inForEach)}`;
  if (type !== "bool" && type !== "dyn") return `has to be true or false; it is a ${type ?? "value"}`;
  return undefined;
}

/** What a condition may not do although the language can. */
function formFault(node: ASTNode): string | undefined {
  if ((node.op === "call" || node.op === "rcall") && [memberOf, truthOf].includes(node.args[0]))
    return `calls ${node.args[0]}, which there is not`;
  if (stepIdOf(node) !== undefined) return undefined;
  const owner = resultOwner(node);
  if (owner === undefined && node.op === "id" && node.args === "step")
    return `uses step without an id, at character ${node.range.start + 1}; write step.<id>.result or step["a-b"].result`;
  if (owner !== undefined && owner.member !== "result")
    return `reads .${owner.member} of the step ${owner.stepId}; a step has nothing but .result`;
  if (owner !== undefined) return undefined;
  for (const child of childrenOf(node)) {
    const stepId = stepIdOf(child);
    if (stepId !== undefined && resultOwner(node) === undefined)
      return `has to go on with .result after the id of the step ${stepId}`;
    const fault = formFault(child);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** `step.a` and `step["a"]`: the id of the step. */
function stepIdOf(node: ASTNode): string | undefined {
  const member = memberRead(node);
  return member?.of.op === "id" && member.of.args === "step" ? member.name : undefined;
}

/** `step.a.result`: which step and which member. */
function resultOwner(node: ASTNode): { readonly stepId: string; readonly member: string } | undefined {
  const member = memberRead(node);
  const stepId = member === undefined ? undefined : stepIdOf(member.of);
  return stepId === undefined || member === undefined ? undefined : { stepId, member: member.name };
}

function memberRead(node: ASTNode): { readonly of: ASTNode; readonly name: string } | undefined {
  if (node.op === ".") return { of: node.args[0], name: node.args[1] };
  if (node.op !== "[]") return undefined;
  const [of, key] = node.args;
  return key.op === "value" && typeof key.args === "string" ? { of, name: key.args } : undefined;
}

/** Ids of the steps a condition refers to, each once. Of one that can't be read there are none. */
export function stepsNamedIn(text: string): readonly string[] {
  if (text.trim() === "" || text.length > maxCharacters) return [];
  try {
    // Reading alone is quick whatever the text is: the parser stops at its limits.
    return [...new Set(stepsIn(inside.parse(text).ast))];
  } catch {
    return [];
  }
}

function stepsIn(node: ASTNode): readonly string[] {
  const own = stepIdOf(node);
  return own === undefined ? childrenOf(node).flatMap(stepsIn) : [own];
}

/** Names of the members of `input` a condition reads, each once. */
export function inputsNamedIn(text: string): readonly string[] {
  if (text.trim() === "" || text.length > maxCharacters) return [];
  try {
    return [...new Set(inputsIn(inside.parse(text).ast))];
  } catch {
    return [];
  }
}

function inputsIn(node: ASTNode): readonly string[] {
  const member = memberRead(node);
  if (member?.of.op === "id" && member.of.args === "input") return [member.name];
  return childrenOf(node).flatMap(inputsIn);
}

/**
 * Whether a condition holds. Empty text always does; null is false.
 * @throws {PlanValueError} where it can't be evaluated or is neither true nor false.
 */
export function evaluateCondition(text: string, scope: PlanScope): boolean {
  if (text.trim() === "") return true;
  const shown = JSON.stringify(text.length <= 200 ? text : `${text.slice(0, 197)}...`);
  if (text.length > maxCharacters) throw new PlanValueError(`the condition ${shown} is too long`);
  let value: unknown;
  try {
    value = withinTime(evaluateLimitMs, () => evaluated(text, scope));
  } catch (error) {
    if (error instanceof TooSlow)
      throw new PlanValueError(`the condition ${shown} takes more than ${evaluateLimitMs} ms; make it simpler`);
    throw new PlanValueError(`the condition ${shown} can't be evaluated: ${withoutPlace(error)}`);
  }
  if (value === null) return false;
  if (typeof value === "boolean") return value;
  throw new PlanValueError(`the condition ${shown} has to be true or false; it is ${described(value)}`);
}

function evaluated(text: string, scope: PlanScope): unknown {
  const { ast } = evaluating.parse(text);
  const results = new Map(stepsIn(ast).map((id) => [id, new Map([["result", celValue(scope.step(id))]])]));
  return evaluating.evaluate(rewritten(ast), {
    step: results,
    input: celValue(scope.input),
    item: celValue(scope.item),
    index: scope.index ?? 0,
  });
}

/** The text of a condition where reads of members are calls, so that what isn't there is null. */
function rewritten(node: ASTNode): string {
  switch (node.op) {
    case "value":
      return node.input.slice(node.range.start, node.range.end);
    case "id":
      return node.args;
    case ".":
      return `${memberOf}(${rewritten(node.args[0])}, ${JSON.stringify(node.args[1])})`;
    case "[]":
      return `${memberOf}(${rewritten(node.args[0])}, ${rewritten(node.args[1])})`;
    case "call": {
      const [name, given] = node.args;
      const list = given.map(rewritten).join(", ");
      return name === "has" ? `(${list} != null)` : `${name}(${list})`;
    }
    case "rcall": {
      const [name, receiver, given] = node.args;
      return `(${rewritten(receiver)}).${name}(${given.map(rewritten).join(", ")})`;
    }
    case "list":
      return `[${node.args.map(rewritten).join(", ")}]`;
    case "map":
      return `{${node.args.map(([key, value]) => `${rewritten(key)}: ${rewritten(value)}`).join(", ")}}`;
    case "!_":
      return `!(${rewritten(node.args)})`;
    case "-_":
      return `-(${rewritten(node.args)})`;
    case "?:": {
      const [condition, yes, no] = node.args;
      return `(${rewrittenTruth(condition)} ? ${rewritten(yes)} : ${rewritten(no)})`;
    }
    case "&&":
    case "||":
      return `(${rewrittenTruth(node.args[0])} ${node.op} ${rewrittenTruth(node.args[1])})`;
    case ".?":
    case "[?]":
      throw new PlanValueError(`${node.op} is not read`);
    default:
      return `(${rewritten(node.args[0])} ${node.op} ${rewritten(node.args[1])})`;
  }
}

function rewrittenTruth(node: ASTNode): string {
  const text = rewritten(node);
  return node.op === "." || node.op === "[]" || node.op === "?:" ? `${truthOf}(${text})` : text;
}

/** The parts of an expression in the order of their text. */
function childrenOf({ args }: ASTNode): readonly ASTNode[] {
  const children: ASTNode[] = [];
  collect(args);
  return children.toSorted((left, right) => left.range.start - right.range.start);

  function collect(part: unknown): void {
    if (Array.isArray(part)) for (const inner of part) collect(inner);
    else if (isNode(part)) children.push(part);
  }
}

function isNode(part: unknown): part is ASTNode {
  return typeof part === "object" && part !== null && "op" in part && "range" in part;
}

/** Objects become maps: what their members are called then means nothing. */
function celValue(value: unknown): unknown {
  if (value === undefined || value === null) return null;
  if (Array.isArray(value)) return value.map(celValue);
  if (typeof value === "object") return new Map(Object.entries(value).map(([key, inner]) => [key, celValue(inner)]));
  return value;
}

function memberValue(value: unknown, key: unknown): unknown {
  if (value instanceof Map) return value.get(key) ?? null;
  if (Array.isArray(value))
    return (typeof key === "bigint" || typeof key === "number" ? value[Number(key)] : null) ?? null;
  // An object that the condition itself writes out.
  if (typeof value === "object" && value !== null && typeof key === "string")
    return Object.getOwnPropertyDescriptor(value, key)?.value ?? null;
  return null;
}

function remainder(left: number, right: number): number {
  if (right === 0) throw new PlanValueError("a remainder of a division by zero is asked for");
  return left % right;
}

function described(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (value instanceof Map || (typeof value === "object" && value !== null)) return "an object";
  if (typeof value === "bigint") return `${value}`;
  return (JSON.stringify(value) ?? "nothing").slice(0, 80);
}

/** What the language says is wrong, and where. */
function explained(error: unknown, inForEach = true): string {
  const { summary, start } = said(error);
  const name = /^Unknown variable: (\w+)$/.exec(summary)?.[1];
  const where = start === undefined ? "" : `, at character ${start + 1}`;
  if (name !== undefined && !inForEach && (name === "item" || name === "index"))
    return `${name} is there only within for_each${where}`;
  if (name !== undefined)
    return `there is no ${name}${where}; use step.<id>.result, input${inForEach ? ", item, index" : ""} (an id with - is written step["a-b"])`;
  return `${summary}${where}`;
}

function withoutPlace(error: unknown): string {
  return said(error).summary.replaceAll(/dyn<([^<>]*)>/g, "$1");
}

function said(error: unknown): { readonly summary: string; readonly start?: number } {
  if (!(error instanceof Error)) return { summary: "it is not understood" };
  const summary = "summary" in error && typeof error.summary === "string" ? error.summary : error.message;
  const range = "range" in error ? error.range : undefined;
  const start = typeof range === "object" && range !== null && "start" in range ? range.start : undefined;
  const short = summary.split("\n")[0]?.slice(0, 300) ?? "";
  return typeof start === "number" ? { summary: short, start } : { summary: short };
}
