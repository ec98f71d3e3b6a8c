import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { AgentError } from "../chat/error.ts";
import { isJsonObject } from "../dialect/json.ts";
import { type Cassette, cassetteToText, type Ending, hiddenMark, jsonOrText } from "./cassette.ts";
import { credentialNames, hidingSecrets, isSecret } from "./credentials.ts";
import { fileFault } from "./file-fault.ts";
import type { HttpRequest, HttpResponse, SendHttp } from "./http-request.ts";

export interface RecordMeans {
  /** Tells the operator what could not be recorded. */
  report(message: string, error?: unknown): void;
}

/** Longest body, of a request as of an answer, that is recorded. */
const maxBodyBytes = 16 * 1024 * 1024;

/**
 * Passes requests and answers through as they are and writes a cassette of each exchange when it ends, also when it was
 * cut, aborted or never answered. Credentials are left out: of headers and URL only what is known to be harmless is
 * kept, and the request's secrets and credentials are replaced in the bodies. A cassette is written whole or not at all,
 * for its owner only, before the exchange's last read or its `close` returns; what cannot be written is reported and
 * changes nothing for the caller.
 * @param directory made with its parents where it is missing; numbers go on after those of cassettes that are in it.
 * @throws {AgentError} `invalid_request` for a directory that can't be made or read.
 */
export function recordExchanges(send: SendHttp, directory: string, means: RecordMeans): SendHttp {
  let lastNumber = openDirectory(directory);
  return async (request) => {
    if (request.signal.aborted) return send(request);
    const name = cassetteName(++lastNumber, request);
    const recording = new Recording();
    const end = (ended: Ending, error?: unknown) => {
      if (!recording.end()) return;
      try {
        if (recording.isTooLong || Buffer.byteLength(request.body) > maxBodyBytes)
          means.report(`the exchange ${name} is not recorded: a body is longer than ${maxBodyBytes} bytes`);
        else writeWhole(directory, name, cassetteToText(cassetteOf(request, recording, ended, error)));
      } catch (fault) {
        means.report(`the exchange ${name} can't be recorded`, fault);
      }
    };
    let response: HttpResponse;
    try {
      response = await send(request);
    } catch (error) {
      end(request.signal.aborted ? "left" : "unanswered", error);
      throw error;
    }
    recording.response = response;
    return {
      status: response.status,
      headers: response.headers,
      body: recorded(response.body, recording, request.signal, end),
      close(how) {
        response.close(how);
        end(how === "read" ? "complete" : "left");
      },
    };
  };
}

/** What is known of an exchange that goes on. */
class Recording {
  response: HttpResponse | undefined;
  pieces: Uint8Array[] = [];
  isTooLong = false;
  #bytes = 0;
  #isOver = false;

  add(piece: Uint8Array): void {
    this.#bytes += piece.byteLength;
    if (this.#bytes > maxBodyBytes) this.isTooLong = true;
    if (this.isTooLong) this.pieces = [];
    else this.pieces.push(piece);
  }

  /** @returns false where it was over already. */
  end(): boolean {
    const wasOver = this.#isOver;
    this.#isOver = true;
    return !wasOver;
  }
}

async function* recorded(
  body: AsyncIterable<Uint8Array>,
  recording: Recording,
  signal: AbortSignal,
  end: (ended: Ending, error?: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const piece of body) {
      recording.add(piece);
      yield piece;
    }
  } catch (error) {
    end(signal.aborted ? "left" : "cut", error);
    throw error;
  }
  end("complete");
}

// What is kept

const requestHeaderNames = /^(?:content-type|accept|anthropic-version|anthropic-beta|openai-beta)$/;
const responseHeaderNames =
  /^(?:content-type|content-encoding|retry-after(?:-ms)?|x-should-retry|(?:[a-z]+-)*(?:request|trace)-id|cf-ray|(?:[a-z]+-)*ratelimit-[a-z-]+|openai-(?:model|version|processing-ms))$/;
const queryNames = /^(?:api-)?version$/;

function cassetteOf(request: HttpRequest, recording: Recording, ended: Ending, error: unknown): Cassette {
  const { response } = recording;
  const hide = hiding([...(request.secrets ?? []), ...credentialsIn(request)]);
  const failed = ended === "cut" || ended === "unanswered";
  const asked = jsonOrText(request.body);
  const kept = {
    provider: request.provider,
    url: harmlessUrl(request.url, hide),
    requestHeaders: harmlessHeaders(request.headers, requestHeaderNames, hide),
    request: typeof asked === "string" ? hide(asked) : hiddenIn(asked, hide),
    keyChanges: request.keyChanges ?? 0,
    ended,
    ...(failed ? { error: errorOf(error, hide) } : {}),
  };
  if (response === undefined) return kept;
  const body = Buffer.concat(recording.pieces);
  // One character a byte, so that bytes which are no UTF-8 stay what they are.
  const harmless = Buffer.from(hide(body.toString("latin1")), "latin1");
  const chunkBytes = recording.pieces.map((piece) => piece.byteLength);
  return {
    ...kept,
    response: {
      status: response.status,
      headers: harmlessHeaders(response.headers, responseHeaderNames, hide),
      body: harmless,
      ...(harmless.equals(body) ? { chunkBytes } : {}),
    },
  };
}

