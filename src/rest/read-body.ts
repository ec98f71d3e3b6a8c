import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate, type ZlibOptions } from "node:zlib";
import { AgentError } from "../chat/error.ts";
import { HttpFault } from "./http-fault.ts";

export type RestRequest = IncomingMessage | Http2ServerRequest;

const inflaters: ReadonlyMap<string, (bytes: Uint8Array, options: ZlibOptions) => Promise<Uint8Array>> = new Map([
  ["gzip", promisify<Uint8Array, ZlibOptions, Uint8Array>(gunzip)],
  ["x-gzip", promisify<Uint8Array, ZlibOptions, Uint8Array>(gunzip)],
  ["deflate", promisify<Uint8Array, ZlibOptions, Uint8Array>(inflate)],
  ["br", promisify<Uint8Array, ZlibOptions, Uint8Array>(brotliDecompress)],
]);
const encodings = "gzip, deflate, br";

/**
 * Reads a body of JSON; `undefined` where there is none.
 * @param maxBytes of the body, also once it is inflated
 * @throws {HttpFault} 413 for a body that is too large, 415 for one that is no JSON by its type or is compressed in a way
 *   nobody here knows; the rest of the body is then still on its way.
 * @throws {AgentError} `invalid_request` for one that can't be read, `cancelled` when the caller hung up.
 */
export async function readJsonBody(request: RestRequest, maxBytes: number): Promise<unknown> {
  const length = Number(request.headers["content-length"] ?? 0);
  if (length > maxBytes) throw tooLarge(maxBytes);
  const [type = ""] = (request.headers["content-type"] ?? "").split(";", 1);
  const isJson = type.trim().toLowerCase() === "application/json";
  const encoding = (request.headers["content-encoding"] ?? "identity").trim().toLowerCase();
  const mayBeEmpty = type === "" && (length === 0 || request.method === "DELETE");
  if (!isJson && !mayBeEmpty)
    throw new HttpFault(
      415,
      "UNSUPPORTED_MEDIA_TYPE",
      `the content-type of the request is ${JSON.stringify(type.slice(0, 100))}; application/json is wanted`,
    );
  const inflater = inflaters.get(encoding);
  if (inflater === undefined && encoding !== "identity")
    throw new HttpFault(
      415,
      "UNSUPPORTED_ENCODING",
      `the content-encoding of the request is ${JSON.stringify(encoding.slice(0, 100))}; use one of ${encodings}, or none`,
      { "accept-encoding": encodings },
    );
  const sent = await readBytes(request, maxBytes);
  if (sent.length === 0) return undefined;
  const bytes = inflater === undefined ? sent : await inflated(inflater, sent, maxBytes);
  return parsed(bytes);
}

/** Leaves what comes after a body has become too large to flow away unread. */
function readBytes(request: RestRequest, maxBytes: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const pieces: Uint8Array[] = [];
    let length = 0;
    const settle = (act: () => void): void => {
      request.off("data", onData);
      request.off("end", onEnd);
      request.off("close", onClose);
      act();
    };
    const onData = (piece: Uint8Array): void => {
      length += piece.length;
      if (length <= maxBytes) pieces.push(piece);
      else
        settle(() => {
          request.resume();
          reject(tooLarge(maxBytes));
        });
    };
    const onEnd = () => settle(() => resolve(Buffer.concat(pieces)));
    const onClose = () => settle(() => reject(hungUp()));
    request.on("data", onData);
    request.once("end", onEnd);
    request.once("close", onClose);
    if (request.destroyed) onClose();
  });
}

async function inflated(
  inflater: (bytes: Uint8Array, options: ZlibOptions) => Promise<Uint8Array>,
  bytes: Uint8Array,
  maxBytes: number,
): Promise<Uint8Array> {
  try {
    return await inflater(bytes, { maxOutputLength: maxBytes });
  } catch (cause) {
    if (cause instanceof RangeError) throw tooLarge(maxBytes);
    throw new AgentError("invalid_request", "the body is not compressed as its content-encoding says", { cause });
  }
}

function parsed(bytes: Uint8Array): unknown {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    checkLevels(text);
    const value: unknown = JSON.parse(text);
    return value;
  } catch (cause) {
    if (cause instanceof AgentError) throw cause;
    const why = cause instanceof SyntaxError ? "no JSON" : "not in UTF-8";
    throw new AgentError("invalid_request", `the body of the request is ${why}`, { reason: "INVALID_JSON", cause });
  }
}

/** Far more than anybody means, and far fewer than what reads and writes values by recursion can bear. */
const maxLevels = 1000;

/** Refuses JSON whose objects and lists are too deep in each other. */
function checkLevels(json: string): void {
  let levels = 0;
  let isText = false;
  for (let place = 0; place < json.length; place++) {
    const character = json[place];
    if (isText) {
      if (character === "\\") place++;
      else if (character === '"') isText = false;
    } else if (character === '"') isText = true;
    else if (character === "{" || character === "[") levels++;
    else if (character === "}" || character === "]") levels--;
    if (levels > maxLevels)
      throw new AgentError("invalid_request", `the body of the request is nested more than ${maxLevels} levels deep`);
  }
}

function tooLarge(maxBytes: number): HttpFault {
  return new HttpFault(413, "REQUEST_TOO_LARGE", `the body of the request has more than ${maxBytes} bytes; send less`, {
    // The peer may be in the middle of it, and nobody is going to read it.
    connection: "close",
  });
}

export function hungUp(): AgentError {
  return new AgentError("cancelled", "the caller hung up");
}
