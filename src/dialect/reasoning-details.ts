import type { BlockOrigin } from "../chat/message.ts";
import { isJsonObject, objectOf, parseJson } from "./json.ts";
import { elementSlices, memberSlices } from "./json-slices.ts";

/** Members whose text goes on from piece to piece. */
const growing = ["text", "summary", "data", "signature"] as const;

interface Detail {
  /** As it came in one piece; undefined once it has grown. */
  source: string | undefined;
  /** JSON texts of its members. */
  readonly members: Map<string, string>;
  /** What the growing members add up to. */
  readonly texts: Map<string, string>;
}

/**
 * Puts the pieces of a streamed `reasoning_details` array together (openrouter.ai/docs/guides/best-practices/
 * reasoning-tokens, "Streaming Response"): pieces of one type and index are one detail, in the order in which the
 * details began. A piece without an index goes on with the detail before it. A detail that came in one piece stays as
 * it was written; of one that came in several, texts are joined and other members are those that came first.
 */
export function reasoningDetails() {
  let details: Detail[] = [];

  const add = (source: string): void => {
    const value = parseJson(source);
    if (!isJsonObject(value)) return;
    const members = memberSlices(source);
    const texts = new Map<string, string>();
    for (const name of growing) {
      const text = value[name];
      if (typeof text === "string") texts.set(name, text);
    }
    const type = members.get("type");
    const index = members.get("index");
    const known =
      index === undefined
        ? details.at(-1)
        : details.findLast((detail) => detail.members.get("type") === type && detail.members.get("index") === index);
    if (known === undefined || known.members.get("type") !== type || !goesOn(known, members, texts)) {
      details.push({ source, members, texts });
      return;
    }
    known.source = undefined;
    for (const [name, text] of texts) known.texts.set(name, (known.texts.get(name) ?? "") + text);
    for (const [name, member] of members) {
      if ((known.members.get(name) ?? "null") === "null") known.members.set(name, member);
    }
  };

  return {
    /** Takes the details of one delta, as JSON text of an array. */
    add(array: string): void {
      for (const element of elementSlices(array)) add(element);
    },
    /** The array of what came since the last take, as JSON text; undefined where nothing came. */
    take(): string | undefined {
      if (details.length === 0) return undefined;
      const array = `[${details.map(written).join(",")}]`;
      details = [];
      return array;
    },
  };
}

/** Another id, or more after the end of a signature or of padded Base64, begins another detail. */
function goesOn(
  { members, texts }: Detail,
  next: ReadonlyMap<string, string>,
  added: ReadonlyMap<string, string>,
): boolean {
  const id = members.get("id") ?? "null";
  const nextId = next.get("id") ?? "null";
  if (id !== "null" && nextId !== "null" && id !== nextId) return false;
  if (texts.get("data")?.endsWith("=") && added.has("data")) return false;
  return !(texts.get("signature") && (added.get("text") || added.get("summary")));
}

function written({ source, members, texts }: Detail): string {
  if (source !== undefined) return source;
  const fields = [...members].map(([name, member]) => {
    const text = texts.get(name);
    return `${JSON.stringify(name)}:${text === undefined ? member : JSON.stringify(text)}`;
  });
  return `{${fields.join(",")}}`;
}

const arrays = new WeakMap<object, string | undefined>();

/** The `reasoning_details` that a block holds, as JSON text; undefined where its raw form is no array of objects. */
export function detailsOf(block: BlockOrigin): string | undefined {
  if (block.raw === undefined) return undefined;
  if (arrays.has(block)) return arrays.get(block);
  const text = Buffer.from(block.raw).toString("utf8").trim();
  const value = parseJson(text);
  const array = Array.isArray(value) && value.length > 0 && value.every(isJsonObject) ? text : undefined;
  arrays.set(block, array);
  return array;
}

/** Several arrays as one; a single one stays as it was written. */
export function joinedDetails(texts: readonly string[]): string | undefined {
  return texts.length <= 1 ? texts[0] : `[${texts.flatMap(elementSlices).join(",")}]`;
}

/** What details hold that only their author can read. */
export function encryptedIn(array: string): string {
  const value = parseJson(array);
  if (!Array.isArray(value)) return "";
  return value.map((detail) => objectOf(detail)["data"]).join("");
}
