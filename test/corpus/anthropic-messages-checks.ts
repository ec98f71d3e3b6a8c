import { isDeepStrictEqual } from "node:util";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { callsOf, textIn } from "../dialect/answer-reading.ts";
import type { AnswerChecks, ReadAnswer } from "./check-exchange.ts";
import { checkFinish, checkUsage } from "./common-checks.ts";
import { dataOfEvents, type Exchange } from "./exchange.ts";
import type { Findings } from "./findings.ts";

export const anthropicMessagesChecks: AnswerChecks = {
  answer: checkAnswer,
  assistantTurn: (body) => blocksOfTurn(objectOf(arrayOf(body["messages"])[1])),
  sentTurns: (request) =>
    arrayOf(request["messages"])
      .map(objectOf)
      .filter(({ role }) => role === "assistant")
      .map(blocksOfTurn),
  whyDifferent(ours, theirs) {
    const isSent = (turn: readonly unknown[]) => theirs.some((other) => isDeepStrictEqual(other, turn));
    if (isSent(ours)) return undefined;
    const turn = ours.filter(isJsonObject);
    for (const [why, made] of Object.entries(changes)) if (isSent(made(turn))) return why;
    return "";
  },
  streamOf: streamOfWhole,
};

/** The content of an answer, put together by the plainest of readers. */
export function contentOf({ stream, whole }: Exchange): JsonObject[] {
  if (stream === undefined) return arrayOf(objectOf(parseJson(whole))["content"]).filter(isJsonObject);
  const blocks: { block: Record<string, unknown>; input: string }[] = [];
  for (const data of dataOfEvents(stream)) {
    const event = objectOf(parseJson(data));
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

/** What an answer tells of its tokens, the latest last. */
function reportsOf({ stream, whole }: Exchange): JsonObject[] {
  return (stream === undefined ? [whole] : dataOfEvents(stream))
    .map((text) => objectOf(parseJson(text)))
    .flatMap((event) => [objectOf(event["message"])["usage"], event["usage"]])
    .filter(isJsonObject);
}

const isEmptyText = (block: JsonObject) => block["type"] === "text" && block["text"] === "";
/** Thinking that nobody signed cannot go back. */
const isUnsigned = (block: JsonObject) => block["type"] === "thinking" && textOf(block["signature"]) === "";
const callInput = (block: JsonObject) => (block["input"] === "" || block["input"] === undefined ? {} : block["input"]);

/** A block without what says nothing when it goes back. */
function plain(block: JsonObject): JsonObject {
  const { cache_control: _, citations, caller, ...rest } = block;
  const isDirect = block["type"] === "tool_use" && objectOf(caller)["type"] === "direct";
  return {
    ...rest,
    ...("input" in block || block["type"] === "tool_use" ? { input: callInput(block) } : {}),
    ...(arrayOf(citations).length === 0 ? {} : { citations }),
    ...(isDirect || caller === undefined || caller === null ? {} : { caller }),
  };
}

function blocksOfTurn({ content }: JsonObject): JsonObject[] {
  const blocks =
    typeof content === "string" ? [{ type: "text", text: content }] : arrayOf(content).filter(isJsonObject);
  return blocks.filter((block) => !isEmptyText(block)).map(plain);
}

function checkAnswer(exchange: Exchange, { events, sent }: ReadAnswer, findings: Findings): void {
  const { tags } = exchange;
  const content = contentOf(exchange);
  const ofType = (type: string) => content.filter((block) => block["type"] === type);
  const words = (type: string, field: string) => ofType(type).map((block) => textOf(block[field]));

  const calls = callsOf(events);
  findings.same(
    calls.map(({ name, argumentsText }) => [name, parseJson(argumentsText || "{}")]),
    ofType("tool_use").map((block) => [block["name"], isJsonObject(callInput(block)) ? callInput(block) : undefined]),
    "calls",
  );
  const ids = words("tool_use", "id");
  if (new Set(ids).size === ids.length && !ids.includes("")) {
    findings.same(
      calls.map(({ id }) => id),
      ids,
      "ids of the calls",
    );
  }
  findings.same(textIn(events, "text-delta"), words("text", "text").join(""), "text");
  findings.same(textIn(events, "thinking-delta"), words("thinking", "thinking").join(""), "thinking");
  const signatures = events.flatMap((event) => (event.type === "signature-delta" ? [event.signature] : []));
  const signed = words("thinking", "signature").filter((signature) => signature !== "");
  findings.same(signatures, signed, "signatures");
  const kept = events.flatMap((event) => (event.type === "block" ? [event.block] : []));
  const redacted = kept.flatMap((block) => (block.type === "redacted_thinking" ? [block.data] : []));
  findings.same(redacted, words("redacted_thinking", "data"), "redacted thinking");
  const unknown = kept.flatMap((block) => (block.type === "unknown" ? [block.unknownType] : []));
  const known = ["text", "thinking", "redacted_thinking", "tool_use", ""];
  findings.same(
    unknown.filter((type) => !known.includes(type)),
    content.map((block) => textOf(block["type"])).filter((type) => !known.includes(type)),
    "blocks without a name here",
  );

  findings.claim(tags, "tool_call", calls.length > 0, "call");
  findings.claim(tags, "parallel_tool_calls", calls.length > 1, "second call");
  findings.claim(tags, "text", textIn(events, "text-delta") !== "", "text");
  findings.claim(tags, ["thinking", "thinking_empty"], ofType("thinking").length > 0, "thinking");
  findings.claim(tags, "several_thinking_blocks", ofType("thinking").length > 1, "second block of thinking");
  findings.claim(tags, "redacted_thinking", redacted.length > 0, "redacted thinking");
  findings.claim(tags, "compaction", unknown.includes("compaction"), "compaction");
  findings.claim(
    tags,
    "citations",
    ofType("text").some((block) => arrayOf(block["citations"]).length > 0),
    "citation",
  );
  const runsOwnTools = [...tags].filter((tag) => tag.startsWith("server_tool:"));
  const ranOwnTools = unknown.some((type) => /_tool_use$|_tool_result$/.test(type));
  findings.claim(tags, runsOwnTools.length > 0 ? runsOwnTools : "server_tool:NAME", ranOwnTools, "tool of its own");

  checkFinish(exchange, events, findings, {
    tag: "stop",
    reasonOf: (word) =>
      word === "max_tokens" || word === "model_context_window_exceeded"
        ? "length"
        : word === "refusal"
          ? "content_filter"
          : calls.length > 0
            ? "tool_calls"
            : "stop",
  });
  const usage = checkUsage(exchange, events, findings);
  findings.claim(tags, "cache_write", (usage?.cacheCreationTokens ?? 0) > 0, "token written to the cache");

  const reports = reportsOf(exchange);
  const counted = (name: string) => reports.findLast((report) => typeof report[name] === "number")?.[name] ?? 0;
  const cached = ["cache_read_input_tokens", "cache_creation_input_tokens"] as const;
  if (reports.length > 0) {
    const read = ["input_tokens", ...cached].reduce((sum, name) => sum + Number(counted(name)), 0);
    findings.same(usage?.inputTokens, read, "tokens read");
    findings.same(usage?.outputTokens, counted("output_tokens"), "tokens written");
  }

  const whatGoesBack = content.filter((block) => !isEmptyText(block) && !isUnsigned(block)).map(plain);
  const says = whatGoesBack.some(({ type }) => type !== "thinking" && type !== "redacted_thinking");
  if (says) findings.same(sent("anthropic-messages"), whatGoesBack, "what goes back");
}

const withoutType = (type: string) => (turn: readonly JsonObject[]) => turn.filter((block) => block["type"] !== type);

/** How clients change an answer before they send it back. */
const changes: Readonly<Record<string, (turn: readonly JsonObject[]) => JsonObject[]>> = {
  "that client loses thinking": withoutType("thinking"),
  "that client loses thinking and citations": (turn) =>
    withoutType("thinking")(turn).map(({ citations: _, ...block }) => block),
  "that client loses citations": (turn) => turn.map(({ citations: _, ...block }) => block),
  "that client loses the text": withoutType("text"),
  "that client loses thinking and text": (turn) => withoutType("thinking")(withoutType("text")(turn)),
  "that client puts white space before the calls": (turn) => [{ type: "text", text: " " }, ...turn],
  "the recorder hid the passwords in the calls": (turn) =>
    turn.map((block) => (block["type"] === "tool_use" ? { ...block, input: { password: "SCRUBBED" } } : block)),
};

/** The answer as a stream that has each block whole in its start. */
function streamOfWhole(body: JsonObject): string {
  const { content, stop_reason, stop_sequence, ...message } = body;
  const events: JsonObject[] = [
    { type: "message_start", message: { ...message, content: [], stop_reason: null, stop_sequence: null } },
    ...arrayOf(content).flatMap((content_block, index) => [
      { type: "content_block_start", index, content_block },
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason, stop_sequence }, usage: body["usage"] },
    { type: "message_stop" },
  ];
  return events.map((event) => `event: ${textOf(event["type"])}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}
