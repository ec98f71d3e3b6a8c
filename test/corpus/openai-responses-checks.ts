import { createHash } from "node:crypto";
import type { ContentBlock } from "../../src/chat/message.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { elementSlices, memberSlices } from "../../src/dialect/json-slices.ts";
import { openaiResponses } from "../../src/dialect/openai-responses.ts";
import { blocksOf } from "../dialect/answer-blocks.ts";
import { plainContext } from "../dialect/answer-reading.ts";
import { plainBlocks } from "../dialect/openai-responses-reading.ts";
import type { AnswerChecks, ReadAnswer } from "./check-exchange.ts";
import { checkFinish, checkUsage } from "./common-checks.ts";
import { dataOfEvents, type Exchange } from "./exchange.ts";
import type { Findings } from "./findings.ts";

export const openaiResponsesChecks: AnswerChecks = {
  answer: checkAnswer,
  assistantTurn: (body) => arrayOf(body["input"]).map(objectOf),
  sentTurns: (request) => [arrayOf(request["input"]).map(objectOf)],
  whyDifferent(ours, theirs, request) {
    const store = request["store"] !== false;
    for (const change of changes) {
      const [wanted = [], ...sent] = [ours, ...theirs].map((items) =>
        items.flatMap((item) => comparable(objectOf(item), store, change)).map((item) => JSON.stringify(item)),
      );
      if (wanted.length === 0) continue;
      const isSent = sent.some((items) =>
        items.some((_, from) => wanted.every((text, offset) => items[from + offset] === text)),
      );
      if (isSent) return change === "none" ? undefined : change;
    }
    return "";
  },
  streamOf: streamOfWhole,
};

/** The items an answer brought, each as it came, and what else its end says. */
function wireItems({ stream, whole }: Exchange): { items: string[]; last: string } {
  if (stream === undefined) return { items: elementSlices(memberSlices(whole).get("output") ?? ""), last: whole };
  const data = dataOfEvents(stream).filter((text) => isJsonObject(parseJson(text)));
  const ofType = (type: string) => data.filter((text) => objectOf(parseJson(text))["type"] === type);
  const end = ["completed", "incomplete", "done"].flatMap((word) => ofType(`response.${word}`)).at(-1) ?? "{}";
  return {
    items: ofType("response.output_item.done").map((text) => memberSlices(text).get("item") ?? ""),
    last: memberSlices(end).get("response") ?? "{}",
  };
}

const typeOf = (item: string) => textOf(objectOf(parseJson(item))["type"]);

/** Reasoning without what only the answer has: where it stands with its maker. */
function reasoningHash(item: string): string {
  const members = memberSlices(item);
  for (const name of ["id", "status"]) members.delete(name);
  for (const [name, source] of members) if (source === "null") members.delete(name);
  return createHash("sha256")
    .update(JSON.stringify([...members]))
    .digest("hex");
}

function checkAnswer(exchange: Exchange, answer: ReadAnswer, findings: Findings): void {
  const { tags } = exchange;
  const { blocks, events } = answer;
  const { items, last } = wireItems(exchange);
  const calls = blocks.filter((block) => block.type === "tool_use");
  const reasoning = blocks.filter((block) => block.type === "reasoning");
  const unknown = blocks.filter((block) => block.type === "unknown");
  const texts = blocks.filter((block) => block.type === "text");
  const custom = unknown.filter(({ unknownType }) => unknownType === "custom_tool_call");
  findings.claim(tags, "tool_call", calls.length + custom.length > 0, "call");
  findings.claim(tags, "parallel_tool_calls", calls.length > 1, "second call");
  const broken = calls.filter(({ input }) => input !== "" && parseJson(input) === undefined);
  findings.claim(tags, "tool_args_invalid_json", broken.length > 0, "call with arguments that do not parse");
  findings.claim(tags, "reasoning_item", reasoning.length > 0, "reasoning");
  findings.claim(tags, "several_reasoning_items", reasoning.length > 1, "second item of reasoning");
  const isEncrypted = reasoning.some((block) => block.encrypted !== undefined);
  findings.claim(tags, ["encrypted_reasoning", "encrypted_reasoning_placeholder"], isEncrypted, "encrypted reasoning");
  const summaries = Math.max(0, ...reasoning.map((block) => block.summary.length));
  findings.claim(tags, "reasoning_summary", summaries > 0, "summary");
  findings.claim(tags, "several_summaries", summaries > 1, "second summary");
  const inTheOpen = reasoning.some((block) => block.content !== "");
  findings.claim(tags, "reasoning_text", inTheOpen, "reasoning in the open");
  findings.claim(tags, ["text", "refusal"], texts.length > 0, "text");
  const phase = texts.some((block) => block.phase !== undefined);
  if (texts.length > 0) findings.claim(tags, "phase", phase, "phase");
  for (const { unknownType } of unknown) {
    const known = [`server_tool:${unknownType}`, `item:${unknownType}`, unknownType];
    findings.claim(tags, known, true, unknownType);
  }

  const incomplete = textOf(objectOf(objectOf(parseJson(last))["incomplete_details"])["reason"]);
  const isIncomplete = objectOf(parseJson(last))["status"] === "incomplete";
  checkFinish(exchange, events, findings, {
    tag: incomplete === "" ? "status" : "incomplete",
    reasonOf: () =>
      isIncomplete
        ? incomplete === "content_filter"
          ? "content_filter"
          : "length"
        : tags.has("refusal")
          ? "content_filter"
          : calls.length > 0
            ? "tool_calls"
            : "stop",
  });
  const usage = checkUsage(exchange, events, findings);
  findings.same(usage !== undefined, isJsonObject(objectOf(parseJson(last))["usage"]), "there is usage");
  const told = objectOf(objectOf(parseJson(last))["usage"]);
  findings.same(usage?.inputTokens, told["input_tokens"], "tokens read");
  findings.holds(
    (usage?.outputTokens ?? 0) >= Number(told["output_tokens"] ?? 0),
    "fewer tokens were written than told",
  );
  findings.claim(tags, "cache_write", (usage?.cacheCreationTokens ?? 0) > 0, "token written to the cache");
  findings.claim(tags, "usage_cost", usage?.costNanoUsd !== undefined, "cost");

  checkItems(blocks, items, findings);
  if (exchange.stream !== undefined) checkEnd(exchange, blocks, last, findings);
  checkGoesBack(answer, items, findings);
}

