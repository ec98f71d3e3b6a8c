import { isUtf8 } from "node:buffer";
import { type AgentErrorKind, agentErrorKinds } from "../chat/error.ts";
import { isJsonObject, type JsonObject } from "../dialect/json.ts";

/** How an exchange ended: by itself, in the middle of the answer, because its client went, or without an answer. */
const endings = ["complete", "cut", "left", "unanswered"] as const;
export type Ending = (typeof endings)[number];

/** One recorded exchange with a provider. */
export interface Cassette {
  readonly provider: string;
  /** Without credentials. */
  readonly url: string;
  /** Those that change what a provider does; never credentials. */
  readonly requestHeaders: Readonly<Record<string, string>>;
  /** The body that was sent: its JSON value, or its text where it is no JSON. */
  readonly request: unknown;
  /**
   * How many keys of several were refused or limited before in the same call. One more than in the exchange before it
   * means that the client went on at once with another key.
   */
  readonly keyChanges: number;
  /** `left` also stands for an exchange aborted by its client. */
  readonly ended: Ending;
  /** Absent where no answer had begun. */
  readonly response?: RecordedResponse;
  /** What an exchange that was `cut` or `unanswered` failed with. */
  readonly error?: RecordedError;
}

export interface RecordedResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** As much of it as its client has read. */
  readonly body: Uint8Array;
  /** Sizes of the pieces in which the body came; absent means that they are not known. */
  readonly chunkBytes?: readonly number[];
}

export interface RecordedError {
  readonly kind: AgentErrorKind;
  readonly message: string;
  readonly retryable: boolean;
}

/** Stands in a cassette where a secret was. */
export const hiddenMark = "[hidden]";

const formatVersion = 1;

/**
 * The file of a cassette, as JSON with a member on each line. The body of the answer is one of `responseSse` (the text
 * of a stream), `response` (a JSON value), `responseText` (other text, and JSON that a value would not give back byte
 * for byte) and `responseBase64` (what is no UTF-8).
 */
export function cassetteToText(cassette: Cassette): string {
  const { provider, url, requestHeaders, request, keyChanges, ended, response, error } = cassette;
  const members: JsonObject = {
    cassette: formatVersion,
    provider,
    url,
    ended,
    ...(keyChanges === 0 ? {} : { keyChanges }),
    ...(error === undefined ? {} : { error }),
    ...(Object.keys(requestHeaders).length === 0 ? {} : { requestHeaders }),
    ...(typeof request === "string" ? { requestText: request } : { request }),
    ...(response === undefined ? {} : responseToMembers(response)),
  };
  const lines = Object.entries(members).map(([name, value]) => {
    const text = name === "responseChunkBytes" ? JSON.stringify(value) : JSON.stringify(value, null, 2);
    return `  ${JSON.stringify(name)}: ${text.replaceAll("\n", "\n  ")}`;
  });
  return `{\n${lines.join(",\n")}\n}\n`;
}

function responseToMembers({ status, headers, body, chunkBytes }: RecordedResponse): JsonObject {
  return {
    status,
    headers,
    ...(chunkBytes === undefined || chunkBytes.length < 2 ? {} : { responseChunkBytes: chunkBytes }),
    ...bodyToMember(body, headers["content-type"] ?? ""),
  };
}

function bodyToMember(body: Uint8Array, contentType: string): JsonObject {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (!isUtf8(bytes)) return { responseBase64: bytes.toString("base64") };
  const text = bytes.toString("utf8");
  if (contentType.startsWith("text/event-stream")) return { responseSse: text };
  const value = jsonOrText(text);
  return typeof value !== "string" && JSON.stringify(value) === text ? { response: value } : { responseText: text };
}

/** The value of a JSON text; the text itself where it is none, and where its value is a text too. */
export function jsonOrText(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? text : value;
  } catch {
    return text;
  }
}

/**
 * Reads the file of a cassette. Written by hand it needs `cassette`, `provider`, `url`, `request`, `status` and one of
 * the bodies.
 * @throws {Error} one sentence that names the member and what is wanted.
 */
