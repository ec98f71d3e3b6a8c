import { Document, isAlias, isMap, isScalar, isSeq, LineCounter, type ParsedNode, parseDocument } from "yaml";
import { AgentError, invalidField } from "../chat/error.ts";
import type { PlanDraft } from "../chat/plan.ts";
import { planDraftFromProto, planDraftToProto } from "../convert/proto/plan.ts";
import { TooSlow, withinTime } from "../tool/within-time.ts";
import { draftFromPlain, draftToPlain, type PlainPath, plainPathText } from "./plain-plan.ts";

const maxBytes = 1024 * 1024;
/** Steps nest, and what they are given does too. */
const maxDepth = 80;
const parseLimitMs = 2000;

/**
 * Reads a plan as people write it in YAML: the fields of the contract's `Plan`, with JSON (parameters, schemas, items)
 * written out as YAML. Whole numbers in it keep all their digits. Plain YAML 1.2 with its core types only: nothing that
 * refers, merges, or names types.
 * @throws {AgentError} `invalid_request` that names line and path of what is wrong.
 */
export function planFromYaml(text: string): PlanDraft {
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) throw invalidField("plan", `has ${bytes} bytes; at most ${maxBytes} are read`);
  const reading = new Reading(text);
  let value: unknown;
  try {
    value = withinTime(parseLimitMs, () => reading.value());
  } catch (error) {
    if (error instanceof TooSlow)
      throw invalidField("plan", `takes more than ${parseLimitMs} ms to read; make it simpler`);
    if (error instanceof RangeError) throw invalidField("plan", `is nested more than ${maxDepth} levels deep`);
    throw error;
  }
  const { draft, faults } = draftFromPlain(value);
  const [fault] = faults;
  if (fault !== undefined) throw reading.fault(fault.path, fault.message);
  try {
    return planDraftFromProto(planDraftToProto(draft), "");
  } catch (error) {
    const violation = error instanceof AgentError ? error.fieldViolations[0] : undefined;
    if (violation === undefined) throw error;
    throw reading.fault(pathOf(violation.field), violation.description);
  }
}

/** Writes a plan for people, without what is empty; `planFromYaml` reads the same plan from it. */
export function planToYaml(draft: PlanDraft): string {
  const document = new Document(draftToPlain(draft), { aliasDuplicateObjects: false });
  return document.toString({ lineWidth: 120 });
}

/** One text that is read, and where its values stand. */
class Reading {
  readonly #text: string;
  readonly #lines = new LineCounter();
  /** Offsets by path. */
  readonly #offsets = new Map<string, number>();

  constructor(text: string) {
    this.#text = text;
  }

  value(): unknown {
    const document = parseDocument(this.#text, {
      version: "1.2",
      schema: "core",
      intAsBigInt: true,
      lineCounter: this.#lines,
      prettyErrors: false,
      uniqueKeys: false,
      stringKeys: false,
      merge: false,
    });
    const [error] = document.errors;
    if (error !== undefined) {
      const [line = ""] = error.message.split("\n", 1);
      throw this.#faultAt(error.pos[0], [], `is no YAML: ${line.slice(0, 300)}`);
    }
    const [warning] = document.warnings;
    const plain = this.#plain(document.contents, [], 0);
    if (warning !== undefined)
      throw this.#faultAt(warning.pos[0], [], "has a type named by !; write the value without");
    return plain;
  }

  /** The error for a value, or for what it would be in. */
  fault(path: PlainPath, message: string): AgentError {
    for (let at = path; at.length > 0; at = at.slice(0, -1)) {
      const offset = this.#offsets.get(keyOf(at));
      if (offset !== undefined) return this.#faultAt(offset, path, message);
    }
    return this.#faultAt(0, path, message);
  }

  #faultAt(offset: number, path: PlainPath, message: string): AgentError {
    const { line } = this.#lines.linePos(offset);
    return invalidField(plainPathText(path) || "plan", `${message} (line ${Math.max(1, line)})`);
  }

  #plain(node: ParsedNode | null, path: PlainPath, depth: number): unknown {
    if (node === null) return null;
    const fault = (message: string) => this.#faultAt(node.range[0], path, message);
    if (depth > maxDepth) throw fault(`is nested more than ${maxDepth} levels deep`);
    if (isAlias(node)) throw fault(`*${node.source} refers to another value; write it out`);
    if (node.anchor !== undefined) throw fault(`&${node.anchor} names a value; anchors are not read, leave it out`);
    if (node.tag !== undefined) throw fault(`the type ${node.tag} is not read; write the value without`);
    if (isSeq(node)) {
      return node.items.map((item, index) => {
        const at = [...path, index];
        this.#offsets.set(keyOf(at), item?.range[0] ?? node.range[0]);
        return this.#plain(item, at, depth + 1);
      });
    }
    if (isMap(node)) {
      const entries = new Map<string, unknown>();
      for (const { key, value } of node.items) {
        const name = this.#nameOf(key, path);
        const at = [...path, name];
        const offset = key?.range[0] ?? node.range[0];
        if (entries.has(name)) throw this.#faultAt(offset, at, "is there twice; keep one");
        this.#offsets.set(keyOf(at), offset);
        entries.set(name, this.#plain(value, at, depth + 1));
      }
      return Object.fromEntries(entries);
    }
    if (!isScalar(node)) throw fault("can't be read");
    const { value } = node;
    if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    if (typeof value === "number" && !Number.isFinite(value))
      throw fault("is no number that JSON has; write it as a text in quotes");
    return value;
  }

  #nameOf(key: ParsedNode | null, path: PlainPath): string {
    const fault = (message: string) => this.#faultAt(key?.range[0] ?? 0, path, message);
    if (isAlias(key)) throw fault(`*${key.source} refers to another value; write it out`);
    if (!isScalar(key) || key.value === null) throw fault("has a name that is no plain word");
    if (key.anchor !== undefined) throw fault(`&${key.anchor} names a value; anchors are not read, leave it out`);
    if (key.tag !== undefined) throw fault(`the type ${key.tag} is not read; write the name without`);
    const name = typeof key.value === "string" ? key.value : (key.source ?? String(key.value));
    if (name === "<<" && key.type === "PLAIN") throw fault("<< merges values; that is not read, write the fields out");
    if (name === "__proto__") throw fault("__proto__ can't be the name of a field; take another");
    return name;
  }
}

function keyOf(path: PlainPath): string {
  return JSON.stringify(path);
}

/** `steps[2].for_each.items` as its parts. */
function pathOf(field: string): PlainPath {
  return [...field.matchAll(/\[(\d+)\]|([^.[\]]+)/g)].map(([, index, name]) =>
    index === undefined ? (name ?? "") : Number(index),
  );
}
