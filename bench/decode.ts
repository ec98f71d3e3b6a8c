import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { type DialectId, dialects } from "../src/dialect/dialect.ts";
import { defaultQuirks } from "../src/dialect/quirks.ts";
import { readSse } from "../src/stream/sse.ts";
import { type BenchOptions, interleaved, type Measured, type Sample } from "./harness.ts";

/** A streamed answer in memory. */
interface RecordedStream {
  readonly dialect: DialectId;
  readonly pieces: readonly Uint8Array[];
  readonly bytes: number;
  /** Server-sent events with JSON in them. */
  readonly events: number;
  /** Characters of text, thinking and arguments in them. */
  readonly characters: number;
}

/** Reads an answer to its end; returns how many events, or characters, it saw. */
type ReadAnswer = (answer: RecordedStream) => Promise<number>;

/**
 * Reading streamed answers out of memory, beside the least that can be done with their bytes and beside the vendors' own
 * clients. All read the body of the same kind of `Response`. The clients hand on each event as it came; the service's
 * readers also make them into events of one form, and check that the answer is whole.
 */
export async function measureDecode({ quick }: BenchOptions): Promise<Measured[]> {
  const measured: Measured[] = [];
  for (const dialect of ["openai-chat", "openai-responses", "anthropic-messages"] as const) {
    for (const [events, pieceBytes] of [
      [2_000, 16_384],
      [20_000, 16_384],
      [2_000, 0],
    ] as const) {
      const answer = recordedStream(dialect, events, pieceBytes);
      const times = quick ? 1 : Math.ceil(20_000 / events);
      const run = (read: ReadAnswer, expected: number) => () => timed(answer, read, expected, times);
      const peers = {
        "lines and JSON.parse alone": run(parseOnly, answer.events),
        codeagent: run(readWithDialect, answer.characters),
        [dialect === "anthropic-messages" ? "@anthropic-ai/sdk" : "openai"]: run(clientOf(dialect), answer.events),
      };
      const size = pieceBytes === 0 ? "a read each" : "16 KB reads";
      const what = `${dialect}, ${events.toLocaleString("en")} events, ${size}`;
      measured.push(...(await interleaved(what, peers, quick ? 1 : 9, quick ? 1 : 3)));
    }
  }
  return measured;
}

async function timed(answer: RecordedStream, read: ReadAnswer, expected: number, times: number): Promise<Sample> {
  const start = performance.now();
  for (let time = 0; time < times; time++) {
    const seen = await read(answer);
    if (seen !== expected) throw new Error(`${answer.dialect}: ${seen} came of ${expected}`);
  }
  const tookMs = performance.now() - start;
  return {
    "events/s": (answer.events * times * 1000) / tookMs,
    "MB/s": (answer.bytes * times) / 1000 / tookMs,
  };
}

function responseOf({ pieces }: RecordedStream): Response {
  let next = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const piece = pieces[next++];
      if (piece === undefined) controller.close();
      else controller.enqueue(piece);
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

function bodyOf(answer: RecordedStream): AsyncIterable<Uint8Array> {
  const { body } = responseOf(answer);
  if (body === null) throw new Error("a response without a body");
  return body;
}

async function parseOnly(answer: RecordedStream): Promise<number> {
  const decoder = new TextDecoder();
  let events = 0;
  let rest = "";
  for await (const piece of bodyOf(answer)) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue;
      JSON.parse(line.slice("data: ".length));
      events++;
    }
  }
  return events;
}

async function readWithDialect(answer: RecordedStream): Promise<number> {
  let made = 0;
  const context = {
    provider: "bench",
    model: "m-1",
    quirks: defaultQuirks,
    createToolCallId: () => `made-${++made}`,
  };
  let characters = 0;
  for await (const events of dialects[answer.dialect].decodeStream(readSse(bodyOf(answer)), context)) {
    for (const event of events) {
      switch (event.type) {
        case "text-delta":
        case "thinking-delta":
        case "reasoning-delta":
          characters += event.text.length;
          break;
        case "tool-call-delta":
          characters += event.argumentsText.length;
          break;
        default:
      }
    }
  }
  return characters;
}

