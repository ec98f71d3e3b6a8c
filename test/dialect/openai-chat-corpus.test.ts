import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { arrayOf, isJsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { faultFromText, upstreamError } from "../../src/dialect/upstream-error.ts";
import { callsOf, pieceSizes, type Reading, readStream, readWhole, textIn } from "./answer-reading.ts";

const corpus = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const folder = join(corpus, "exchanges/openai-chat");

interface Exchange {
  readonly id: string;
  readonly status: number;
  readonly tags: ReadonlySet<string>;
  readonly continues: string;
  readonly request: unknown;
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
    request: value["request"],
    ...(typeof responseSse === "string" ? { stream: responseSse } : {}),
    whole: typeof responseText === "string" ? responseText : JSON.stringify(response ?? ""),
  };
}

/** Where this reader says more than the tags do: the transcript of spoken answers, and thinking in details only. */
const transcripts = ["chat-openai-161ab1b1", "chat-openai-1fabe7c8"];
const detailsOnly = ["chat-snowflake-1fbb3896", "chat-snowflake-8ec05254"];

const errorKinds: Readonly<Record<string, string>> = {
  "chat-groq-4f5f5738": "provider_rejected",
  "chat-groq-b75f859e": "provider_rejected",
  "chat-openrouter-19ec71a1": "provider_rejected",
  "chat-openrouter-6b455f68": "provider_unavailable",
  "chat-openrouter-bd16934d": "provider_unavailable",
  "chat-openrouter-e84f6342": "provider_unavailable",
  "chat-perplexity-74022e6e": "context_length",
};
const kindOfStatus: Readonly<Record<number, string>> = {
  400: "provider_rejected",
  401: "provider_auth",
  403: "provider_auth",
  404: "provider_not_found",
  429: "rate_limited",
  500: "provider_unavailable",
};

const skip = existsSync(folder) ? false : `no recorded answers at CORPUS_DIR or ${corpus}`;

describe("recorded Chat Completions answers", { skip }, () => {
  const exchanges = skip ? [] : readdirSync(folder).map(readExchange);
  const readings = new Map<string, Reading>();
  const answers = exchanges.filter(({ status }) => status === 200);

  for (const exchange of answers) {
    test(`${exchange.id} reads as its tags say, however it is cut`, async () => {
      const { id, tags, stream } = exchange;
      const reading = stream === undefined ? readWhole(exchange.whole) : await readStream(stream, 65_536);
      readings.set(id, reading);
      for (const size of stream === undefined ? [] : pieceSizes) {
        assert.deepEqual(await readStream(stream ?? "", size), reading, `in pieces of ${size} bytes`);
      }
      const kind = reading.error instanceof AgentError ? reading.error.kind : reading.error;
      assert.equal(kind, tags.has("error") ? errorKinds[id] : undefined);
      if (tags.has("error")) return;

      const { events } = reading;
      const calls = callsOf(events);
      const legacy = tags.has("finish:function_call");
      assert.equal(calls.length > 0, tags.has("tool_call") || legacy, "there are calls");
      assert.equal(calls.length > 1, tags.has("parallel_tool_calls"), "there are several calls");
      assert.equal(new Set(calls.map((call) => call.id)).size, calls.length, "each call has an id of its own");
      const broken = calls.filter(
        ({ argumentsText }) => argumentsText !== "" && parseJson(argumentsText) === undefined,
      );
      assert.equal(broken.length > 0, tags.has("tool_args_invalid_json"), "arguments that do not parse");

      const [finish, ...more] = events.filter((event) => event.type === "finish");
      assert.ok(finish);
      assert.deepEqual(more, []);
      assert.ok(tags.has(`finish:${finish.rawFinishReason}`) || tags.has("finish_missing"), finish.rawFinishReason);
      const expected = tags.has("finish:length")
        ? "length"
        : tags.has("finish:content_filter")
          ? "content_filter"
          : calls.length > 0
            ? "tool_calls"
            : "stop";
      assert.equal(finish.finishReason, expected);

      const usage = events.findLast((event) => event.type === "usage")?.usage;
      assert.equal(usage === undefined, tags.has("no_usage"), "there is usage");
      assert.equal(usage?.inputTokens === undefined, tags.has("no_usage"));
      assert.equal(usage?.outputTokens === undefined, tags.has("no_usage"));
      assert.equal((usage?.reasoningTokens ?? 0) > 0, tags.has("reasoning_tokens"), "reasoning tokens");
      assert.equal((usage?.cacheReadTokens ?? 0) > 0, tags.has("cache_read"), "cached tokens");
      assert.equal(usage?.costNanoUsd !== undefined, tags.has("usage_cost"), "cost");

      const thinks = ["reasoning_content", "reasoning_field", "thinking_content_parts"].some((tag) => tags.has(tag));
      assert.equal(textIn(events, "thinking-delta") !== "", thinks || detailsOnly.includes(id), "thinking");
      const speaks = tags.has("text") || tags.has("refusal") || transcripts.includes(id);
      assert.equal(textIn(events, "text-delta") !== "", speaks, "text");
    });
  }

  for (const exchange of exchanges.filter(({ status }) => status !== 200)) {
    test(`${exchange.id} is told by its HTTP status ${exchange.status}`, () => {
      const fault = faultFromText(exchange.whole);
      assert.ok(fault);
      assert.notEqual(fault.message, "");
      const error = upstreamError(fault, { provider: "test", status: exchange.status });
      assert.equal(error.kind, errorKinds[exchange.id] ?? kindOfStatus[exchange.status]);
    });
  }

  const continued = exchanges.filter(({ continues }) => answers.some(({ id }) => id === continues));
  test(`the calls of ${continued.length} answers are those their clients sent back`, () => {
    let compared = 0;
    for (const { id, continues, request } of continued) {
      const sent = arrayOf(objectOf(request)["messages"])
        .flatMap((message) => arrayOf(objectOf(message)["tool_calls"]))
        .filter(isJsonObject);
      for (const call of callsOf(readings.get(continues)?.events ?? [])) {
        const same = objectOf(sent.find((other) => other["id"] === call.id)?.["function"]);
        assert.equal(same["name"], call.name, `${id} after ${continues}`);
        assert.deepEqual(parseJson(call.argumentsText || "{}"), parseJson(textOf(same["arguments"]) || "{}"), id);
        compared++;
      }
    }
    assert.equal(compared > 0, continued.length > 0);
  });
});
