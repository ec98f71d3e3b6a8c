import type { UniversalServerResponse } from "@connectrpc/connect/protocol";

/** What is printable in ASCII, but for `%` and the blank, as the library writes it. */
const needlesslyEncoded = /%(2[1-46-9A-F]|[3-6][0-9A-F]|7[0-9A-E])/g;

/**
 * Spells `grpc-message` as gRPC wants it: percent-encoded is only what could not be sent otherwise. Connect's library
 * encodes punctuation too, and @grpc/grpc-js shows that to people as it is: `session_id%3A is empty`.
 */
export function spellGrpcMessage(fields: Headers): void {
  const message = fields.get("grpc-message");
  if (message === null) return;
  const plain = message.replace(needlesslyEncoded, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  fields.set("grpc-message", plain);
}

/** Spells the message of an answer; its trailer is complete only when its body has ended. */
export function withPlainGrpcMessage(answer: UniversalServerResponse): UniversalServerResponse {
  const { body, trailer } = answer;
  if (trailer === undefined) return answer;
  if (body === undefined) {
    spellGrpcMessage(trailer);
    return answer;
  }
  const spelled = async function* () {
    yield* body;
    spellGrpcMessage(trailer);
  };
  return { ...answer, body: spelled() };
}