/** Every item is read, in its order, and its text and arguments to the last. */
function checkItems(blocks: readonly ContentBlock[], items: readonly string[], findings: Findings): void {
  // Where no item was closed there is only what was streamed.
  if (items.length === 0) return;
  const wire = items
    .map((item) => objectOf(parseJson(item)))
    .filter((item) => item["type"] !== "message" || wordsOf(item) !== "");
  findings.same(
    blocks.map((block) =>
      block.type === "text"
        ? ["message", block.text]
        : block.type === "tool_use"
          ? ["function_call", block.name, block.input]
          : [block.type === "unknown" ? block.unknownType : block.type],
    ),
    wire.map((item) => {
      if (item["type"] === "message") return ["message", wordsOf(item)];
      if (item["type"] === "function_call") return ["function_call", item["name"], textOf(item["arguments"])];
      return [item["type"]];
    }),
    "items",
  );
}

function wordsOf(item: JsonObject): string {
  const parts = arrayOf(item["content"]).map(objectOf);
  return parts.map((part) => textOf(part["text"]) || textOf(part["refusal"])).join("");
}

/** A stream reads the same from the response it ends with. */
function checkEnd(exchange: Exchange, blocks: readonly ContentBlock[], last: string, findings: Findings): void {
  if (arrayOf(objectOf(parseJson(last))["output"]).length === 0) return;
  let whole: ContentBlock[] = [];
  findings.attempt("the response at the end of the stream", () => {
    whole = blocksOf(openaiResponses.decodeWhole(last, plainContext()), {
      provider: "test",
      model: "m-1",
      dialect: exchange.api,
    });
  });
  // Azure encrypts the same reasoning anew for the end; the form of the finished item is the one to send.
  const alike = (some: readonly ContentBlock[]) =>
    plainBlocks(
      some.map((block) => (block.type === "reasoning" && block.encrypted ? { ...block, encrypted: "x" } : block)),
    );
  findings.same(alike(blocks), alike(whole), "the stream, beside the response it ends with");
}

/** Reasoning goes back member by member, and items without a name here byte for byte. */
function checkGoesBack({ sentTexts }: ReadAnswer, items: readonly string[], findings: Findings): void {
  const named = ["message", "function_call", "function_call_output", "reasoning"];
  const isUnnamed = (item: string) => !named.includes(typeOf(item));
  const readable = items.filter((item) => {
    if (typeOf(item) !== "reasoning") return false;
    const { encrypted_content, content } = objectOf(parseJson(item));
    const inTheOpen = arrayOf(content).some((part) => textOf(objectOf(part)["text"]) !== "");
    return textOf(encrypted_content) !== "" || inTheOpen;
  });
  for (const store of [false, true]) {
    const sent = sentTexts(store);
    const reasoning = sent.filter((item) => typeOf(item) === "reasoning");
    if (store) {
      for (const item of reasoning) {
        const id = memberSlices(item).get("id");
        const isSame = items.some(
          (one) => memberSlices(one).get("id") === id && reasoningHash(one) === reasoningHash(item),
        );
        findings.holds(isSame, `stored reasoning ${id ?? "without an id"} goes back changed`);
      }
    } else {
      findings.same(reasoning.map(reasoningHash), readable.map(reasoningHash), "reasoning that goes back");
      findings.same(sent.filter(isUnnamed), items.filter(isUnnamed), "items without a name here that go back");
    }
  }
}

/** How clients change an answer before they send it back, the mildest first. */
const changes = [
  "none",
  "reasoning left out",
  "call ids of its own",
  "arguments written anew",
  "sources left out",
] as const;
type Change = (typeof changes)[number];

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

/** The answer as a stream that has each item whole. */
function streamOfWhole(body: JsonObject): string {
  const status = textOf(body["status"]) || "completed";
  const events: JsonObject[] = [
    { type: "response.created", response: { ...body, status: "in_progress", output: [] } },
    ...arrayOf(body["output"]).map((item, output_index) => ({ type: "response.output_item.done", output_index, item })),
    { type: `response.${status}`, response: { ...body, output: [] } },
  ];
  return events.map((event) => `event: ${textOf(event["type"])}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}
