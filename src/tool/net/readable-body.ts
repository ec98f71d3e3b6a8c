import { FailedExchange, type GuardedResponse } from "./guarded-client.ts";

/** What sort of text an answer is. */
export type TextKind = "html" | "json" | "text";

export interface ReadBody {
  /** Without parameters, in small letters; empty where the answer does not say. */
  readonly contentType: string;
  /** Absent for what is no text. */
  readonly kind?: TextKind;
  /** Empty for what is no text. */
  readonly text: string;
  /** After decompression. Of what is no text and says how long it is, that; else unknown. */
  readonly bytes?: number;
}

/**
 * Reads the body of an answer as text in the encoding it says, else UTF-8. What is no text is not read.
 * @throws {FailedExchange} for a body that is too long or breaks off.
 */
export async function readBody(answer: GuardedResponse): Promise<ReadBody> {
  const [given = "", ...parameters] = (answer.headers["content-type"] ?? "").split(";");
  const contentType = given.trim().toLowerCase().slice(0, 100);
  const kind = kindOf(contentType);
  if (kind === undefined) {
    answer.close();
    const length = Number(answer.headers["content-length"]);
    const isLength = answer.headers["content-encoding"] === undefined && Number.isSafeInteger(length) && length >= 0;
    return { contentType, text: "", ...(isLength ? { bytes: length } : {}) };
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of answer.body) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  // No type at all, and bytes that no text has.
  if (contentType === "" && bytes.subarray(0, 8192).includes(0)) return { contentType, text: "", bytes: bytes.length };
  const text = decoderFor(bytes, kind, charsetIn(parameters), answer.url.host).decode(bytes);
  return { contentType, kind: contentType === "" ? guessedKind(text) : kind, text, bytes: bytes.length };
}

function kindOf(contentType: string): TextKind | undefined {
  if (contentType === "text/html" || contentType === "application/xhtml+xml") return "html";
  if (/^(?:application|text)\/(?:[\w.-]+\+)?json$/.test(contentType)) return "json";
  if (contentType === "" || contentType.startsWith("text/")) return "text";
  const isText =
    /^application\/(?:[\w.-]+\+(?:xml|yaml)|xml|yaml|x-yaml|toml|javascript|x-javascript|ecmascript|typescript|graphql|sql|x-sh|x-ndjson|jsonl|json-seq|ld\+json|x-www-form-urlencoded|rtf)$/;
  if (isText.test(contentType) || contentType === "image/svg+xml") return "text";
  return undefined;
}

function guessedKind(text: string): TextKind {
  return /^\s*<(?:!doctype html|html)[\s>]/i.test(text.slice(0, 1000)) ? "html" : "text";
}

function charsetIn(parameters: readonly string[]): string | undefined {
  for (const parameter of parameters) {
    const found = /^\s*charset\s*=\s*"?([\w.:-]{1,40})"?\s*$/i.exec(parameter);
    if (found?.[1] !== undefined) return found[1];
  }
  return undefined;
}

/** A byte order mark beats the header, and the header beats what a page says of itself. */
function decoderFor(bytes: Buffer, kind: TextKind, fromHeader: string | undefined, host: string): TextDecoder {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return new TextDecoder("utf-16le");
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return new TextDecoder("utf-16be");
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return new TextDecoder();
  const label = fromHeader ?? (kind === "html" ? charsetOfPage(bytes) : undefined) ?? "utf-8";
  try {
    return new TextDecoder(label);
  } catch {
    if (fromHeader === undefined) return new TextDecoder();
    throw new FailedExchange(`${host} answered in the unknown encoding ${label}`);
  }
}

function charsetOfPage(bytes: Buffer): string | undefined {
  const head = bytes.toString("latin1", 0, 2048);
  return /<meta\s[^>]{0,200}charset\s*=\s*["']?([\w.:-]{1,40})/i.exec(head)?.[1];
}
