import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../src/chat/error.ts";
import { arrayOf, objectOf, parseJson } from "../../src/dialect/json.ts";
import { memberSlices } from "../../src/dialect/json-slices.ts";
import { pieceSizes } from "./answer-reading.ts";
import {
  plainBlocks,
  type ResponseReading,
  readable,
  readResponseStream,
  readWholeResponse,
} from "./openai-responses-reading.ts";

const folder = join(import.meta.dirname, "fixtures/openai-responses");
const names = readdirSync(folder);
const named = (ending: string) =>
  names.filter((file) => file.endsWith(ending)).map((file) => file.slice(0, -ending.length));
const textOfFile = (file: string) => readFileSync(join(folder, file), "utf8");

/** A reading as it stands in a `.json` file. */
function written({ blocks, shown, events, error }: ResponseReading): unknown {
  const read = { blocks: readable(blocks), shown, events };
  if (error === undefined) return read;
  assert.ok(error instanceof AgentError, String(error));
  const { kind, message, detail } = error;
  return { ...read, error: { kind, message, detail } };
}

describe("a streamed Responses answer", () => {
  for (const name of named(".sse")) {
    const text = textOfFile(`${name}.sse`);
    for (const size of pieceSizes) {
      test(`${name}, in pieces of ${size} bytes`, async () => {
        assert.deepEqual(written(await readResponseStream(text, size)), JSON.parse(textOfFile(`${name}.json`)));
      });
    }
  }

  const ended = named(".sse").flatMap((name) => {
    const last = textOfFile(`${name}.sse`)
      .split(/\r?\n/)
      .findLast((line) => /"type":"response\.(completed|incomplete)"/.test(line));
    const event = last?.slice("data:".length) ?? "";
    const response = parseJson(event) === undefined ? "" : (memberSlices(event).get("response") ?? "");
    return arrayOf(objectOf(parseJson(response))["output"]).length > 0 ? [{ name, response }] : [];
  });
  test(`${ended.length} answers read the same from the response they end with`, async () => {
    for (const { name, response } of ended) {
      const streamed = await readResponseStream(textOfFile(`${name}.sse`), 4096);
      const whole = readWholeResponse(response);
      assert.deepEqual(plainBlocks(whole.blocks), plainBlocks(streamed.blocks), name);
      assert.deepEqual(whole.events.at(-1), streamed.events.at(-1), name);
    }
    assert.ok(ended.length > 10);
  });
});

/** The events of all streams, with their lines. */
const pieces = named(".sse").flatMap((name) =>
  textOfFile(`${name}.sse`)
    .split(/(?:\r?\n){2}/)
    .filter((piece) => piece !== ""),
);

describe("a stream that ends anywhere before its last event", () => {
  for (const name of ["reasoning-between-messages-with-phases", "parallel-calls-interleaved"]) {
    const all = textOfFile(`${name}.sse`).split(/(?<=\n\n)/);
    const last = all.findIndex((event) => event.includes('"type":"response.completed"'));
    for (let count = 1; count <= last; count++) {
      test(`${name}, after ${count} of ${all.length} events and amid the next one`, async () => {
        const whole = all.slice(0, count).join("");
        const half = (all[count] ?? "").slice(0, Math.floor((all[count] ?? "").length / 2));
        for (const text of [whole, whole + half]) {
          const { error } = await readResponseStream(text, 64);
          assert.ok(error instanceof AgentError && error.kind === "provider_unavailable" && error.detail.retryable);
        }
      });
    }
    test(`${name}, with its last event`, async () => {
      assert.ok(last > 0);
      assert.equal((await readResponseStream(all.slice(0, last + 1).join(""), 64)).error, undefined);
    });
  }
});

describe("events that come in any order, twice or not at all", () => {
  test("are an answer or an error that says whose it is", async () => {
    const anyPieces = fc.array(fc.constantFrom(...pieces), { maxLength: 12 });
    const end = fc.constantFrom(...pieces.filter((piece) => piece.includes('"response.completed"')));
    await fc.assert(
      fc.asyncProperty(anyPieces, end, async (some, last) => {
        const { blocks, events, error } = await readResponseStream(`${[...some, last].join("\n\n")}\n\n`, 4096);
        assert.ok(
          error === undefined || (error instanceof AgentError && error.detail.provider === "test"),
          String(error),
        );
        const ids = blocks.flatMap((block) => (block.type === "tool_use" ? [block.id] : []));
        assert.equal(new Set(ids).size, ids.length);
        assert.equal(events.filter(({ type }) => type === "finish").length, error === undefined ? 1 : 0);
      }),
      { numRuns: 1000 },
    );
  });
});

describe("a Responses answer in one body", () => {
  for (const name of named(".whole")) {
    test(name, () => {
      const reading = readWholeResponse(textOfFile(`${name}.whole`));
      assert.deepEqual(written(reading), JSON.parse(textOfFile(`${name}.json`)));
    });
  }
});
