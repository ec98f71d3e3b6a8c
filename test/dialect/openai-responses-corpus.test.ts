import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { type ContentBlock, type Message, toolUses } from "../../src/chat/message.ts";
import { decodeLogEvent, encodeLogEvent } from "../../src/convert/proto/event.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { elementSlices, memberSlices } from "../../src/dialect/json-slices.ts";
import { openaiResponses } from "../../src/dialect/openai-responses.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { faultFromText, upstreamError } from "../../src/dialect/upstream-error.ts";
import { pieceSizes } from "./answer-reading.ts";
import {
  plainBlocks,
  type ResponseReading,
  readResponseStream,
  readWholeResponse,
} from "./openai-responses-reading.ts";
import { checkInput } from "./openai-responses-request.ts";

const corpus = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const folder = join(corpus, "exchanges/openai-responses");

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

const errorKinds: Readonly<Record<string, string>> = {
  "responses-openai-501de15e": "rate_limited",
  "responses-openai-b9b8683a": "provider_protocol",
};
const kindOfStatus: Readonly<Record<number, string>> = {
  400: "provider_rejected",
  401: "provider_auth",
  429: "rate_limited",
};

const skip = existsSync(folder) ? false : `no recorded answers at CORPUS_DIR or ${corpus}`;

/** The items an answer brought, each as it came, and what else its end says. */
function wireItems({ stream, whole }: Exchange): { items: string[]; last: string } {
  if (stream === undefined) return { items: elementSlices(memberSlices(whole).get("output") ?? ""), last: whole };
  const data = stream
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:") && isJsonObject(parseJson(line.slice(5))))
    .map((line) => line.slice(5));
  const ofType = (type: string) => data.filter((text) => objectOf(parseJson(text))["type"] === type);
  const end = [...ofType("response.completed"), ...ofType("response.incomplete")].at(-1) ?? "{}";
  return {
    items: ofType("response.output_item.done").map((text) => memberSlices(text).get("item") ?? ""),
    last: memberSlices(end).get("response") ?? "{}",
  };
}

const typeOf = (item: string) => textOf(objectOf(parseJson(item))["type"]);
const hash = (text: string) => createHash("sha256").update(text).digest("hex");

/** Reasoning without what only the answer has: where it stands with its maker. */
function reasoningHash(item: string): string {
  const members = memberSlices(item);
  for (const name of ["id", "status"]) members.delete(name);
  for (const [name, source] of members) if (source === "null") members.delete(name);
  return hash(JSON.stringify([...members]));
}

/** What the blocks are after they were written to the log and read again. */
function throughLog(blocks: readonly ContentBlock[]): ContentBlock[] {
  return blocks.map((block, index) => {
    const { event } = decodeLogEvent(encodeLogEvent("turn-1", 1, { type: "block-stop", index, block }));
    assert.ok(event.type === "block-stop");
    return event.block;
  });
}

/** The request after an answer: its calls are answered, and the user goes on. */
function nextInput(blocks: readonly ContentBlock[], store: boolean, model = "m-1"): string[] {
  const answer: Message = { role: "assistant", blocks };
  const results: Message[] = toolUses(answer).map(({ id }) => ({
    role: "tool",
    blocks: [{ type: "tool_result", toolUseId: id, content: "fine" }],
  }));
  const ask = (text: string): Message => ({ role: "user", blocks: [{ type: "text", text }] });
  const body = openaiResponses.encode(
    { model, messages: [ask("Go"), answer, ...results, ask("On")], tools: [], options: { stateful: { store } } },
    defaultQuirks,
    "test",
  );
  checkInput(body);
  return elementSlices(memberSlices(body).get("input") ?? "").slice(1, -1);
}

