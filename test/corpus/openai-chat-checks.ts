import { isDeepStrictEqual } from "node:util";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { callsOf, textIn } from "../dialect/answer-reading.ts";
import type { AnswerChecks, ReadAnswer } from "./check-exchange.ts";
import { checkFinish, checkUsage } from "./common-checks.ts";
import { dataOfEvents, type Exchange } from "./exchange.ts";
import type { Findings } from "./findings.ts";

export const openaiChatChecks: AnswerChecks = {
  answer: checkAnswer,
  assistantTurn: (body) => partsOfMessage(objectOf(arrayOf(body["messages"])[1])),
  sentTurns: (request) =>
    arrayOf(request["messages"])
      .map(objectOf)
      .filter(({ role }) => role === "assistant")
      .map(partsOfMessage),
  whyDifferent(ours, theirs) {
    for (const [why, change] of Object.entries(changes)) {
      const changed = ours.map(objectOf).flatMap(change);
      if (theirs.some((turn) => isDeepStrictEqual(turn.map(objectOf).flatMap(change), changed))) {
        return why === "" ? undefined : why;
      }
    }
    return "";
  },
  streamOf: streamOfWhole,
};

/** The chunks of an answer, or its one body. */
function chunksOf({ stream, whole }: Exchange): JsonObject[] {
  if (stream === undefined) return [objectOf(parseJson(whole))];
  return dataOfEvents(stream)
    .map((data) => parseJson(data))
    .filter(isJsonObject);
}

interface PlainCall {
  readonly key: string;
  name: string;
  argumentsText: string;
}

/** What the first choice says, put together by the plainest of readers. */
function contentOf(exchange: Exchange) {
  const choices = chunksOf(exchange).flatMap((chunk) => arrayOf(chunk["choices"]).filter(isJsonObject));
  const first = choices[0]?.["index"] ?? 0;
  const ofFirst = choices.filter((choice) => (choice["index"] ?? 0) === first);
  const deltas = ofFirst.map((choice) => choice["delta"]).filter(isJsonObject);
  const says = (delta: JsonObject) => Object.entries(delta).some(([name, value]) => name !== "role" && value);
  const messages = ofFirst.map((choice) => choice["message"]).filter(isJsonObject);
  let text = "";
  const thinking = new Map<string, string>();
  const calls: PlainCall[] = [];
  const callIds = new Set<string>();
  let callDeltas = 0;
  const think = (field: string, more: string) => thinking.set(field, (thinking.get(field) ?? "") + more);
  for (const delta of deltas.some(says) ? deltas : messages) {
    const { content } = delta;
    text += typeof content === "string" ? content : isJsonObject(content) ? JSON.stringify(content) : "";
    for (const part of arrayOf(content)) {
      if (typeof part === "string") text += part;
      const { type, text: words, thinking: thought } = objectOf(part);
      if (type === "text" || type === "output_text") text += textOf(words);
      if (type === "thinking") {
        think("content", textOf(thought));
        for (const piece of arrayOf(thought)) think("content", textOf(objectOf(piece)["text"]));
      }
    }
    text += textOf(objectOf(delta["audio"])["transcript"]) + textOf(delta["refusal"]);
    for (const field of ["reasoning_content", "reasoning", "reasoning_text"]) think(field, textOf(delta[field]));
    for (const detail of arrayOf(delta["reasoning_details"]).map(objectOf)) {
      think("reasoning_details", textOf(detail["text"]) || textOf(detail["summary"]));
    }
    const legacy = delta["function_call"];
    const wireCalls = [...arrayOf(delta["tool_calls"]), ...(isJsonObject(legacy) ? [{ function: legacy }] : [])];
    for (const [place, call] of wireCalls.map(objectOf).entries()) {
      const called = objectOf(call["function"]);
      const given = called["arguments"];
      const key = String(call["index"] ?? (deltas.length > 0 ? 0 : place));
      callDeltas += 1;
      if (textOf(call["id"]) !== "") callIds.add(`${key} ${textOf(call["id"])}`);
      const known = calls.find((other) => other.key === key);
      const one = known ?? { key, name: "", argumentsText: "" };
      if (known === undefined) calls.push(one);
      one.name ||= textOf(called["name"]);
      one.argumentsText += isJsonObject(given) ? JSON.stringify(given) : textOf(given);
    }
  }
  // Where ids and places don't go together there is no plain way to tell calls apart.
  const plainCalls = callDeltas === 0 || (callIds.size === calls.length && calls.every(({ name }) => name !== ""));
  return { text, thinking, calls: plainCalls ? calls : undefined };
}

