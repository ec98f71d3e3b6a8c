import { AgentError, type AgentErrorKind } from "../../src/chat/error.ts";
import type { ChatEvent } from "../../src/chat/event.ts";
import { type ContentBlock, type Message, toolUses } from "../../src/chat/message.ts";
import type { ToolDefinition } from "../../src/chat/request.ts";
import { decodeLogEvent, encodeLogEvent } from "../../src/convert/proto/event.ts";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { arrayOf, type JsonObject, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { elementSlices, memberSlices } from "../../src/dialect/json-slices.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { blocksOf } from "../dialect/answer-blocks.ts";
import { callsOf, pieceSizes, type Reading, readStream, readWhole, textIn } from "../dialect/answer-reading.ts";
import { plainBlocks } from "../dialect/openai-responses-reading.ts";
import { anthropicMessagesChecks } from "./anthropic-messages-checks.ts";
import { allApis, checkRequest, validRequest } from "./check-request.ts";
import { dataOfEvents, type Exchange } from "./exchange.ts";
import { createFindings, type Finding, type Findings, firstDifference } from "./findings.ts";
import { knownDifferences, knownErrorKinds } from "./known-differences.ts";
import { openaiChatChecks } from "./openai-chat-checks.ts";
import { openaiResponsesChecks } from "./openai-responses-checks.ts";
import type { Replay } from "./replay.ts";

/** An answer as the checks of its API look at it. */
export interface ReadAnswer {
  readonly events: readonly ChatEvent[];
  /** What enters the history. */
  readonly blocks: readonly ContentBlock[];
  /** What this service sends in the answer's place in the next request. */
  sent(api: DialectId): readonly unknown[];
  /** The same as JSON texts, for an API whose requests are a list of items. */
  sentTexts(store: boolean): readonly string[];
}

/** What differs from API to API. */
export interface AnswerChecks {
  /** Checks an answer that came without an error against its bytes and its tags. */
  answer(exchange: Exchange, answer: ReadAnswer, findings: Findings): void;
  /** The second of three turns in a request of this service. */
  assistantTurn(body: JsonObject): readonly unknown[];
  /** The assistant's turns in a request that a client sent. */
  sentTurns(request: JsonObject): readonly (readonly unknown[])[];
  /** Undefined where a client sent our turn; else how it changed the answer, empty where that has no name. */
  whyDifferent(
    ours: readonly unknown[],
    theirs: readonly (readonly unknown[])[],
    request: JsonObject,
  ): string | undefined;
  /** A stream that says what a whole body says. */
  streamOf(body: JsonObject): string;
}

const checksOf: Readonly<Record<DialectId, AnswerChecks>> = {
  "anthropic-messages": anthropicMessagesChecks,
  "openai-chat": openaiChatChecks,
  "openai-responses": openaiResponsesChecks,
};

export interface CheckOptions {
  /** Sizes in bytes into which streams are cut. */
  readonly sizes?: readonly number[];
  /** Finds the exchange that another one continues. */
  readonly exchangeOf: (id: string) => Exchange | undefined;
  /** Plays exchanges back to this service's own client. */
  readonly replay: Replay;
}

/** All that is wrong or different with one exchange; nothing for one that is read and sent as it should be. */
export async function checkExchange(exchange: Exchange, options: CheckOptions): Promise<readonly Finding[]> {
  const findings = createFindings();
  const isAnswer = exchange.status >= 200 && exchange.status < 300;
  if (isAnswer) {
    const reading = await readOf(exchange);
    checkEvents(reading, findings);
    checkError(exchange, reading, findings);
    if (exchange.stream !== undefined) await checkStream(exchange, exchange.stream, reading, options, findings);
    if (reading.error === undefined) await checkAnswer(exchange, reading, findings);
  } else {
    checkErrorBody(exchange, findings);
  }
  await checkThroughCall(exchange, options, findings);
  if (exchange.request !== undefined) checkRequest(exchange, findings);
  await checkContinued(exchange, options, findings);
  return findings.found();
}

/** The answer in pieces of a size that fits most, or whole. */
function readOf(exchange: Exchange): Promise<Reading> {
  const { stream, whole, api } = exchange;
  return stream === undefined ? Promise.resolve(readWhole(whole, api)) : readStream(stream, 65_536, api);
}

/** What holds of every answer: one end, calls with names and ids of their own, whole characters. */
function checkEvents({ events, error }: Reading, findings: Findings): void {
  const last = events.findLastIndex((event) => event.type !== "usage");
  const finish = events.findIndex((event) => event.type === "finish");
  if (error === undefined) findings.same(finish, last, "place of the end among the events");
  else findings.same(finish, -1, "place of the end in an answer with an error");
  const calls = callsOf(events);
  findings.same(new Set(calls.map(({ id }) => id)).size, calls.length, "ids of calls that differ");
  findings.holds(
    calls.every(({ id, name }) => id !== "" && name !== ""),
    "a call has no id or no name",
  );
  const opened = new Set<number>();
  for (const event of events) {
    if (event.type === "tool-call-start") opened.add(event.index);
    if (event.type === "tool-call-delta") findings.holds(opened.has(event.index), "arguments before their call");
  }
  const isWell = JSON.stringify(events, (_, value: unknown) =>
    typeof value === "string" && !value.isWellFormed() ? "\u0000" : value,
  );
  findings.holds(!isWell.includes('"\\u0000"'), "half of a surrogate pair was handed on");
}

/** Tags of answers under HTTP 200 that this service must not take for answers. */
const errorTags = ["error", "mid_stream_error", "response_failed", "error_in_200", "choice_error"];
const unfinishedTags = ["status:queued", "status:in_progress", "status:failed", "status:cancelled"];
/** Tags of answers that may or may not be whole. */
const doubtfulTags = ["stream_not_terminated", "damaged_in_source"];

const providerKinds: readonly AgentErrorKind[] = [
  "provider_auth",
  "provider_rejected",
  "provider_not_found",
  "rate_limited",
  "provider_unavailable",
  "provider_protocol",
  "context_length",
];

/** What an HTTP status may mean. */
function kindsOfStatus(status: number): readonly AgentErrorKind[] {
  if (status === 401 || status === 403) return ["provider_auth"];
  if (status === 404) return ["provider_not_found"];
  if (status === 429) return ["rate_limited"];
  if (status === 408 || status === 409 || status >= 500) return ["provider_unavailable"];
  return ["provider_rejected", "context_length"];
}

/** How vendors say that a request is too long; in this order Anthropic, Copilot, Moonshot, OpenAI, Qwen, xAI, Z.ai. */
const tooLong = new RegExp(
  [
    "prompt is too long|exceed context limit",
    "prompt token count of \\d+ exceeds the limit",
    "exceeded model token limit",
    "context_length_exceeded|maximum context length is \\d+",
    "range of input length should be",
    "maximum prompt length is \\d+",
    "prompt exceeds max length",
  ].join("|"),
  "i",
);

const kindsOfWord: Readonly<Record<string, readonly AgentErrorKind[]>> = {
  rate_limit_error: ["rate_limited"],
  rate_limit_exceeded: ["rate_limited"],
  insufficient_quota: ["rate_limited"],
  overloaded_error: ["provider_unavailable"],
  api_error: ["provider_unavailable"],
  server_error: ["provider_unavailable"],
  internal_server_error: ["provider_unavailable"],
  timeout_error: ["provider_unavailable"],
  authentication_error: ["provider_auth"],
  permission_error: ["provider_auth"],
  not_found_error: ["provider_not_found"],
  invalid_request_error: ["provider_rejected", "context_length"],
  context_length_exceeded: ["context_length"],
  tool_use_failed: ["provider_rejected"],
};

/** What the error inside an answer says of itself: a status as its code, or a word known from the APIs' documents. */
function kindsInside({ stream, whole }: Exchange): readonly AgentErrorKind[] {
  for (const text of stream === undefined ? [whole] : dataOfEvents(stream)) {
    const value = parseJson(text);
    const body = objectOf(Array.isArray(value) ? value[0] : value);
    const choice = objectOf(arrayOf(body["choices"])[0]);
    for (const holder of [body, objectOf(body["response"]), choice]) {
      const error = objectOf(holder["error"]);
      const { code, type } = error;
      if (typeof code === "number" && code >= 400 && code < 600) return kindsOfStatus(code);
      const kinds = kindsOfWord[textOf(code)] ?? kindsOfWord[textOf(type)];
      if (kinds !== undefined) return kinds;
    }
  }
  return providerKinds;
}

function checkError(exchange: Exchange, { error }: Reading, findings: Findings): void {
  const { id, tags } = exchange;
  const why = [...errorTags, ...unfinishedTags].find((tag) => tags.has(tag));
  if (error !== undefined && !(error instanceof AgentError)) {
    findings.fail(`threw what is no AgentError: ${String(error)}`);
    return;
  }
  if (error === undefined) {
    if (why !== undefined) findings.fail(`it has the tag ${why}, but was read as an answer`);
    return;
  }
  if (why === undefined) {
    if (!doubtfulTags.some((tag) => tags.has(tag))) findings.fail(`${error.kind}: ${error.message}`);
    return;
  }
  const known = knownErrorKinds[id];
  const kinds = known === undefined ? kindsInside(exchange) : [known];
  findings.holds(kinds.includes(error.kind), `its error is ${error.kind}, not ${kinds.join(" or ")}`);
}

function checkErrorBody(exchange: Exchange, findings: Findings): void {
  const text = exchange.stream ?? exchange.whole;
  findings.attempt("the body of the error", () => {
    const fault = dialects[exchange.api].decodeError(text);
    // A text, or an object without members, says nothing that could be read.
    const isTelling = text.length > 2 && typeof parseJson(text) === "object";
    if (fault === undefined && isTelling) {
      findings.fail(`nothing was read of the error ${text}`);
    }
    if (fault?.message === "" && fault.type === "" && fault.code === "") findings.fail(`no words were read of ${text}`);
  });
}

/** However a stream is cut and framed, it reads the same. */
async function checkStream(
  exchange: Exchange,
  stream: string,
  reading: Reading,
  { sizes = pieceSizes }: CheckOptions,
  findings: Findings,
): Promise<void> {
  const { api, pieces } = exchange;
  for (const size of [...sizes, ...(pieces.length === 0 ? [] : [pieces])]) {
    const named = typeof size === "number" ? `of ${size} bytes` : "as recorded";
    findings.same(await readStream(stream, size, api), reading, `in pieces ${named}`);
  }
  // Whether an event that no one can read was cut short is told by the blank line after it.
  for (const [how, text] of reading.error === undefined ? Object.entries(framings(api, stream)) : []) {
    findings.same(await readStream(text, 4096, api), reading, how);
  }
  await checkCuts(exchange, stream, reading, findings);
}

/** The same stream in other clothes, which an HTTP gateway or a new version of the API may put on it. */
function framings(api: DialectId, stream: string): Record<string, string> {
  const text = stream.replaceAll(/\r\n|\r/g, "\n");
  const unknownData: Readonly<Record<DialectId, string>> = {
    "anthropic-messages": `event: brand_new\ndata: {"type":"brand_new","index":0,"brand_new":{"text":"x"}}\n\n`,
    "openai-chat": `data: {"object":"brand.new","choices":[]}\n\n`,
    "openai-responses": `event: response.brand_new.delta\ndata: {"type":"response.brand_new.delta","delta":"x"}\n\n`,
  };
  return {
    "with CRLF": text.replaceAll("\n", "\r\n"),
    "with comments": text.replaceAll(/\n\n(?=.)/g, "\n\n: ping\n\n"),
    "after a byte order mark": `\uFEFF${text}`,
    "without the blank line at its end": text.trimEnd(),
    "with events nobody knows": text.replaceAll(/\n\n(?=.)/g, `\n\n${unknownData[api]}`),
    "with members nobody knows": text.replaceAll(/^data: ?\{(?=")/gm, `data: {"brand_new":{"a":[1,null,"x"]},`),
    "with ids and retry times": text.replaceAll(/^data:/gm, "id: 1\nretry: 10\ndata:"),
  };
}

/** A stream that breaks off is an error, or all was said before; what was read until then is the answer's beginning. */
async function checkCuts({ api, tags }: Exchange, stream: string, whole: Reading, findings: Findings): Promise<void> {
  const bytes = Buffer.from(stream, "utf8");
  const cuts = 8;
  for (let cut = 1; cut < cuts; cut++) {
    const length = Math.floor((bytes.length * cut) / cuts);
    // The bytes of half a character go too; text cannot hold them.
    const start = bytes
      .subarray(0, length)
      .toString("utf8")
      .replace(/\uFFFD+$/, "");
    const reading = await readStream(start, 4096, api);
    const what = `cut after ${length} of ${bytes.length} bytes`;
    if (reading.error !== undefined && !(reading.error instanceof AgentError)) {
      findings.fail(`${what} it threw what is no AgentError: ${String(reading.error)}`);
    }
    if (reading.error instanceof AgentError && whole.error === undefined) {
      findings.same(reading.error.kind, "provider_unavailable", `${what} its error`);
    }
    for (const type of ["text-delta", "thinking-delta"] as const) {
      const begins = textIn(whole.events, type).startsWith(textIn(reading.events, type));
      findings.holds(begins, `${what} the ${type}s are not the beginning of the answer's`);
    }
    if (reading.error !== undefined || whole.error !== undefined || tags.has("delta_after_finish")) continue;
    const said = ({ events }: Reading) => [textIn(events, "text-delta"), callsOf(events)];
    findings.same(said(reading), said(whole), `${what} it was taken for whole`);
  }
}

async function checkAnswer(exchange: Exchange, { events }: Reading, findings: Findings): Promise<void> {
  const { api, stream, whole } = exchange;
  const checks = checksOf[api];
  const origin = { provider: "test", model: "m-1", dialect: api };
  let blocks: ContentBlock[] = [];
  findings.attempt("its blocks", () => {
    blocks = blocksOf(events, origin);
  });
  const logged = throughLog(blocks);
  findings.same(plainBlocks(logged), plainBlocks(blocks), "its blocks after they were in the log");
  const answer: ReadAnswer = {
    events,
    blocks,
    sent: () => checks.assistantTurn(objectOf(parseJson(nextRequest(logged, api, {})))),
    sentTexts: (store) =>
      elementSlices(memberSlices(nextRequest(logged, api, { store })).get("input") ?? "").slice(1, -1),
  };
  findings.attempt("its content", () => checks.answer(exchange, answer, findings));
  const tools = toolsOf(exchange.request);
  for (const next of allApis) {
    for (const provider of next === api ? ["test", "other"] : ["other"]) {
      findings.attempt(`the next request, to ${provider === "test" ? "the same" : "another"} ${next}`, () =>
        validRequest(next, nextRequest(logged, next, { provider, tools })),
      );
    }
  }
  const body = parseJson(whole);
  if (stream === undefined) {
    const streamed = await readStream(checks.streamOf(objectOf(body)), 4096, api);
    if (streamed.error !== undefined) findings.fail(`as a stream it is an error: ${String(streamed.error)}`);
    else {
      const facts = (some: readonly ChatEvent[]) => [
        plainBlocks(blocksOf(some, origin)),
        some.findLast((event) => event.type === "usage"),
        some.find((event) => event.type === "finish"),
      ];
      findings.same(facts(streamed.events), facts(events), "as a stream");
    }
  }
}

/** What the blocks are after they were written to the log and read again. */
function throughLog(blocks: readonly ContentBlock[]): ContentBlock[] {
  return blocks.map((block, index) => {
    const { event } = decodeLogEvent(encodeLogEvent("turn-1", 1, { type: "block-stop", index, block }));
    return event.type === "block-stop" ? event.block : block;
  });
}

interface NextRequest {
  readonly store?: boolean;
  /** Who is asked; the answer came from `test`. */
  readonly provider?: string;
  readonly tools?: readonly ToolDefinition[];
}

/** The request after an answer: its calls are answered, and the user goes on. */
function nextRequest(
  blocks: readonly ContentBlock[],
  api: DialectId,
  { store = false, provider = "test", tools = [] }: NextRequest,
): string {
  const ask = (text: string): Message => ({ role: "user", blocks: [{ type: "text", text }] });
  const answer: Message = { role: "assistant", blocks };
  const results: Message[] = toolUses(answer).map(({ id }) => ({
    role: "tool",
    blocks: [{ type: "tool_result", toolUseId: id, content: "fine" }],
  }));
  const messages = validHistory([ask("Go"), answer, ...results, ask("On")]);
  const model = provider === "test" ? "m-1" : "m-2";
  return dialects[api].encode({ model, messages, tools, options: { stateful: { store } } }, defaultQuirks, provider);
}

/** The functions a client offered, in the form of any of the APIs. */
function toolsOf(request: unknown): ToolDefinition[] {
  const names = new Set<string>();
  return arrayOf(objectOf(request)["tools"]).flatMap((tool) => {
    const fields = { ...objectOf(tool), ...objectOf(objectOf(tool)["function"]) };
    const name = textOf(fields["name"]);
    const parameters = fields["parameters"] ?? fields["input_schema"];
    if (!/^[a-zA-Z0-9_-]{1,64}$/.test(name) || names.has(name) || parameters === undefined) return [];
    names.add(name);
    return [{ name, description: textOf(fields["description"]), parameters: JSON.stringify(parameters) }];
  });
}

/** The exchange as this service makes it, with its own HTTP client, over a real connection. */
async function checkThroughCall(exchange: Exchange, { replay }: CheckOptions, findings: Findings): Promise<void> {
  const { status, tags, headers } = exchange;
  const { events, error, retryAfterMs } = await replay.ask(exchange);
  if (error !== undefined && !(error instanceof AgentError)) {
    findings.fail(`the call threw what is no AgentError: ${String(error)}`);
    return;
  }
  if (status >= 200 && status < 300) {
    const alone = await readOf(exchange);
    const kind = alone.error instanceof AgentError ? alone.error.kind : undefined;
    // Of a body that is neither events nor JSON a call knows more than the reader: that it is empty, or a page.
    const isReadable = exchange.stream !== undefined || parseJson(exchange.whole) !== undefined;
    if (isReadable) findings.same(error?.kind, kind, "the error of a call");
    else findings.holds(error !== undefined, "a body that is neither events nor JSON was read as an answer");
    const facts = events.map((event) => {
      if (event.type !== "response") return event;
      const { upstreamRequestId: _, ...rest } = event;
      return rest;
    });
    if (alone.error === undefined) findings.same(facts, alone.events, "the answer of a call");
    if (exchange.stream === undefined) return;
    const marked = await replay.ask({ ...exchange, stream: `\uFEFF${exchange.stream}` });
    findings.same(marked.events, events, "the answer of a call, after a byte order mark");
    return;
  }
  if (error === undefined) {
    findings.fail(`HTTP ${status} was read as an answer`);
    return;
  }
  const isTooLong = status === 400 && tooLong.test(exchange.stream ?? exchange.whole);
  const kinds = status < 400 ? ["provider_protocol"] : isTooLong ? ["context_length"] : kindsOfStatus(status);
  findings.holds(kinds.includes(error.kind), `HTTP ${status} is ${error.kind}, not ${kinds.join(" or ")}`);
  const known = knownErrorKinds[exchange.id];
  if (known !== undefined) findings.same(error.kind, known, "the kind of its error");
  findings.same(error.detail.upstreamStatus, status, "the status in its error");
  findings.holds(
    error.message.length > 0 && error.message.length <= 2048,
    "its error has no message, or too long a one",
  );
  if (tags.has("retry_after") && headers["retry-after"] !== undefined) {
    findings.holds((retryAfterMs ?? 0) > 0, `how long to wait was not read of retry-after: ${headers["retry-after"]}`);
  }
  const requestId = headers["x-request-id"] ?? headers["request-id"];
  if (requestId !== undefined) findings.same(error.detail.upstreamRequestId, requestId, "the request id in its error");
}

/** A client that goes on sends the answer back as this service does. */
async function checkContinued(exchange: Exchange, { exchangeOf }: CheckOptions, findings: Findings): Promise<void> {
  const before = exchangeOf(exchange.continues);
  if (before === undefined || before.api !== exchange.api || exchange.request === undefined) return;
  const { events, error } = await readOf(before);
  if (error !== undefined) return;
  const checks = checksOf[exchange.api];
  const request = objectOf(exchange.request);
  const blocks = throughLog(blocksOf(events, { provider: "test", model: "m-1", dialect: exchange.api }));
  const store = request["store"] !== false;
  const ours = checks.assistantTurn(objectOf(parseJson(nextRequest(blocks, exchange.api, { store }))));
  const theirs = checks.sentTurns(request);
  const why = checks.whyDifferent(ours, theirs, request);
  const known = knownDifferences[exchange.id];
  if (why === known) return;
  if (why === undefined) findings.fail(`the known difference is gone: ${known}`);
  else if (why !== "") findings.differ(`it sends ${before.id} back otherwise: ${why}`);
  else {
    const nearest = theirs.at(-1) ?? [];
    findings.differ(`it sends ${before.id} back otherwise: ${firstDifference(ours, nearest)}`);
  }
}
