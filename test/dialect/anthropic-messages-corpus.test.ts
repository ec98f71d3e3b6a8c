import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import type { Message } from "../../src/chat/message.ts";
import { decodeError } from "../../src/dialect/anthropic-messages-decode.ts";
import { encode } from "../../src/dialect/anthropic-messages-encode.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { upstreamError } from "../../src/dialect/upstream-error.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { blocksOf } from "./answer-blocks.ts";
import { callsOf, pieceSizes, type Reading, readStream, readWhole, textIn } from "./answer-reading.ts";
import { validAnthropicRequest } from "./valid-anthropic-request.ts";

const corpus = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const folder = join(corpus, "exchanges/anthropic-messages");

interface Exchange {
  readonly id: string;
  readonly status: number;
  readonly tags: ReadonlySet<string>;
  readonly continues: string;
  readonly request: JsonObject;
  readonly stream?: string;
  readonly whole: string;
}

function readExchange(file: string): Exchange {
  const value = objectOf(parseJson(readFileSync(join(folder, file), "utf8")));
  const { responseSse, responseText, response, status } = value;
  return {
    id: textOf(value["id"]),
    status: typeof status === "number" ? status : 0,
    tags: new Set(arrayOf(value["tags"]).map(textOf)),
    continues: textOf(objectOf(value["conversation"])["continues"]),
    request: objectOf(value["request"]),
    ...(typeof responseSse === "string" ? { stream: responseSse } : {}),
    whole: typeof responseText === "string" ? responseText : JSON.stringify(response ?? ""),
  };
}

/** The content of an answer, put together by the plainest of readers. */
function contentOf({ stream, whole }: Exchange): JsonObject[] {
  if (stream === undefined) return arrayOf(objectOf(parseJson(whole))["content"]).filter(isJsonObject);
  const blocks: { block: Record<string, unknown>; input: string }[] = [];
  for (const line of stream.split("\n").filter((one) => one.startsWith("data:"))) {
    const event = objectOf(parseJson(line.slice("data:".length)));
    for (const block of arrayOf(objectOf(event["message"])["content"])) {
      blocks.push({ block: { ...objectOf(block) }, input: "" });
    }
    if (event["type"] === "content_block_start") {
      blocks.push({ block: { ...objectOf(event["content_block"]) }, input: "" });
    }
    const last = blocks.at(-1);
    const delta = objectOf(event["delta"]);
    if (last === undefined || event["type"] !== "content_block_delta") continue;
    const { block } = last;
    last.input += textOf(delta["partial_json"]);
    for (const field of ["text", "thinking", "signature", "content"]) {
      if (typeof delta[field] === "string") block[field] = textOf(block[field]) + delta[field];
    }
    if ("citation" in delta) block["citations"] = [...arrayOf(block["citations"]), delta["citation"]];
    if (last.input !== "") block["input"] = parseJson(last.input) ?? last.input;
  }
  return blocks.map(({ block }) => block);
}

/** A block without what says nothing when it goes back. */
function plain(block: JsonObject): JsonObject {
  const { cache_control: _, citations, caller, ...rest } = block;
  const input = "input" in block ? { input: block["input"] === "" ? {} : block["input"] } : {};
  return {
    ...rest,
    ...input,
    ...(arrayOf(citations).length === 0 ? {} : { citations }),
    ...(block["type"] === "tool_use" && objectOf(caller)["type"] === "direct"
      ? {}
      : caller === undefined
        ? {}
        : { caller }),
  };
}

const isEmptyText = (block: JsonObject) => block["type"] === "text" && block["text"] === "";

const skip = existsSync(folder) ? false : `no recorded answers at CORPUS_DIR or ${corpus}`;
const kindOfStatus: Readonly<Record<number, string>> = {
  400: "provider_rejected",
  401: "provider_auth",
  404: "provider_not_found",
};