function checkAnswer(exchange: Exchange, { events }: ReadAnswer, findings: Findings): void {
  const { tags } = exchange;
  const content = contentOf(exchange);
  const calls = callsOf(events);
  findings.same(textIn(events, "text-delta"), content.text.toWellFormed(), "text");
  const thought = textIn(events, "thinking-delta");
  const thoughts = [...content.thinking.values()].filter((text) => text !== "");
  findings.holds(
    thoughts.length === 0 ? thought === "" : thoughts.includes(thought),
    `the thinking is none of what ${[...content.thinking.keys()].join(", ")} add up to`,
  );
  if (content.calls !== undefined) {
    findings.same(
      calls.map(({ name, argumentsText }) => [name, argumentsText]),
      content.calls.map(({ name, argumentsText }) => [name, argumentsText]),
      "calls",
    );
  }

  if (tags.has("finish:function_call")) findings.holds(calls.length > 0, "no call was read");
  else findings.claim(tags, "tool_call", calls.length > 0, "call");
  findings.claim(tags, "parallel_tool_calls", calls.length > 1, "second call");
  const broken = calls.filter(({ argumentsText }) => argumentsText !== "" && parseJson(argumentsText) === undefined);
  findings.claim(tags, "tool_args_invalid_json", broken.length > 0, "call with arguments that do not parse");
  findings.claim(tags, ["text", "refusal", "audio_output"], textIn(events, "text-delta") !== "", "text");
  const thinkingTags = ["reasoning_content", "reasoning_field", "thinking_content_parts"];
  if (!tags.has("reasoning_details")) findings.claim(tags, thinkingTags, thought !== "", "thinking");
  else if (thinkingTags.some((tag) => tags.has(tag))) findings.holds(thought !== "", "no thinking was read");

  checkFinish(exchange, events, findings, {
    tag: "finish",
    reasonOf: (word) =>
      lengthWords.has(word)
        ? "length"
        : filterWords.has(word.split(":")[0] ?? "")
          ? "content_filter"
          : calls.length > 0
            ? "tool_calls"
            : "stop",
  });
  const word = events.find((event) => event.type === "finish")?.rawFinishReason ?? "";
  findings.holds(!faultWords.has(word), `${word} was read as a good end`);
  const usage = checkUsage(exchange, events, findings);
  if (!tags.has("no_usage")) {
    findings.holds(usage?.inputTokens !== undefined && usage.outputTokens !== undefined, "no usage was read");
    const { prompt, completion } = lastCounts(exchange);
    findings.same(usage?.inputTokens, prompt, "tokens read");
    findings.holds((usage?.outputTokens ?? 0) >= completion, `fewer tokens were written than the ${completion} told`);
  }
  findings.claim(tags, "usage_cost", usage?.costNanoUsd !== undefined, "cost");
}

/** The last counts an answer tells, wherever it does. */
function lastCounts(exchange: Exchange): { prompt: unknown; completion: number } {
  const reports = chunksOf(exchange)
    .flatMap((chunk) => [
      objectOf(arrayOf(chunk["choices"])[0])["usage"],
      objectOf(chunk["x_groq"])["usage"],
      chunk["usage"],
    ])
    .filter((report) => typeof objectOf(report)["prompt_tokens"] === "number");
  const { prompt_tokens: prompt, completion_tokens: completion } = objectOf(reports.at(-1));
  return { prompt, completion: Number(completion ?? 0) };
}

/**
 * Words at the end of answers from the references of OpenAI, DeepSeek (api-docs.deepseek.com), Mistral, Z.ai
 * (docs.z.ai/api-reference) and Gemini, whose own words come through its compatible endpoint
 * (github.com/HKUDS/Vibe-Trading/pull/308).
 */
const lengthWords: ReadonlySet<string> = new Set([
  "length",
  "max_tokens",
  "model_length",
  "max_output_tokens",
  "model_context_window_exceeded",
  "MAX_TOKENS",
]);
const filterWords: ReadonlySet<string> = new Set([
  "content_filter",
  "sensitive",
  "SAFETY",
  "RECITATION",
  "BLOCKLIST",
  "PROHIBITED_CONTENT",
  "SPII",
]);
/** The answer was not finished, and nobody wanted that. */
const faultWords: ReadonlySet<string> = new Set(["error", "insufficient_system_resource", "network_error"]);

/** An assistant message in what of it matters: its text and its calls. */
function partsOfMessage(message: JsonObject): JsonObject[] {
  const { content, tool_calls: calls } = message;
  const text =
    typeof content === "string"
      ? content
      : arrayOf(content)
          .map((part) => textOf(objectOf(part)["text"]))
          .join("");
  return [
    ...(text === "" ? [] : [{ type: "text", text }]),
    ...arrayOf(calls)
      .map(objectOf)
      .map((call) => {
        const called = objectOf(call["function"]);
        const argumentsText = textOf(called["arguments"]) || "{}";
        return { type: "call", id: call["id"], name: called["name"], input: parseJson(argumentsText) ?? argumentsText };
      }),
  ];
}

/** How clients change an answer before they send it back; applied to both sides, the mildest first. */
const changes: Readonly<Record<string, (part: JsonObject) => JsonObject[]>> = {
  "": (part) => [part],
  "that client changes white space around the text": (part) => {
    const text = textOf(part["text"]).trim();
    return part["type"] !== "text" ? [part] : text === "" ? [] : [{ type: "text", text }];
  },
  "that client loses the text, or puts thinking into it": (part) => (part["type"] === "text" ? [] : [part]),
  "that client gives the calls ids of its own": ({ id: _, ...part }) => (part["type"] === "text" ? [] : [part]),
};

/** The answer as a stream of one chunk for each thing it says. */
function streamOfWhole(body: JsonObject): string {
  const { choices, usage, ...head } = body;
  const chunks: JsonObject[] = [];
  for (const choice of arrayOf(choices).filter(isJsonObject)) {
    const { message, finish_reason: word, ...rest } = choice;
    const { tool_calls: calls, ...said } = objectOf(message);
    chunks.push({ ...head, choices: [{ ...rest, delta: said, finish_reason: null }] });
    for (const [index, call] of arrayOf(calls).map(objectOf).entries()) {
      chunks.push({
        ...head,
        choices: [{ ...rest, delta: { tool_calls: [{ index, ...call }] }, finish_reason: null }],
      });
    }
    chunks.push({ ...head, choices: [{ ...rest, delta: {}, finish_reason: word }] });
  }
  chunks.push({ ...head, choices: [], usage });
  return `${chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("")}data: [DONE]\n\n`;
}
