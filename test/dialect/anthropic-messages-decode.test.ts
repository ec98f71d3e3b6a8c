import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { decodeError } from "../../src/dialect/anthropic-messages-decode.ts";
import { upstreamError } from "../../src/dialect/upstream-error.ts";
import { blocksOf, withReadableRaw } from "./answer-blocks.ts";
import { pieceSizes, type Reading, readStream, readWhole } from "./answer-reading.ts";

const folder = join(import.meta.dirname, "fixtures/anthropic-messages");
const names = readdirSync(folder);
const streams = names.filter((file) => file.endsWith(".sse")).map((file) => file.slice(0, -".sse".length));
const bodies = names.filter((file) => file.endsWith(".whole")).map((file) => file.slice(0, -".whole".length));

const read = (file: string) => readFileSync(join(folder, file), "utf8");
const stream = (text: string, size: number) => readStream(text, size, "anthropic-messages");
const whole = (text: string) => readWhole(text, "anthropic-messages");

/** A reading as it stands in a `.json` file: with the bytes of blocks as text. */
function written({ events, error }: Reading): unknown {
  const readable = events.map((event) =>
    event.type === "block" ? { ...event, block: withReadableRaw(event.block) } : event,
  );
  if (error === undefined) return { events: readable };
  assert.ok(error instanceof AgentError, String(error));
  const { kind, message, detail } = error;
  return { events: readable, error: { kind, message, detail } };
}

describe("a streamed Messages answer", () => {
  for (const name of streams) {
    const text = read(`${name}.sse`);
    for (const size of pieceSizes) {
      test(`${name}, in pieces of ${size} bytes`, async () => {
        assert.deepEqual(written(await stream(text, size)), JSON.parse(read(`${name}.json`)));
      });
    }
  }
});

describe("a Messages answer in one body", () => {
  for (const name of bodies) {
    test(name, () => {
      assert.deepEqual(written(whole(read(`${name}.whole`))), JSON.parse(read(`${name}.json`)));
    });
  }
});

/** What a block says, without the form it came in: that is there only for what came in one piece. */
function meaning(block: ReturnType<typeof blocksOf>[number]): unknown {
  if (block.type !== "thinking" && block.type !== "redacted_thinking") return withReadableRaw(block);
  const { raw: _, ...rest } = block;
  return rest;
}

describe("an answer gives the same blocks streamed and in one body", () => {
  const pairs = streams.filter((name) => name.startsWith("pair-"));
  test("there are pairs", () => assert.ok(pairs.length >= 4));
  for (const name of pairs) {
    test(name, async () => {
      const streamed = blocksOf((await stream(read(`${name}.sse`), 64)).events);
      const atOnce = blocksOf(whole(read(`${name}-whole.whole`)).events);
      assert.ok(streamed.length > 1);
      assert.deepEqual(streamed.map(meaning), atOnce.map(meaning));
    });
  }
});

describe("a stream that ends anywhere before its end", () => {
  const text = read("pair-thinking-text-and-calls.sse");
  const all = text.split(/(?<=\n\n)/);
  // After the event with the stop reason nothing is missing but the last word.
  for (let count = 1; count < all.length; count++) {
    const complete = count === all.length - 1;
    test(`after ${count} of ${all.length} events it is ${complete ? "whole" : "cut off"}`, async () => {
      const { error } = await stream(all.slice(0, count).join(""), 4096);
      assert.equal(error instanceof AgentError ? error.kind : error, complete ? undefined : "provider_unavailable");
    });
    test(`in the middle of event ${count + 1} it is ${complete ? "whole" : "cut off"}`, async () => {
      const half = (all[count] ?? "").slice(0, Math.floor((all[count] ?? "").length / 2));
      const { error } = await stream(all.slice(0, count).join("") + half, 4096);
      assert.equal(error instanceof AgentError ? error.kind : error, complete ? undefined : "provider_unavailable");
    });
  }
});

const faults: readonly { body: string; status: number; kind: string; retryable: boolean; requestId?: string }[] = [
  {
    body: '{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}',
    status: 529,
    kind: "provider_unavailable",
    retryable: true,
    requestId: "req_1",
  },
  {
    body: '{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}',
    status: 429,
    kind: "rate_limited",
    retryable: true,
  },
  {
    body: '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_2"}',
    status: 401,
    kind: "provider_auth",
    retryable: false,
    requestId: "req_2",
  },
  {
    body: '{"type":"error","error":{"type":"not_found_error","message":"model: nope"}}',
    status: 404,
    kind: "provider_not_found",
    retryable: false,
  },
  {
    body: '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}',
    status: 400,
    kind: "context_length",
    retryable: false,
  },
];

describe("the body of an HTTP error", () => {
  for (const { body, status, kind, retryable, requestId } of faults) {
    test(`${status} is ${kind}`, () => {
      const fault = decodeError(body);
      assert.ok(fault);
      const error = upstreamError(fault, { provider: "test", status });
      assert.equal(error.kind, kind);
      assert.equal(error.detail.retryable, retryable);
      assert.equal(error.detail.upstreamRequestId, requestId);
      const known = upstreamError(fault, { provider: "test", status, upstreamRequestId: "req_header" });
      assert.equal(known.detail.upstreamRequestId, "req_header");
    });
  }

  test("what is no error of Anthropic's is nobody's", () => {
    for (const body of ["", "<html>", "[]", '{"type":"message","content":[]}'])
      assert.equal(decodeError(body), undefined);
  });
});