/** What this service sends after an answer, in the answer's place. */
function assistantTurnAfter(reading: Reading): JsonObject[] {
  const text = (words: string): Message => ({ role: "user", blocks: [{ type: "text", text: words }] });
  const body = validAnthropicRequest(
    encode(
      {
        model: "m-1",
        messages: validHistory([text("Go"), { role: "assistant", blocks: blocksOf(reading.events) }, text("And?")]),
        tools: [],
        options: {},
      },
      defaultQuirks,
      "test",
    ),
  );
  const turn = objectOf(arrayOf(body["messages"])[1]);
  return arrayOf(turn["content"]).filter(isJsonObject);
}

/** Where recorded clients send back another answer than they got, and what makes theirs of ours. */
interface Difference {
  readonly why: string;
  made(turn: readonly JsonObject[]): JsonObject[];
}
const withoutType = (type: string) => (turn: readonly JsonObject[]) => turn.filter((block) => block["type"] !== type);
const dropsThinking: Difference = { why: "that client loses thinking without words", made: withoutType("thinking") };
const dropsCitations: Difference = {
  why: "that client loses thinking without words, and citations",
  made: (turn) => withoutType("thinking")(turn).map(({ citations: _, ...block }) => block),
};
const dropsText: Difference = { why: "that client loses the text before a call", made: withoutType("text") };
const differences: Readonly<Record<string, Difference>> = {
  "messages-anthropic-59d7a159": dropsThinking,
  "messages-anthropic-8a1d7313": dropsThinking,
  "messages-anthropic-d32507ae": dropsThinking,
  "messages-anthropic-de9375ea": dropsThinking,
  "messages-anthropic-8031cd2a": dropsText,
  "messages-anthropic-c6f2507a": dropsText,
  "messages-anthropic-1acb0f85": dropsCitations,
  "messages-anthropic-3110ef52": dropsCitations,
  "messages-anthropic-0e61139b": {
    why: "that client puts white space before the calls",
    made: (turn) => [{ type: "text", text: " " }, ...turn],
  },
  "messages-anthropic-8d5530b7": {
    why: "the recorder hid the passwords in the calls",
    made: (turn) =>
      turn.map((block) => (block["type"] === "tool_use" ? { ...block, input: { password: "SCRUBBED" } } : block)),
  },
};

