import type { Http2ServerRequest, ServerHttp2Stream } from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { spellGrpcMessage } from "./grpc-message.ts";
import { grpcTimeoutMs } from "./limit-call-timeout.ts";
import type { ServerLimits } from "./limits.ts";
import { refuse, type ServerRequest, type ServerResponse } from "./refuse.ts";

/**
 * A method that takes one message, from bytes to bytes: gives the messages of the answer, as many at a time as are
 * ready, and is asked for more when the reader has room. Left early, it is closed.
 * @param signal is aborted, with the `ConnectError` to end with, when the caller hangs up, the caller's deadline has
 *   passed, or the server stops.
 * @throws {ConnectError} what the caller is told.
 */
export type GrpcCall = (request: Uint8Array, signal: AbortSignal) => AsyncIterable<readonly Uint8Array[]>;

const contentTypes = /^application\/grpc(?:\+proto)?$/i;
const headBytes = 5;
const compressedFlag = 1;

/** Whether a request is gRPC without compression, JSON or a browser's needs. Says nothing of the body. */
export function isPlainGrpc(request: ServerRequest): request is Http2ServerRequest {
  const { headers } = request;
  return (
    "stream" in request &&
    request.method === "POST" &&
    contentTypes.test(headers["content-type"] ?? "") &&
    (headers["grpc-encoding"] ?? "identity") === "identity" &&
    headers.origin === undefined
  );
}

/**
 * Answers admitted gRPC requests right on their HTTP/2 streams, uncompressed.
 * @param stopping ends all calls with its reason
 * @param onFault told of errors that are no `ConnectError`
 * @returns a function whose promise rejects when a call could not even be ended with an error
 */
export function createGrpcAnswerer(
  limits: Pick<ServerLimits, "readMaxBytes" | "writeMaxBytes">,
  stopping: AbortSignal,
  onFault: (path: string, error: unknown) => void,
): (request: Http2ServerRequest, response: ServerResponse, call: GrpcCall) => Promise<void> {
  const running = new Set<AbortController>();
  stopping.addEventListener("abort", () => {
    for (const abort of running) abort.abort(stopping.reason);
  });

  return async (request, response, call) => {
    const { stream } = request;
    const abort = new AbortController();
    const { signal } = abort;
    const timeoutMs = grpcTimeoutMs(String(request.headers["grpc-timeout"]));
    const isLate = (): void => abort.abort(new ConnectError("the operation timed out", Code.DeadlineExceeded));
    const deadline = timeoutMs === undefined ? undefined : setTimeout(isLate, timeoutMs);
    stream.once("close", () => abort.abort(new ConnectError("the caller has hung up", Code.Canceled)));
    if (stopping.aborted) abort.abort(stopping.reason);
    running.add(abort);
    try {
      const message = await readMessage(stream, limits.readMaxBytes, signal);
      for await (const messages of call(message, signal)) {
        const bytes = joined(messages, limits.writeMaxBytes);
        signal.throwIfAborted();
        begin(stream);
        if (!stream.write(bytes)) await drained(stream, signal);
      }
      signal.throwIfAborted();
      begin(stream);
      response.addTrailers({ "grpc-status": "0" });
      stream.end();
    } catch (thrown) {
      if (stream.destroyed || stream.closed) return;
      if (!(thrown instanceof ConnectError)) onFault(request.url, thrown);
      const error = thrown instanceof ConnectError ? thrown : new ConnectError("internal error", Code.Internal);
      if (stream.headersSent) endWith(stream, response, error);
      else refuse(request, response, { error });
    } finally {
      clearTimeout(deadline);
      running.delete(abort);
    }
  };
}

function begin(stream: ServerHttp2Stream): void {
  if (stream.headersSent) return;
  stream.respond({ ":status": 200, "content-type": "application/grpc+proto" }, { waitForTrailers: true });
}

function endWith(stream: ServerHttp2Stream, response: ServerResponse, error: ConnectError): void {
  const trailer = new Headers();
  setTrailerStatus(trailer, error);
  spellGrpcMessage(trailer);
  response.addTrailers(Object.fromEntries(trailer));
  stream.end();
}

/** Reads the one message of a request. Leaves off at the first byte that is wrong; the stream goes on flowing. */
function readMessage(stream: ServerHttp2Stream, mostBytes: number, signal: AbortSignal): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const message = messageReader(mostBytes);
    const stop = (): void => {
      stream.off("data", onData);
      stream.off("end", onEnd);
      signal.removeEventListener("abort", onAbort);
    };
    const attempt = (step: () => void): void => {
      try {
        step();
      } catch (error) {
        stop();
        reject(error);
      }
    };
    const onAbort = (): void => attempt(() => signal.throwIfAborted());
    const onData = (piece: Buffer): void => attempt(() => message.add(piece));
    const onEnd = (): void =>
      attempt(() => {
        resolve(message.end());
        stop();
      });
    signal.addEventListener("abort", onAbort);
    stream.on("data", onData);
    stream.on("end", onEnd);
    onAbort();
  });
}

/** Puts one message together from pieces of any size; holds no more than twice what has come of it. */
function messageReader(mostBytes: number): { add(piece: Buffer): void; end(): Uint8Array } {
  let held: Buffer = Buffer.alloc(0);
  let length = 0;
  let wanted = headBytes;
  return {
    add(piece) {
      if (length === 0) held = piece;
      else {
        if (held.length < length + piece.length) {
          const larger = Buffer.allocUnsafe(Math.max(2 * length, length + piece.length));
          held.copy(larger, 0, 0, length);
          held = larger;
        }
        piece.copy(held, length);
      }
      const before = length;
      length += piece.length;
      if (before < headBytes && length >= headBytes) {
        if ((held.readUInt8(0) & compressedFlag) !== 0)
          throw new ConnectError("received compressed envelope, but do not know how to decompress", Code.Internal);
        const promised = held.readUInt32BE(1);
        if (promised > mostBytes)
          throw new ConnectError(
            `message size ${promised} is larger than configured readMaxBytes ${mostBytes}`,
            Code.ResourceExhausted,
          );
        wanted = headBytes + promised;
      }
      if (length >= headBytes && length > wanted)
        throw new ConnectError("protocol error: received extra input message", Code.Unimplemented);
    },
    end() {
      if (length === 0) throw new ConnectError("protocol error: missing input message", Code.Unimplemented);
      if (length < wanted) throw new ConnectError("protocol error: incomplete envelope", Code.InvalidArgument);
      return held.subarray(headBytes, length);
    },
  };
}

/** Messages as gRPC sends them, in one piece of memory and so in one write. */
function joined(messages: readonly Uint8Array[], mostBytes: number): Buffer {
  let size = 0;
  for (const { length } of messages) {
    if (length > mostBytes)
      throw new ConnectError(
        `message size ${length} is larger than configured writeMaxBytes ${mostBytes}`,
        Code.ResourceExhausted,
      );
    size += headBytes + length;
  }
  const bytes = Buffer.allocUnsafe(size);
  let at = 0;
  for (const message of messages) {
    at = bytes.writeUInt8(0, at);
    at = bytes.writeUInt32BE(message.length, at);
    bytes.set(message, at);
    at += message.length;
  }
  return bytes;
}

/** Resolves when the reader has taken what was written. @throws the signal's reason */
function drained(stream: ServerHttp2Stream, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onDrain = (): void => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    };
    const onAbort = (): void => {
      stream.off("drain", onDrain);
      reject(signal.reason);
    };
    stream.once("drain", onDrain);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}