/** The vendor's client, which takes its answer from memory. */
function clientOf(dialect: DialectId): ReadAnswer {
  let playing: RecordedStream | undefined;
  const fetch = async (): Promise<Response> => {
    if (playing === undefined) throw new Error("no answer to play");
    return responseOf(playing);
  };
  const options = { apiKey: "none", baseURL: "http://127.0.0.1:9", maxRetries: 0, fetch };
  const openStream = streamOpener(dialect, options);
  return async (answer) => {
    playing = answer;
    let events = 0;
    for await (const _ of await openStream()) events++;
    return events;
  };
}

type ClientOptions = ConstructorParameters<typeof OpenAI>[0] & ConstructorParameters<typeof Anthropic>[0];

function streamOpener(dialect: DialectId, options: ClientOptions): () => Promise<AsyncIterable<unknown>> {
  const messages = [{ role: "user", content: "Go" }] satisfies { role: "user"; content: string }[];
  switch (dialect) {
    case "openai-chat": {
      const { chat } = new OpenAI(options);
      return () => chat.completions.create({ model: "m-1", messages, stream: true });
    }
    case "openai-responses": {
      const { responses } = new OpenAI(options);
      return () => responses.create({ model: "m-1", input: "Go", stream: true });
    }
    case "anthropic-messages": {
      const client = new Anthropic(options);
      return () => client.messages.create({ model: "m-1", max_tokens: 1000, messages, stream: true });
    }
    default:
      return dialect satisfies never;
  }
}

const words = " the of a reading stream, function and (it) 42 owl\n returns → across différent modules".split(/(?= )/);
const wordAt = (place: number): string => words[(place * 7) % words.length] ?? "";
/** Deltas of arguments of one call, which write an object with a text in it. */
const deltasPerCall = 50;

/** @param pieceBytes size of the reads; 0 for one read for each event. */
function recordedStream(dialect: DialectId, count: number, pieceBytes: number): RecordedStream {
  const spoken = { thinking: texts(0.3 * count), text: texts(0.5 * count), calls: callTexts(0.2 * count) };
  const events = writers[dialect](spoken);
  const encoder = new TextEncoder();
  const each = events.map((text) => encoder.encode(text));
  const whole = Buffer.concat(each);
  const pieces: Uint8Array[] = pieceBytes === 0 ? each : [];
  for (let start = 0; pieceBytes > 0 && start < whole.length; start += pieceBytes) {
    pieces.push(new Uint8Array(whole.subarray(start, start + pieceBytes)));
  }
  const all = [...spoken.thinking, ...spoken.text, ...spoken.calls.flat()];
  return {
    dialect,
    pieces,
    bytes: whole.length,
    events: events.filter((text) => text.includes("data: {")).length,
    characters: all.join("").length,
  };
}

interface Spoken {
  readonly thinking: readonly string[];
  readonly text: readonly string[];
  /** The deltas of the arguments of each call. */
  readonly calls: readonly (readonly string[])[];
}

function texts(count: number): string[] {
  return Array.from({ length: Math.round(count) }, (_, place) => wordAt(place));
}

function callTexts(count: number): string[][] {
  return Array.from({ length: Math.ceil(count / deltasPerCall) }, () => [
    '{"text":"',
    ...texts(deltasPerCall - 2).map((word) => JSON.stringify(word).slice(1, -1)),
    '"}',
  ]);
}

/** What an answer says as the events of each dialect, the text of one each. */
const writers: Readonly<Record<DialectId, (spoken: Spoken) => string[]>> = {
  "openai-chat": chatEvents,
  "openai-responses": responsesEvents,
  "anthropic-messages": anthropicEvents,
};

function chatEvents({ thinking, text, calls }: Spoken): string[] {
  const head = { id: "chatcmpl-Abc123Def456", object: "chat.completion.chunk", created: 1_790_000_000, model: "m-1" };
  const write = (value: object) =>
    `data: ${JSON.stringify({ ...head, system_fingerprint: "fp_12ab34cd56", ...value })}\n\n`;
  const say = (delta: object, word: string | null = null) =>
    write({ choices: [{ index: 0, delta, logprobs: null, finish_reason: word }] });
  const usage = { prompt_tokens: 1000, completion_tokens: 2000, total_tokens: 3000 };
  return [
    say({ role: "assistant", content: "" }),
    ...thinking.map((reasoning_content) => say({ reasoning_content })),
    ...text.map((content) => say({ content })),
    ...calls.flatMap((deltas, index) => [
      say({
        tool_calls: [{ index, id: `call_${index}`, type: "function", function: { name: "look", arguments: "" } }],
      }),
      ...deltas.map((written) => say({ tool_calls: [{ index, function: { arguments: written } }] })),
    ]),
    say({}, "tool_calls"),
    write({ choices: [], usage }),
    "data: [DONE]\n\n",
  ];
}