describe("recorded Messages answers", { skip }, () => {
  const exchanges = skip ? [] : readdirSync(folder).map(readExchange);
  const readings = new Map<string, Reading>();
  const answers = exchanges.filter(({ status }) => status === 200);

  for (const exchange of answers) {
    test(`${exchange.id} reads as its tags say, however it is cut`, async () => {
      const { id, tags, stream } = exchange;
      const reading =
        stream === undefined
          ? readWhole(exchange.whole, "anthropic-messages")
          : await readStream(stream, 65_536, "anthropic-messages");
      readings.set(id, reading);
      for (const size of stream === undefined ? [] : pieceSizes) {
        assert.deepEqual(
          await readStream(stream ?? "", size, "anthropic-messages"),
          reading,
          `in pieces of ${size} bytes`,
        );
      }
      assert.equal(reading.error, undefined);
      const { events } = reading;
      const content = contentOf(exchange);
      const ofType = (type: string) => content.filter((block) => block["type"] === type);
      const words = (type: string, field: string) => ofType(type).map((block) => textOf(block[field]));

      const calls = callsOf(events);
      assert.equal(calls.length > 0, tags.has("tool_call"), "there are calls");
      assert.equal(calls.length > 1, tags.has("parallel_tool_calls"), "there are several calls");
      assert.deepEqual(
        calls.map((call) => [call.id, call.name, parseJson(call.argumentsText || "{}")]),
        ofType("tool_use").map((block) => [block["id"], block["name"], block["input"] === "" ? {} : block["input"]]),
      );
      assert.equal(textIn(events, "text-delta"), words("text", "text").join(""));
      assert.equal(textIn(events, "text-delta") !== "", tags.has("text"), "text");
      assert.equal(textIn(events, "thinking-delta"), words("thinking", "thinking").join(""));
      const signatures = events.flatMap((event) => (event.type === "signature-delta" ? [event.signature] : []));
      assert.deepEqual(signatures, words("thinking", "signature"));
      assert.equal(signatures.length > 0, tags.has("thinking") || tags.has("thinking_empty"), "thinking");
      assert.equal(signatures.length > 1, tags.has("several_thinking_blocks"), "several blocks of thinking");
      const kept = events.flatMap((event) => (event.type === "block" ? [event.block] : []));
      const redacted = kept.filter((block) => block.type === "redacted_thinking");
      assert.deepEqual(
        redacted.map(({ data }) => data),
        words("redacted_thinking", "data"),
      );
      assert.equal(redacted.length > 0, tags.has("redacted_thinking"));
      const unknownTypes = kept.flatMap((block) => (block.type === "unknown" ? [block.unknownType] : []));
      assert.equal(unknownTypes.includes("compaction"), tags.has("compaction"), "compaction");
      assert.equal(unknownTypes.includes("text"), tags.has("citations"), "citations");
      const runsOwnTools = [...tags].some((tag) => tag.startsWith("server_tool:"));
      assert.equal(
        unknownTypes.some((type) => /_tool_use$|_tool_result$/.test(type)),
        runsOwnTools,
        "own tools",
      );

      const [finish, ...more] = events.filter((event) => event.type === "finish");
      assert.ok(finish);
      assert.deepEqual(more, []);
      assert.ok(tags.has(`stop:${finish.rawFinishReason}`), finish.rawFinishReason);
      const expected = tags.has("stop:max_tokens") ? "length" : calls.length > 0 ? "tool_calls" : "stop";
      assert.equal(finish.finishReason, expected);

      const usage = events.findLast((event) => event.type === "usage")?.usage;
      assert.ok(usage?.inputTokens !== undefined && usage.outputTokens !== undefined);
      assert.equal((usage.cacheReadTokens ?? 0) > 0, tags.has("cache_read"), "cached tokens");
      assert.equal((usage.cacheCreationTokens ?? 0) > 0, tags.has("cache_write"), "tokens written to the cache");
      assert.equal((usage.reasoningTokens ?? 0) > 0, tags.has("reasoning_tokens"), "thinking tokens");
    });

    test(`${exchange.id} goes back as it came`, () => {
      const reading = readings.get(exchange.id);
      assert.ok(reading);
      const content = contentOf(exchange)
        .filter((block) => !isEmptyText(block))
        .map(plain);
      const said = content.length > 0;
      assert.deepEqual(said ? assistantTurnAfter(reading).map(plain) : [], content);
    });
  }

  for (const exchange of exchanges.filter(({ status }) => status !== 200)) {
    test(`${exchange.id} is told by its HTTP status ${exchange.status}`, () => {
      const fault = decodeError(exchange.whole);
      assert.ok(fault);
      assert.notEqual(fault.message, "");
      const error = upstreamError(fault, { provider: "test", status: exchange.status });
      assert.equal(error.kind, kindOfStatus[exchange.status]);
    });
  }

  const continued = exchanges.filter(({ continues }) => answers.some(({ id }) => id === continues));
  test("there are conversations", { skip: exchanges.length === 0 }, () => assert.ok(continued.length > 20));
  for (const { id, continues, request } of continued) {
    const difference = differences[id];
    test(`${id} sends ${continues} back as this service does${difference === undefined ? "" : `, but ${difference.why}`}`, () => {
      const reading = readings.get(continues);
      assert.ok(reading);
      const ours = assistantTurnAfter(reading).map(plain);
      const theirs = arrayOf(request["messages"])
        .map(objectOf)
        .filter(({ role }) => role === "assistant")
        .map(({ content }) =>
          typeof content === "string" ? [{ type: "text", text: content }] : arrayOf(content).filter(isJsonObject),
        )
        .map((turn) => turn.filter((block) => !isEmptyText(block)).map(plain));
      const expected = difference === undefined ? ours : difference.made(ours);
      if (difference !== undefined) assert.notDeepEqual(expected, ours, "the difference is still there");
      assert.ok(
        theirs.some((turn) => isDeepStrictEqual(turn, expected)),
        JSON.stringify({ expected, theirs }),
      );
    });
  }
});
