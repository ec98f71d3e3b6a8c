import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { GenerateRequestSchema } from "../gen/codeagent/v1/code_agent_pb.ts";
import type { LogEvent, LogRecord } from "../src/chat/log-event.ts";
import { turnRequestFromProto, turnRequestToProto } from "../src/convert/proto/request.ts";
import { chatCompletionsApi } from "../src/rest/chat-completions.ts";
import { messagesApi } from "../src/rest/messages.ts";
import { responsesApi } from "../src/rest/responses.ts";
import type { RestApi } from "../src/rest/rest-api.ts";
import { type BenchOptions, interleaved, type Measured, type Sample } from "./harness.ts";

const messageCount = 100;
const deltaCount = 2_000;
const question =
  "Why does the report show 20 of 23 orders? Name the file and the line, and say how to mend it. ".repeat(4);
const answer = "The report stops at a page boundary: `src/report.ts` line 41 reads one page only. ".repeat(5);

/**
 * What it costs to read a conversation of each vendor's format, for a message, and to tell an answer in it, for a chunk, beside
 * `JSON.parse` of the same payload: of the request's body, and of the stream's data.
 */
export async function measureConversions({ quick }: BenchOptions): Promise<Measured[]> {
  const [rounds, warmUps, times] = quick ? [1, 1, 2] : [9, 3, 200];
  const measured: Measured[] = [];
  for (const [name, api, body] of formats()) {
    const text = JSON.stringify(body);
    const read = {
      "JSON.parse of the request": async () => timed("ns/message", times, messageCount, () => JSON.parse(text)),
      "reading it": async () => timed("ns/message", times, messageCount, () => api.read(body, {})),
    };
    measured.push(...(await interleaved(`${name}, ${messageCount} messages`, read, rounds, warmUps)));
    const frames = told(api, body);
    const tell = {
      "JSON.parse of the chunks": async () =>
        timed("ns/chunk", Math.ceil(times / 10), frames.length, () => {
          for (const data of frames) JSON.parse(data);
        }),
      "telling them (JSON.stringify included)": async () =>
        timed("ns/chunk", Math.ceil(times / 10), frames.length, () => told(api, body)),
    };
    measured.push(...(await interleaved(`${name}, ${frames.length} chunks`, tell, rounds, warmUps)));
  }
  return [...measured, ...(await protoMessages(rounds, warmUps, times))];
}

/** The contract's own form: the same conversation as protobuf. */
async function protoMessages(rounds: number, warmUps: number, times: number): Promise<Measured[]> {
  const { request } = chatCompletionsApi.read(chatBody(), {});
  const bytes = toBinary(GenerateRequestSchema, turnRequestToProto(request));
  const message = fromBinary(GenerateRequestSchema, bytes);
  const text = JSON.stringify(chatBody());
  const peers = {
    "JSON.parse of OpenAI's request": async () => timed("ns/message", times, messageCount, () => JSON.parse(text)),
    "decoding protobuf": async () =>
      timed("ns/message", times, messageCount, () => fromBinary(GenerateRequestSchema, bytes)),
    "reading the decoded message": async () =>
      timed("ns/message", times, messageCount, () => turnRequestFromProto(message)),
    "writing a message": async () => timed("ns/message", times, messageCount, () => turnRequestToProto(request)),
  };
  return interleaved(`codeagent.v1, ${messageCount} messages`, peers, rounds, warmUps);
}

function formats(): [name: string, api: RestApi, body: unknown][] {
  const turns = Array.from({ length: messageCount / 2 }, (_, index) => index);
  const input = turns.flatMap(() => [
    { role: "user", content: [{ type: "input_text", text: question }] },
    { type: "message", role: "assistant", content: [{ type: "output_text", text: answer, annotations: [] }] },
  ]);
  const messages = turns.flatMap(() => [
    { role: "user", content: [{ type: "text", text: question }] },
    { role: "assistant", content: [{ type: "text", text: answer }] },
  ]);
  const last = { role: "user", content: "Go on." };
  return [
    ["chat completions", chatCompletionsApi, chatBody()],
    ["responses", responsesApi, { model: "m", input: [...input, last], stream: true }],
    ["messages", messagesApi, { model: "m", max_tokens: 100, messages: [...messages, last], stream: true }],
  ];
}

function chatBody() {
  const messages = Array.from({ length: messageCount }, (_, index) =>
    index % 2 === 0
      ? { role: "user", content: [{ type: "text", text: question }] }
      : { role: "assistant", content: answer },
  );
  return { model: "m", messages: [...messages, { role: "user", content: "Go on." }], stream: true };
}

/** A turn of one answer, as the session's log has it. */
const records: readonly LogRecord[] = answerEvents().map((event, index) => ({
  seq: index + 1,
  turnId: "turn_1",
  timeMs: 1_700_000_000_000 + index,
  event,
}));

function answerEvents(): LogEvent[] {
  const piece = "a word of some length ";
  const deltas = Array.from({ length: deltaCount }, (): LogEvent => {
    return { type: "block-delta", index: 0, delta: { type: "text", text: piece } };
  });
  const asked = { requestId: "", principal: "bench", messages: [], options: {}, tools: [] };
  return [
    { type: "turn-started", model: "scripted/m", ...asked },
    { type: "step-started", step: 1, attempt: 1, model: "m", provider: "scripted" },
    { type: "block-start", index: 0, blockType: "text" },
    ...deltas,
    { type: "block-stop", index: 0, block: { type: "text", text: piece.repeat(deltaCount) } },
    { type: "step-finished", step: 1, attempt: 1, finishReason: "stop", rawFinishReason: "stop" },
    { type: "turn-finished", finishReason: "stop", steps: 1 },
  ];
}

/** The data of the frames that a turn makes. */
function told(api: RestApi, body: unknown): string[] {
  const facts = { sessionId: "ses_1", turnId: "turn_1", createdMs: 1_700_000_000_000, isKept: false };
  const { push } = api.read(body, {}).answer(facts);
  return records.flatMap((record) => push(record).map(({ data }) => data)).filter((data) => data !== "[DONE]");
}

function timed<Unit extends string>(unit: Unit, times: number, each: number, run: () => unknown): Sample {
  const start = performance.now();
  for (let time = 0; time < times; time++) run();
  return { [unit]: ((performance.now() - start) * 1e6) / (times * each) };
}