function responsesEvents({ thinking, text, calls }: Spoken): string[] {
  let sequence_number = 0;
  const write = (type: string, value: object) =>
    `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequence_number++, ...value })}\n\n`;
  const delta = (type: string, place: object, words: readonly string[]) =>
    words.map((written) => write(`response.${type}.delta`, { ...place, delta: written, obfuscation: "x7Kq2" }));
  const item = (output_index: number, value: object, deltas: readonly string[]) => [
    write("response.output_item.added", { output_index, item: { ...value, status: "in_progress" } }),
    ...deltas,
  ];
  const reasoning = { id: "rs_1", type: "reasoning", summary: [{ type: "summary_text", text: thinking.join("") }] };
  const content = [{ type: "output_text", text: text.join(""), annotations: [], logprobs: [] }];
  const message = { id: "msg_1", type: "message", role: "assistant", status: "completed", content };
  const callOf = (index: number, deltas: readonly string[]) => ({
    id: `fc_${index}`,
    type: "function_call",
    call_id: `call_${index}`,
    name: "look",
    arguments: deltas.join(""),
    status: "completed",
  });
  const done = (output_index: number, value: object) =>
    write("response.output_item.done", { output_index, item: value });
  const response = { id: "resp_1", object: "response", created_at: 1_790_000_000, model: "m-1", error: null };
  const usage = { input_tokens: 1000, output_tokens: 2000, total_tokens: 3000 };
  const output = [reasoning, message, ...calls.map((deltas, index) => callOf(index, deltas))];
  const at = (item_id: string, output_index: number) => ({ item_id, output_index, content_index: 0 });
  return [
    write("response.created", { response: { ...response, status: "in_progress", output: [] } }),
    ...item(
      0,
      { ...reasoning, summary: [] },
      delta("reasoning_summary_text", { item_id: "rs_1", output_index: 0, summary_index: 0 }, thinking),
    ),
    done(0, reasoning),
    ...item(1, { ...message, content: [] }, delta("output_text", { ...at("msg_1", 1), logprobs: [] }, text)),
    done(1, message),
    ...calls.flatMap((deltas, index) => {
      const call = callOf(index, deltas);
      const written = delta("function_call_arguments", { item_id: call.id, output_index: index + 2 }, deltas);
      return [...item(index + 2, { ...call, arguments: "" }, written), done(index + 2, call)];
    }),
    write("response.completed", { response: { ...response, status: "completed", output, usage } }),
  ];
}

function anthropicEvents({ thinking, text, calls }: Spoken): string[] {
  const write = (type: string, value: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...value })}\n\n`;
  const block = (index: number, content_block: object, deltas: readonly object[]) => [
    write("content_block_start", { index, content_block }),
    ...deltas.map((delta) => write("content_block_delta", { index, delta })),
    write("content_block_stop", { index }),
  ];
  const message = { id: "msg_1", type: "message", role: "assistant", model: "m-1", content: [], stop_reason: null };
  return [
    write("message_start", { message: { ...message, usage: { input_tokens: 1000, output_tokens: 1 } } }),
    ...block(0, { type: "thinking", thinking: "", signature: "" }, [
      ...thinking.map((words) => ({ type: "thinking_delta", thinking: words })),
      { type: "signature_delta", signature: "c2lnbmF0dXJl".repeat(20) },
    ]),
    ...block(
      1,
      { type: "text", text: "" },
      text.map((words) => ({ type: "text_delta", text: words })),
    ),
    ...calls.flatMap((deltas, index) =>
      block(
        index + 2,
        { type: "tool_use", id: `toolu_${index}`, name: "look", input: {} },
        deltas.map((partial_json) => ({ type: "input_json_delta", partial_json })),
      ),
    ),
    write("message_delta", { delta: { stop_reason: "tool_use", stop_sequence: null }, usage: { output_tokens: 2000 } }),
    write("message_stop", {}),
  ];
}
