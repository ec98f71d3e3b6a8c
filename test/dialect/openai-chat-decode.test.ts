import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { withReadableRaw } from "./answer-blocks.ts";
import { pieceSizes, type Reading, readStream, readWhole } from "./answer-reading.ts";

const folder = join(import.meta.dirname, "fixtures/openai-chat");
const names = readdirSync(folder);

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

function expectedOf(name: string): unknown {
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
}

describe("a streamed Chat Completions answer", () => {
  for (const name of names.filter((file) => file.endsWith(".sse")).map((file) => file.slice(0, -".sse".length))) {
    const text = readFileSync(join(folder, `${name}.sse`), "utf8");
    for (const size of pieceSizes) {
      test(`${name}, in pieces of ${size} bytes`, async () => {
        assert.deepEqual(written(await readStream(text, size)), expectedOf(name));
      });
    }
  }
});

describe("a Chat Completions answer in one body", () => {
  const bodies = names.filter((file) => file.endsWith(".whole"));
  for (const name of bodies.map((file) => file.slice(0, -".whole".length))) {
    test(name, () => {
      assert.deepEqual(written(readWhole(readFileSync(join(folder, `${name}.whole`), "utf8"))), expectedOf(name));
    });
  }
});