describe("recorded Responses answers", { skip }, () => {
  const exchanges = skip ? [] : readdirSync(folder).map(readExchange);
  const readings = new Map<string, ResponseReading>();
  const answers = exchanges.filter(({ status }) => status === 200);

  for (const exchange of answers) {
    test(`${exchange.id} reads as its tags say, however it is cut`, async () => {
      const { id, tags, stream } = exchange;
      const reading =
        stream === undefined ? readWholeResponse(exchange.whole) : await readResponseStream(stream, 65_536);
      readings.set(id, reading);
      for (const size of stream === undefined ? [] : pieceSizes) {
        assert.deepEqual(await readResponseStream(stream ?? "", size), reading, `in pieces of ${size} bytes`);
      }
      const kind = reading.error instanceof AgentError ? reading.error.kind : reading.error;
      assert.equal(kind, errorKinds[id]);
      if (kind !== undefined) return;

      const { blocks, events } = reading;
      const calls = blocks.filter((block) => block.type === "tool_use");
      const reasoning = blocks.filter((block) => block.type === "reasoning");
      const unknown = blocks.filter((block) => block.type === "unknown");
      const custom = unknown.filter(({ unknownType }) => unknownType === "custom_tool_call");
      assert.equal(calls.length + custom.length > 0, tags.has("tool_call"), "calls");
      assert.equal(calls.length > 1, tags.has("parallel_tool_calls"), "several calls");
      assert.equal(new Set(calls.map((call) => call.id)).size, calls.length, "each call has an id of its own");
      const broken = calls.filter(({ input }) => input !== "" && parseJson(input) === undefined);
      assert.equal(broken.length > 0, tags.has("tool_args_invalid_json"), "arguments that do not parse");
      assert.equal(reasoning.length > 0, tags.has("reasoning_item"), "reasoning");
      assert.equal(reasoning.length > 1, tags.has("several_reasoning_items"), "several reasoning items");
      const encrypted = tags.has("encrypted_reasoning") || tags.has("encrypted_reasoning_placeholder");
      assert.equal(
        reasoning.some((block) => block.encrypted !== undefined),
        encrypted,
        "encrypted reasoning",
      );
      assert.equal(
        reasoning.some((block) => block.summary.length > 0),
        tags.has("reasoning_summary"),
        "summary",
      );
      assert.equal(
        reasoning.some((block) => block.summary.length > 1),
        tags.has("several_summaries"),
        "summaries",
      );
      assert.equal(
        reasoning.some((block) => block.content !== ""),
        tags.has("reasoning_text"),
        "reasoning text",
      );
      const texts = blocks.filter((block) => block.type === "text");
      assert.equal(texts.length > 0, tags.has("text") || tags.has("refusal"), "text");
      assert.equal(
        texts.some(({ phase }) => phase !== undefined),
        tags.has("phase") && texts.length > 0,
        "phase",
      );
      for (const { unknownType } of unknown) {
        const known = [`server_tool:${unknownType}`, `item:${unknownType}`, unknownType];
        assert.ok(
          known.some((tag) => tags.has(tag)),
          unknownType,
        );
      }

      const [finish, ...more] = events.filter((event) => event.type === "finish");
      assert.ok(finish);
      assert.deepEqual(more, []);
      const expected = tags.has("incomplete:max_output_tokens")
        ? "length"
        : tags.has("refusal")
          ? "content_filter"
          : calls.length > 0
            ? "tool_calls"
            : "stop";
      assert.equal(finish.finishReason, expected);

      const usage = events.findLast((event) => event.type === "usage")?.usage;
      const { last } = wireItems(exchange);
      assert.equal(usage === undefined, !isJsonObject(objectOf(parseJson(last))["usage"]), "there is usage");
      assert.equal((usage?.reasoningTokens ?? 0) > 0, tags.has("reasoning_tokens"), "reasoning tokens");
      assert.equal((usage?.cacheReadTokens ?? 0) > 0, tags.has("cache_read"), "cached tokens");
      assert.equal((usage?.cacheCreationTokens ?? 0) > 0, tags.has("cache_write"), "tokens written to the cache");
      assert.equal(usage?.costNanoUsd !== undefined, tags.has("usage_cost"), "cost");
    });
  }

  test("every item is read, in its order, and its text and arguments to the last", () => {
    let compared = 0;
    for (const exchange of answers) {
      const { items } = wireItems(exchange);
      const { blocks, error } = readings.get(exchange.id) ?? { blocks: [], error: "not read" };
      if (error !== undefined) continue;
      const read = items
        .map((item) => objectOf(parseJson(item)))
        .filter((item) => {
          const parts = arrayOf(item["content"]).map(objectOf);
          return item["type"] !== "message" || parts.some((part) => part["text"] || part["refusal"]);
        });
      assert.deepEqual(
        blocks.map((block) =>
          block.type === "text"
            ? ["message", block.text]
            : block.type === "tool_use"
              ? ["function_call", block.name, block.input]
              : [block.type === "unknown" ? block.unknownType : block.type],
        ),
        read.map((item) => {
          const parts = arrayOf(item["content"]).map(objectOf);
          const text = parts.map((part) => textOf(part["text"]) || textOf(part["refusal"])).join("");
          if (item["type"] === "message") return ["message", text];
          if (item["type"] === "function_call") return ["function_call", item["name"], item["arguments"]];
          return [item["type"]];
        }),
        exchange.id,
      );
      compared += read.length;
    }
    assert.equal(compared > 0, answers.length > 0);
  });

  test("streams read the same from the response they end with", () => {
    let compared = 0;
    for (const exchange of answers) {
      const reading = readings.get(exchange.id);
      const { last } = wireItems(exchange);
      if (exchange.stream === undefined || reading === undefined || reading.error !== undefined) continue;
      if (arrayOf(objectOf(parseJson(last))["output"]).length === 0) continue;
      const whole = readWholeResponse(last);
      // Azure encrypts the same reasoning anew for the end; the form of the finished item is the one to send.
      const comparableBlocks = (blocks: readonly ContentBlock[]) =>
        plainBlocks(
          blocks.map((block) => (block.type === "reasoning" && block.encrypted ? { ...block, encrypted: "x" } : block)),
        );
      assert.deepEqual(comparableBlocks(whole.blocks), comparableBlocks(reading.blocks), exchange.id);
      compared++;
    }
    assert.equal(compared > 0, answers.length > 0);
  });

  test("reasoning goes back as it came, member by member, also after it was in the log", () => {
    let compared = 0;
    for (const exchange of answers) {
      const reading = readings.get(exchange.id);
      if (reading === undefined || reading.error !== undefined) continue;
      const { items } = wireItems(exchange);
      for (const store of [false, true]) {
        for (const blocks of [reading.blocks, throughLog(reading.blocks)]) {
          const sent = nextInput(blocks, store).filter((item) => typeOf(item) === "reasoning");
          const readableOnes = items.filter((item) => {
            if (typeOf(item) !== "reasoning") return false;
            const { encrypted_content, content } = objectOf(parseJson(item));
            const inTheOpen = arrayOf(content).some((part) => textOf(objectOf(part)["text"]) !== "");
            return textOf(encrypted_content) !== "" || inTheOpen;
          });
          if (!store) assert.deepEqual(sent.map(reasoningHash), readableOnes.map(reasoningHash), exchange.id);
          for (const item of sent) {
            const id = memberSlices(item).get("id");
            assert.equal(id !== undefined, store);
            const back = items.filter((one) => !store || memberSlices(one).get("id") === id);
            assert.ok(
              back.some((one) => reasoningHash(one) === reasoningHash(item)),
              exchange.id,
            );
            compared++;
          }
        }
      }
    }
    assert.equal(compared > 0, answers.length > 0);
  });

  test("items without a name here go back byte for byte", () => {
    let compared = 0;
    for (const exchange of answers) {
      const reading = readings.get(exchange.id);
      if (reading === undefined || reading.error !== undefined) continue;
      const named = ["message", "function_call", "function_call_output", "reasoning"];
      const unnamed = (item: string) => !named.includes(typeOf(item));
      const sent = nextInput(throughLog(reading.blocks), false).filter(unnamed);
      assert.deepEqual(sent, wireItems(exchange).items.filter(unnamed), exchange.id);
      compared += sent.length;
    }
    assert.equal(compared > 0, answers.length > 0);
  });

  for (const exchange of exchanges.filter(({ status }) => status !== 200)) {
    test(`${exchange.id} is told by its HTTP status ${exchange.status}`, () => {
      const fault = faultFromText(exchange.whole);
      assert.ok(fault);
      assert.notEqual(fault.message, "");
      const error = upstreamError(fault, { provider: "test", status: exchange.status });
      assert.equal(error.kind, kindOfStatus[exchange.status]);
    });
  }

  const continued = exchanges.filter(({ continues }) => answers.some(({ id }) => id === continues));
  for (const { id, continues, request } of continued) {
    test(`${id}: the answer of ${continues} goes back as its client sent it`, () => {
      const store = request["store"] !== false;
      const blocks = readings.get(continues)?.blocks ?? [];
      const mine = nextInput(throughLog(blocks), store).map((item) => objectOf(parseJson(item)));
      const theirs = arrayOf(request["input"]).map(objectOf);
      const isSame = (change: Change) => {
        const [wanted, sent] = [mine, theirs].map((items) =>
          items.flatMap((item) => comparable(item, store, change)).map((item) => JSON.stringify(item)),
        );
        assert.ok(wanted !== undefined && sent !== undefined && wanted.length > 0);
        return sent.some((_, from) => wanted.every((text, offset) => sent[from + offset] === text));
      };
      const change = changes[id];
      assert.equal(isSame("none"), change === undefined, "goes back as it came");
      assert.ok(isSame(change ?? "none"), change ?? "as it came");
    });
  }
});