export function cassetteFromText(text: string): Cassette {
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch (cause) {
    throw new Error(`it is no JSON (${cause instanceof Error ? cause.message : String(cause)})`, { cause });
  }
  if (!isJsonObject(file)) throw new Error("a JSON object is wanted");
  if (file["cassette"] !== formatVersion) throw wanted("cassette", `${formatVersion}, the version of the format,`);
  const url = textAt(file, "url");
  if (!URL.canParse(url)) throw wanted("url", "a URL");
  const ended = file["ended"] === undefined ? "complete" : endings.find((ending) => ending === file["ended"]);
  if (ended === undefined) throw wanted("ended", `one of ${endings.join(", ")}`);
  const request = oneMember(file, ["request", "requestText"]);
  if (request === undefined) throw wanted("request", "the JSON that was sent, or requestText with its text,");
  const response = readResponse(file);
  if (response === undefined && ended !== "left" && ended !== "unanswered") throw wanted("status", statusWords);
  if (response !== undefined && ended === "unanswered") throw new Error("status: an unanswered exchange has none");
  const failed = ended === "cut" || ended === "unanswered";
  const keyChanges = file["keyChanges"] ?? 0;
  if (!isCount(keyChanges)) throw wanted("keyChanges", "a whole number");
  return {
    provider: textAt(file, "provider"),
    url,
    requestHeaders: headersAt(file, "requestHeaders"),
    request: request === "request" ? file["request"] : textAt(file, "requestText"),
    keyChanges,
    ended,
    ...(response === undefined ? {} : { response }),
    ...(failed ? { error: readError(file["error"]) } : {}),
  };
}

const statusWords = "a whole number from 100 to 599";

function readResponse(file: JsonObject): RecordedResponse | undefined {
  const member = oneMember(file, ["responseSse", "response", "responseText", "responseBase64"]);
  const status = file["status"];
  if (status === undefined && member === undefined) return undefined;
  if (typeof status !== "number" || !Number.isInteger(status) || status < 100 || status > 599)
    throw wanted("status", statusWords);
  if (member === undefined) throw wanted("response", "it or responseSse, responseText or responseBase64");
  const body =
    member === "response"
      ? Buffer.from(JSON.stringify(file["response"]))
      : Buffer.from(textAt(file, member), member === "responseBase64" ? "base64" : "utf8");
  const chunkBytes = file["responseChunkBytes"];
  const response = { status, headers: headersAt(file, "headers"), body };
  if (chunkBytes === undefined) return response;
  if (!Array.isArray(chunkBytes) || !chunkBytes.every(isCount))
    throw wanted("responseChunkBytes", "a list of whole numbers");
  const sum = chunkBytes.reduce((total, size) => total + size, 0);
  if (sum !== body.length) {
    const words = `the sizes add up to ${sum}, but the body has ${body.length} bytes`;
    throw new Error(`responseChunkBytes: ${words}; take the member out after changing the body`);
  }
  return { ...response, chunkBytes };
}

function readError(value: unknown): RecordedError {
  if (!isJsonObject(value)) throw wanted("error", "an object with kind, message and retryable");
  const kind = agentErrorKinds.find((known) => known === value["kind"]);
  if (kind === undefined) throw wanted("error.kind", `one of ${agentErrorKinds.join(", ")}`);
  const { message, retryable } = value;
  if (typeof message !== "string") throw wanted("error.message", "a text");
  if (typeof retryable !== "boolean") throw wanted("error.retryable", "true or false");
  return { kind, message, retryable };
}

/** Which of the members is there; undefined for none. */
function oneMember<const Name extends string>(file: JsonObject, names: readonly Name[]): Name | undefined {
  const [first, second] = names.filter((name) => file[name] !== undefined);
  if (second !== undefined) throw new Error(`${second}: there is ${first} already; only one of them is wanted`);
  return first;
}

function headersAt(file: JsonObject, name: string): Record<string, string> {
  const headers: Record<string, string> = {};
  const given = file[name] ?? {};
  if (!isJsonObject(given)) throw wanted(name, "an object of texts");
  for (const [header, value] of Object.entries(given)) {
    if (typeof value !== "string") throw wanted(`${name}.${header}`, "a text");
    headers[header.toLowerCase()] = value;
  }
  return headers;
}

function textAt(file: JsonObject, name: string): string {
  const value = file[name];
  if (typeof value !== "string") throw wanted(name, "a text");
  return value;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function wanted(name: string, what: string): Error {
  return new Error(`${name}: ${what} is wanted`);
}
