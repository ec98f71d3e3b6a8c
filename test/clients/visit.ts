import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import {
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  fromJson,
  type JsonObject,
  type JsonValue,
  type MessageShape,
  toJson,
} from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import {
  AgentErrorDetailSchema,
  CodeAgentService,
  type GenerateChunk,
  GenerateChunkSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ListToolsResponseSchema, ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { grammarCheck } from "../support/grammar.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";

/** What every client sends as `Authorization: Bearer`. */
export const token = "the-token-of-all-visitors";
export const wrongToken = "not-the-token-of-visitors";

const greeting = 'Grüezi, "世界" \\ 👋🏽';
const script = `
- when: { role: user, text: too often }
  error: { status: 429, message: slow down, type: rate_limit_error, retry_after: 120 }
- when: { role: user, text: slowly }
  text: "word after word "
  chunk: 8
  delay_ms: 5
  repeat: 40
- when: { tool: read_file, text: sample }
  thinking: That is all.
  text: I read both.
- when: { role: user, text: look }
  text: Let me look.
  tool_calls:
    - { name: list_files, arguments: { pattern: "*.md" } }
    - { name: read_file, arguments: { path: README.md } }
- text: ${JSON.stringify(greeting)}
  usage: { prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 }
`;

/** The service as all these clients find it: it asks for a token and answers from a script. */
export function startForVisitors(context: Pick<TestContext, "after">, flags: TestAppOptions["flags"] = {}) {
  return startTestApp(context, { script, flags: { token, ...flags } });
}

/** A call that was refused, in whatever words the client's library has for it. */
export class CallFailed extends Error {
  override readonly name = "CallFailed";
  readonly code: number;
  /** As in `google.protobuf.Any`, the type without an address in front. */
  readonly details: readonly { readonly type: string; readonly value: Uint8Array }[];

  constructor(code: number, message: string, details: CallFailed["details"]) {
    super(message);
    this.code = code;
    this.details = details.map(({ type, value }) => ({ type: type.replace(/^.*\//, ""), value }));
  }

  /** The one detail of a type. */
  detail<Schema extends DescMessage>(schema: Schema): MessageShape<Schema> {
    const found = this.details.filter(({ type }) => type === schema.typeName);
    const names = this.details.map(({ type }) => type).join(", ");
    assert.equal(found.length, 1, `one ${schema.typeName} among the details: ${names}`);
    return fromBinary(schema, found[0]?.value ?? new Uint8Array());
  }
}

/** A client somebody else wrote. It takes and gives the JSON form of the messages, whatever it speaks on the wire. */
export interface Visitor {
  /** @throws {CallFailed} */
  unary(method: DescMethodUnary, request: JsonObject): Promise<JsonValue>;
  /** All messages of a stream that ends by itself. @throws {CallFailed} */
  stream(method: DescMethodServerStreaming, request: JsonObject): Promise<readonly JsonValue[]>;
}

export async function callFailure(call: Promise<unknown>): Promise<CallFailed> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error instanceof CallFailed) return error;
  return assert.fail(`the call should be refused, but: ${error instanceof Error ? error.stack : "it was not"}`);
}

export function user(content: string): JsonObject {
  return { role: "user", content };
}

function chunksFrom(messages: readonly JsonValue[]): GenerateChunk[] {
  return messages.map((message) => fromJson(GenerateChunkSchema, message));
}

/** Reads the messages of a stream of whole turns and holds them against the grammar. */
export function turnsFrom(messages: readonly JsonValue[]): GenerateChunk[] {
  const check = grammarCheck();
  const chunks = chunksFrom(messages);
  for (const chunk of chunks) check.add(chunk);
  check.end();
  return chunks;
}

function withSeq(chunks: readonly GenerateChunk[]): JsonValue[] {
  return chunks.filter(({ seq }) => seq > 0n).map((chunk) => toJson(GenerateChunkSchema, chunk));
}

/** The scalar at a path of a JSON answer. */
export function at(value: JsonValue | undefined, ...path: readonly (string | number)[]): JsonValue | undefined {
  let here: JsonValue | undefined = value;
  for (const step of path) {
    if (typeof here !== "object" || here === null) return undefined;
    here = Array.isArray(here) ? (typeof step === "number" ? here[step] : undefined) : here[step];
  }
  return here;
}

const { createSession, generate, streamGenerate, subscribeSession, getCapabilities, getSession } =
  CodeAgentService.method;

/** One visit: everything a client has to be able to do here, each as a test of its own. */
export async function visit(
  context: TestContext,
  visitor: Visitor,
  stranger: Visitor,
  sessionId: string,
): Promise<void> {
  let streamed: GenerateChunk[] = [];

  await context.test("health", async () => {
    assert.equal(at(await visitor.unary(Health.method.check, {}), "status"), "SERVING");
  });

  await context.test("GetCapabilities", async () => {
    const answer = await visitor.unary(getCapabilities, {});
    const { tools } = fromJson(ListToolsResponseSchema, await visitor.unary(ToolService.method.listTools, {}));
    assert.ok(tools.length > 3);
    assert.equal(at(answer, "toolCount"), tools.length);
    assert.equal(at(answer, "defaultModel"), "scripted/test");
    assert.equal(at(answer, "limits", "maxMessageBytes"), String(16 * 1024 * 1024));
  });

  await context.test("ListTools", async () => {
    const { tools } = fromJson(ListToolsResponseSchema, await visitor.unary(ToolService.method.listTools, {}));
    const names = tools.map(({ name }) => name);
    for (const name of ["list_files", "read_file", "search_text", "write_file"]) assert.ok(names.includes(name), name);
    for (const { parameters } of tools) assert.equal(JSON.parse(parameters).type, "object");
  });

  await context.test("CreateSession", async () => {
    const metadata = { ключ: "значение", "a.b": "" };
    const answer = await visitor.unary(createSession, { sessionId, title: greeting, metadata });
    assert.equal(at(answer, "sessionId"), sessionId);
    assert.equal(at(answer, "title"), greeting);
    assert.deepEqual(at(answer, "metadata"), metadata);
    assert.equal(at(answer, "state"), "idle");
  });

  await context.test("Generate", async () => {
    const answer = await visitor.unary(generate, { sessionId, messages: [user("hello 👋🏽")] });
    assert.equal(at(answer, "message", "role"), "assistant");
    assert.equal(at(answer, "message", "content"), greeting);
    assert.equal(at(answer, "usage", "inputTokens"), "12");
    assert.equal(at(answer, "finishReason"), "stop");
  });

  await context.test("StreamGenerate with calls of tools", async () => {
    streamed = turnsFrom(await visitor.stream(streamGenerate, { sessionId, messages: [user("look")] }));
    const blocks = streamed.flatMap(({ event }) =>
      event.case === "blockStop" ? [event.value.block?.block.case ?? ""] : [],
    );
    assert.deepEqual(blocks, ["text", "toolUse", "toolUse", "thinking", "text"]);
    const results = streamed.flatMap(({ event }) =>
      event.case === "toolFinished" ? [[event.value.name, event.value.result?.success]] : [],
    );
    assert.deepEqual(results, [
      ["list_files", true],
      ["read_file", true],
    ]);
    const last = streamed.at(-1)?.event;
    assert.equal(last?.case === "turnFinished" && last.value.finishReason, "stop");
  });

  await context.test("SubscribeSession from a cursor", async () => {
    const cursor = streamed[3]?.seq ?? 0n;
    // It begins in the middle of a turn, so the grammar has no say; what was streamed has.
    const log = chunksFrom(await visitor.stream(subscribeSession, { sessionId, afterSeq: String(cursor) }));
    const ready = log[0]?.event;
    assert.equal(ready?.case === "streamReady" && ready.value.headSeq, streamed.at(-1)?.seq);
    assert.deepEqual(withSeq(log), withSeq(streamed.slice(4)));
  });

  await context.test("bad input is told with the field that is wrong", async () => {
    const error = await callFailure(
      visitor.unary(generate, { sessionId, messages: [{ role: "robot", content: "é" }] }),
    );
    assert.equal(error.code, Code.InvalidArgument);
    assert.match(error.message, /^messages\[0\]\.role: is "robot"; use one of system, /);
    assert.equal(error.detail(ErrorInfoSchema).domain, "codeagent");
    assert.equal(error.detail(ErrorInfoSchema).reason, "INVALID_REQUEST");
    assert.deepEqual(
      error.detail(BadRequestSchema).fieldViolations.map(({ field }) => field),
      ["messages[0].role"],
    );
  });

  await context.test("a stream's error comes with its details too", async () => {
    const error = await callFailure(visitor.stream(subscribeSession, { sessionId, afterSeq: "123456" }));
    assert.equal(error.code, Code.InvalidArgument);
    assert.deepEqual(
      error.detail(BadRequestSchema).fieldViolations.map(({ field }) => field),
      ["after_seq"],
    );
  });

  await context.test("a provider's limit is told with the time to wait", async () => {
    const error = await callFailure(visitor.unary(generate, { messages: [user("too often")] }));
    assert.equal(error.code, Code.ResourceExhausted);
    assert.equal(error.detail(RetryInfoSchema).retryDelay?.seconds, 120n);
    const { upstreamStatus, provider } = error.detail(AgentErrorDetailSchema);
    assert.deepEqual({ upstreamStatus, provider }, { upstreamStatus: 429, provider: "scripted" });
  });

  await context.test("who has no token is told so", async () => {
    const error = await callFailure(stranger.unary(getSession, { sessionId }));
    assert.equal(error.code, Code.Unauthenticated);
    const refused = await callFailure(stranger.stream(streamGenerate, { sessionId, messages: [user("hello")] }));
    assert.equal(refused.code, Code.Unauthenticated);
    assert.equal(at(await visitor.unary(getSession, { sessionId }), "messageCount"), 7);
  });
}
