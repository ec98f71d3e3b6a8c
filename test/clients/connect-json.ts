import assert from "node:assert/strict";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { codeFromString } from "@connectrpc/connect/protocol-connect";
import { at, CallFailed } from "./visit.ts";

/** Reads JSON that somebody else wrote. */
export function parseJson(text: string): JsonValue {
  const value: JsonValue = JSON.parse(text);
  return value;
}

/** An error as Connect writes it: a word for the code, and details whose values are base64. */
export function failureFromJson(error: JsonValue | undefined): CallFailed {
  const word = at(error, "code");
  const code = typeof word === "string" ? codeFromString(word) : undefined;
  assert.ok(code !== undefined, `an error with a code is wanted, not ${JSON.stringify(error)}`);
  const details = at(error, "details") ?? [];
  assert.ok(Array.isArray(details), "details are a list");
  return new CallFailed(
    code,
    String(at(error, "message") ?? ""),
    details.map((detail) => ({
      type: String(at(detail, "type")),
      value: Buffer.from(String(at(detail, "value") ?? ""), "base64"),
    })),
  );
}

/** A message in the envelope of Connect's streams. */
export function enveloped(message: JsonObject | string): Buffer {
  const body = Buffer.from(typeof message === "string" ? message : JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

/** The messages of a Connect stream. @throws {CallFailed} when the last envelope holds an error. */
export function messagesFrom(stream: Buffer): JsonValue[] {
  const messages: JsonValue[] = [];
  for (let start = 0; start < stream.length; ) {
    const flags = stream.readUInt8(start);
    const end = start + 5 + stream.readUInt32BE(start + 1);
    const message = parseJson(stream.subarray(start + 5, end).toString());
    start = end;
    if (flags === 0) {
      messages.push(message);
      continue;
    }
    assert.equal(flags, 2, "an envelope is a message or the end");
    assert.equal(start, stream.length, "nothing comes after the end");
    if (at(message, "error") !== undefined) throw failureFromJson(at(message, "error"));
    return messages;
  }
  return assert.fail("the stream has no end");
}