function errorOf(error: unknown, hide: (text: string) => string) {
  if (error instanceof AgentError)
    return { kind: error.kind, message: hide(error.message), retryable: error.detail.retryable ?? false };
  return { kind: "internal" as const, message: "the sender failed in a way it has no name for", retryable: false };
}

/** Credentials as they stand in the request, for senders that do not name its secrets. */
function credentialsIn({ headers, url }: HttpRequest): string[] {
  const found = [url.password, decodeUrl(url.password)];
  for (const [name, value] of Object.entries(headers)) {
    if (!credentialNames.test(name.toLowerCase())) continue;
    found.push(value);
    const [, scheme, credential] = /^(Bearer|Basic) +(.+)$/i.exec(value) ?? [];
    if (credential === undefined) continue;
    found.push(credential);
    if (scheme?.toLowerCase() === "basic")
      found.push(
        Buffer.from(credential, "base64")
          .toString("utf8")
          .replace(/^[^:]*:/, ""),
      );
  }
  for (const [name, value] of url.searchParams) if (credentialNames.test(name.toLowerCase())) found.push(value);
  return found;
}

/** A function that replaces the secrets, as they are, in JSON and in URLs; in texts and in bytes read as Latin-1. */
function hiding(secrets: readonly string[]): (text: string) => string {
  const forms = secrets
    .map((secret) => secret.trim())
    .filter(isSecret)
    .flatMap((secret) => {
      const inJson = JSON.stringify(secret).slice(1, -1);
      return [secret, inJson, inJson.replaceAll("/", "\\/"), encodeURIComponent(secret.toWellFormed())];
    });
  return hidingSecrets(
    forms.flatMap((form) => [form, Buffer.from(form).toString("latin1")]),
    hiddenMark,
  );
}

function hiddenIn(value: unknown, hide: (text: string) => string): unknown {
  if (typeof value === "string") return hide(value);
  if (Array.isArray(value)) return value.map((item: unknown) => hiddenIn(item, hide));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, hiddenIn(member, hide)]));
}

function harmlessHeaders(
  headers: Readonly<Record<string, string>>,
  names: RegExp,
  hide: (text: string) => string,
): Record<string, string> {
  const kept = Object.entries(headers).filter(([name]) => names.test(name.toLowerCase()));
  return Object.fromEntries(kept.map(([name, value]) => [name.toLowerCase(), hide(value)]));
}

function harmlessUrl(given: URL, hide: (text: string) => string): string {
  const url = new URL(given);
  url.pathname = hide(url.pathname);
  url.username = "";
  url.password = "";
  url.hash = "";
  for (const name of new Set(url.searchParams.keys()))
    if (!queryNames.test(name.toLowerCase())) url.searchParams.delete(name);
  return url.href;
}

function decodeUrl(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Files

/** Numbers first, so that names sort in the order of asking; equal requests have equal endings. */
function cassetteName(number: number, { provider, url, body }: HttpRequest): string {
  const word = `${provider}-${url.pathname.split("/").findLast((part) => part !== "") ?? ""}`;
  const hash = createHash("sha256").update(body).digest("hex").slice(0, 8);
  return `${String(number).padStart(4, "0")}-${word.replace(/[^A-Za-z0-9_-]+/g, "-").slice(0, 100)}-${hash}.json`;
}

/** @returns the highest number of a cassette in it, or 0. */
function openDirectory(directory: string): number {
  try {
    makeDirectory(directory);
    return readdirSync(directory).reduce((highest, name) => {
      const number = Number(/^(\d{1,9})-.*\.json$/.exec(name)?.[1] ?? 0);
      return Math.max(highest, number);
    }, 0);
  } catch (cause) {
    const what = `record (--record, CODEAGENT_RECORD): ${directory} can't be used: ${fileFault(cause)}`;
    throw new AgentError("invalid_request", `${what}; name another folder`, { cause });
  }
}

/** Each level by itself: `mkdir` with `recursive` never returns for a path below /proc. */
function makeDirectory(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
  if (dirname(path) !== path) makeDirectory(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

function writeWhole(directory: string, name: string, text: string): void {
  const temporary = join(directory, `.${name}.${process.pid}.tmp`);
  try {
    writeFileSync(temporary, text, { mode: 0o600, flag: "wx" });
    renameSync(temporary, join(directory, name));
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}
