import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { arrayOf, isJsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";

/** One recorded request and its answer, as the checks need it. */
export interface Exchange {
  readonly id: string;
  readonly api: DialectId;
  readonly vendor: string;
  /** Empty where nobody wrote it down. */
  readonly model: string;
  readonly status: number;
  readonly tags: ReadonlySet<string>;
  /** Id of the exchange whose answer this request sends back; empty for none. */
  readonly continues: string;
  /** Of the answer, names in small letters. */
  readonly headers: Readonly<Record<string, string>>;
  /** The body that was sent; undefined where it was not kept. */
  readonly request: unknown;
  /** Text of a streamed answer. */
  readonly stream?: string;
  /** Text of an answer in one body; empty for a stream. */
  readonly whole: string;
  /** Sizes in bytes of the pieces in which the stream came; empty where nobody wrote them down. */
  readonly pieces: readonly number[];
}

export interface Corpus {
  readonly exchanges: readonly Exchange[];
  /** Files that are no exchange: what they are called and what is wrong with them. */
  readonly unreadable: readonly { readonly file: string; readonly why: string }[];
}

/**
 * Reads every exchange below `exchanges` in a corpus folder, or below the folder itself where it has no such folder.
 * Its index is not needed.
 */
export function readCorpus(folder: string): Corpus {
  const root = existsSync(join(folder, "exchanges")) ? join(folder, "exchanges") : folder;
  const exchanges: Exchange[] = [];
  const unreadable: { file: string; why: string }[] = [];
  const seen = new Set<string>();
  for (const file of globSync("**/*.json", { cwd: root }).toSorted()) {
    if (file === "index.json") continue;
    const read = exchangeOf(readFileSync(join(root, file), "utf8"), basename(file, ".json"));
    const why = typeof read === "string" ? read : seen.has(read.id) ? `the id ${read.id} comes twice` : undefined;
    if (typeof read === "string" || why !== undefined) {
      unreadable.push({ file, why: why ?? "is unreadable" });
      continue;
    }
    seen.add(read.id);
    exchanges.push(read);
  }
  return { exchanges, unreadable };
}

/** The exchange in a file's text, or what keeps it from being one. */
function exchangeOf(text: string, fileName: string): Exchange | string {
  const value = parseJson(text.replace(/^\uFEFF/, ""));
  if (!isJsonObject(value)) return "is no JSON object";
  const { api, status, responseSse, responseText, response } = value;
  if (!isDialectId(api)) return `is of the api ${JSON.stringify(api)}`;
  if (typeof responseSse !== "string" && typeof responseText !== "string" && response === undefined) {
    return "has no answer";
  }
  return {
    id: textOf(value["id"]) || fileName,
    api,
    vendor: textOf(value["vendor"]) || "unknown",
    model: textOf(value["model"]),
    status: typeof status === "number" ? status : 200,
    tags: new Set(arrayOf(value["tags"]).map(textOf)),
    continues: textOf(objectOf(value["conversation"])["continues"]),
    headers: headersOf(value["headers"]),
    request: value["request"] ?? undefined,
    ...(typeof responseSse === "string" ? { stream: responseSse } : {}),
    whole:
      typeof responseText === "string" ? responseText : response === undefined ? "" : (JSON.stringify(response) ?? ""),
    pieces: arrayOf(value["responseChunkBytes"]).flatMap((size) =>
      typeof size === "number" && size > 0 ? [size] : [],
    ),
  };
}

function isDialectId(api: unknown): api is DialectId {
  return typeof api === "string" && Object.hasOwn(dialects, api);
}

function headersOf(value: unknown): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, text] of Object.entries(objectOf(value))) {
    const first: unknown = Array.isArray(text) ? text[0] : text;
    if (typeof first === "string" || typeof first === "number") headers[name.toLowerCase()] = String(first);
  }
  return headers;
}

/** The data of each event of a stream, read as plainly as can be. */
export function dataOfEvents(stream: string): string[] {
  return stream
    .replace(/^\uFEFF/, "")
    .replaceAll(/\r\n|\r/g, "\n")
    .split(/\n{2,}/)
    .map((event) =>
      event
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice("data:".length).replace(/^ /, ""))
        .join("\n"),
    )
    .filter((data) => data !== "");
}