type Change = "none" | "reasoning left out" | "call ids of its own" | "arguments written anew" | "sources left out";

/**
 * What a client changed of an answer before it sent it back, as it may: none of it is what the model wrote. Some use the
 * id of the item for that of the call; Mantle's calls have the same ids in each answer.
 */
const changes: Readonly<Record<string, Change>> = {
  "responses-azure-330cd4ac": "reasoning left out",
  "responses-openai-200b8531": "reasoning left out",
  "responses-bedrock-mantle-617f486f": "call ids of its own",
  "responses-bedrock-mantle-7b2f80c9": "call ids of its own",
  "responses-openai-1de45ab9": "call ids of its own",
  "responses-openai-570e4233": "call ids of its own",
  "responses-openai-982505eb": "call ids of its own",
  "responses-openai-c090a4a0": "call ids of its own",
  "responses-openai-793e786e": "arguments written anew",
  "responses-openai-7a3a1263": "arguments written anew",
  "responses-openai-b6124e53": "arguments written anew",
  "responses-openai-54598e86": "sources left out",
};

/**
 * An item of an answer in what of it matters to the model. Clients differ in more, and the API takes it all: ids and
 * states of calls and messages, empty lists, text as a string or in parts, ids of reasoning that comes along whole.
 */
function comparable(item: JsonObject, store: boolean, change: Change): unknown[] {
  const { type, role, content, phase, id, status, ...rest } = item;
  if (type === "function_call_output" || (role !== undefined && role !== "assistant")) return [];
  const texts = (parts: unknown) => arrayOf(parts).map((part) => objectOf(part)["text"]);
  switch (type) {
    case "reasoning": {
      if (change === "reasoning left out") return [];
      const { summary, encrypted_content } = item;
      return [[type, texts(summary), texts(content), encrypted_content ?? null, store ? id : ""]];
    }
    case "function_call": {
      const { call_id, name, arguments: given } = item;
      const argumentsText = textOf(given) || "{}";
      const argumentsValue = change === "arguments written anew" ? parseJson(argumentsText) : argumentsText;
      return [[type, change === "call ids of its own" ? "" : call_id, name, argumentsValue]];
    }
    case "web_search_call": {
      const { sources, ...action } = objectOf(item["action"]);
      return [[type, id, Object.entries(action).toSorted(), change === "sources left out" ? null : sources]];
    }
    case "message":
    case undefined:
      return [["message", typeof content === "string" ? content : texts(content).join(""), phase ?? null]];
    default:
      return [[type, id, status, rest]];
  }
}
