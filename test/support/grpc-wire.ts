import type { ClientHttp2Session, IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";

/** What came back of a gRPC call, as it was on the wire. */
export interface WireAnswer {
  /** Fields of the first block of fields; the only one in an answer of an error alone. */
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  readonly messages: readonly Buffer[];
  readonly status: number;
  readonly message: string;
  /** The fields that tell how it ended, as they were sent. */
  readonly statusFields: Readonly<Record<string, unknown>>;
}

/** A message of gRPC as it should be on the wire, or with another length or flags before it. */
export function framed(message: Uint8Array, length = message.length, flags = 0): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}

export function openCall(session: ClientHttp2Session, path: string, fields: OutgoingHttpHeaders = {}) {
  return session.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc",
    te: "trailers",
    ...fields,
  });
}

/** Calls with a body in pieces, each in a frame of its own; resolves when the answer has come whole. */
export async function wireCall(
  session: ClientHttp2Session,
  path: string,
  pieces: readonly Uint8Array[],
  fields: OutgoingHttpHeaders = {},
): Promise<WireAnswer> {
  const stream = openCall(session, path, fields);
  const answer = readAnswer(stream);
  for (const piece of pieces) await new Promise((resolve) => stream.write(piece, resolve));
  stream.end();
  return answer;
}

/** Reads an answer to its end. */
export function readAnswer(stream: ReturnType<typeof openCall>): Promise<WireAnswer> {
  return new Promise((resolve, reject) => {
    let headers: IncomingHttpHeaders = {};
    let trailers: IncomingHttpHeaders = {};
    const received: Buffer[] = [];
    stream.on("response", (some) => {
      headers = some;
    });
    stream.on("trailers", (some) => {
      trailers = some;
    });
    stream.on("data", (bytes: Buffer) => received.push(bytes));
    stream.on("error", reject);
    stream.on("end", () => {
      const all = { ...headers, ...trailers };
      resolve({
        headers,
        trailers,
        messages: messagesOf(Buffer.concat(received)),
        status: Number(all["grpc-status"] ?? -1),
        message: decodeURIComponent(String(all["grpc-message"] ?? "")),
        statusFields: Object.fromEntries(Object.entries(all).filter(([name]) => name.startsWith("grpc-"))),
      });
    });
  });
}

function messagesOf(bytes: Buffer): Buffer[] {
  const messages: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    if (bytes.readUInt8(at) !== 0 || end > bytes.length) throw new Error("a frame that is compressed or cut off");
    messages.push(bytes.subarray(at + 5, end));
    at = end;
  }
  return messages;
}
