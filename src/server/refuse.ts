import { constants } from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { codeToHttpStatus, endStreamFlag, endStreamToJson, errorToJson } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { ConnectNodeAdapterOptions } from "@connectrpc/connect-node";
import { spellGrpcMessage } from "./grpc-message.ts";
import type { PathDoor } from "./path-door.ts";

type NodeHandler = NonNullable<ConnectNodeAdapterOptions["fallback"]>;
/** A request of node:http or node:http2. */
export type ServerRequest = Parameters<NodeHandler>[0];
/** A response of node:http or node:http2. */
export type ServerResponse = Parameters<NodeHandler>[1];

/** Why a request is not served. */
export interface Refusal {
  error: ConnectError;
  /** Set when the HTTP request itself is at fault: then every protocol gets this status, also those that hide errors behind 200. */
  httpStatus?: number;
}

/** How much of a refused body is read, and how long, before the stream is reset. */
const longestBodyPassedOver = 64 * 1024;
const bodyTimeoutMs = 1000;
/** How long the refusal waits for a body that is on its way. */
const bodyWaitMs = 50;

const grpcTypes = /^application\/grpc(-web)?(-text)?(\+(proto|json))?$/;
const connectStreamTypes = /^application\/connect\+(proto|json)$/;

/**
 * Answers with the refusal in the caller's own protocol, without waiting for the body. Cuts the call if an answer has begun.
 * Never throws.
 * @param door speaks for the path, where it is not an RPC's
 */
export function refuse(request: ServerRequest, response: ServerResponse, refusal: Refusal, door?: PathDoor): void {
  try {
    if (response.headersSent) {
      response.destroy();
      return;
    }
    const { error, httpStatus: status = codeToHttpStatus(error.code) } = refusal;
    if (door === undefined) passOverBody(request, () => sendRefusal(request, response, refusal));
    else passOverBody(request, () => door.refuse(request, response, { status, message: error.rawMessage }));
  } catch {
    // The caller has hung up, and Node does not let us write to nobody.
    response.destroy();
  }
}

/**
 * Answers an HTTP/2 peer when a short body has come, or after a moment. Answered in the middle of it, curl 7.88 hangs; and
 * left unread, Node resets the stream, which curl reports instead of the answer. HTTP/1.1 bodies are read away by Node.
 */
export function passOverBody(request: ServerRequest, answer: () => void): void {
  if (!("stream" in request) || request.stream.readableEnded || request.stream.endAfterHeaders) {
    answer();
    return;
  }
  const { stream } = request;
  let answered = false;
  const answerOnce = () => {
    if (answered || stream.destroyed) return;
    answered = true;
    try {
      answer();
    } catch {
      stream.destroy();
    }
  };
  let bytes = 0;
  stream.on("data", (piece: Uint8Array) => {
    bytes += piece.length;
    if (bytes <= longestBodyPassedOver) return;
    // Flow control holds the rest back until the reset, which must not overtake the answer.
    stream.pause();
    answerOnce();
  });
  stream.once("end", answerOnce);
  const moment = setTimeout(answerOnce, bodyWaitMs);
  const reset = setTimeout(() => stream.close(constants.NGHTTP2_NO_ERROR), bodyTimeoutMs);
  stream.once("close", () => {
    clearTimeout(moment);
    clearTimeout(reset);
  });
}

function sendRefusal(request: ServerRequest, response: ServerResponse, refusal: Refusal): void {
  const { error } = refusal;
  const contentType = request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (grpcTypes.test(contentType)) {
    // "Trailers-only": the status is among the header fields and nothing follows.
    const trailer = new Headers();
    setTrailerStatus(trailer, error);
    spellGrpcMessage(trailer);
    for (const [name, value] of trailer) response.setHeader(name, value);
    response.statusCode = refusal.httpStatus ?? 200;
    response.setHeader("content-type", contentType);
    response.end();
    return;
  }
  if (connectStreamTypes.test(contentType)) {
    const body = encodeEnvelope(
      endStreamFlag,
      new TextEncoder().encode(JSON.stringify(endStreamToJson(new Headers(), error, undefined))),
    );
    response.statusCode = refusal.httpStatus ?? 200;
    response.setHeader("content-type", contentType);
    response.end(body);
    return;
  }
  response.statusCode = refusal.httpStatus ?? codeToHttpStatus(error.code);
  if (response.statusCode === 401) response.setHeader("www-authenticate", "Bearer");
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(errorToJson(error, undefined)));
}
