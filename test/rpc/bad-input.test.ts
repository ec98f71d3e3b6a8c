import assert from "node:assert/strict";
import http2 from "node:http2";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import type { DescMethodServerStreaming, DescMethodUnary, JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { enveloped, failureFromJson, messagesFrom, parseJson } from "../clients/connect-json.ts";
import { connectVisitor } from "../clients/connect-visitor.ts";
import { at, CallFailed, callFailure, user, type Visitor } from "../clients/visit.ts";
import { framed } from "../support/grpc-wire.ts";
import { startTestApp, user as userMessage } from "../support/test-app.ts";

type Method = DescMethodUnary | DescMethodServerStreaming;

/** What the requests below speak of. */
interface Place {
  readonly workspace: string;
  /** The last event of session `taken`, which has had one turn. */
  readonly headSeq: number;
}

interface BadRequest {
  readonly name: string;
  readonly method: Method;
  readonly request: Readonly<JsonObject> | ((place: Place) => JsonObject);
  readonly code: Code;
  /** The path told in `BadRequest`; absent means that no field is to blame. */
  readonly field?: string;
  readonly says?: RegExp;
}

const agent = CodeAgentService.method;
const { createSession, forkSession, generate, listMessages, listSessions, subscribeSession, updateSession } = agent;
const { executeTool } = ToolService.method;

function asked(request: JsonObject): JsonObject {
  return { sessionId: "taken", messages: [user("hi")], ...request };
}

function parts(part: JsonObject): JsonObject {
  return asked({ messages: [{ role: "user", contentParts: { parts: [part] } }] });
}

const tooLarge = String(2n ** 53n + 1n);
const part = "messages[0].content_parts.parts[0]";

/** Of a turn: fields that make no sense. */
const badTurns: [name: string, request: JsonObject, field: string, says?: RegExp][] = [
  ["a role of 5,000 characters", asked({ messages: [{ role: "r".repeat(5000) }] }), "messages[0].role"],
  ["no messages without a session", { messages: [] }, "messages", /is empty/],
  ["an answer of nothing", asked({ messages: [{ role: "assistant" }, user("hi")] }), "messages[0].content"],
  ["a user who answers a call", asked({ messages: [{ ...user("x"), toolCallId: "c" }] }), "messages[0].tool_call_id"],
  [
    "a user who calls a tool",
    asked({ messages: [{ ...user("x"), toolCalls: [{ id: "c", name: "f" }] }] }),
    "messages[0].tool_calls",
  ],
  [
    "a call without an id",
    asked({ messages: [{ role: "assistant", toolCalls: [{ name: "f" }] }] }),
    "messages[0].tool_calls[0].id",
  ],
  ["a part that says it is another", parts({ text: { type: "image_url", text: "x" } }), `${part}.text.type`],
  [
    "an image in unknown detail",
    parts({ imageUrl: { imageUrl: { url: "https://a.example/b.png", detail: "ultra" } } }),
    `${part}.image_url.image_url.detail`,
  ],
  ["audio of nothing", parts({ inputAudio: { inputAudio: {} } }), `${part}.input_audio.input_audio.data`],
  ["a block of no kind", asked({ messages: [{ role: "user", blocks: [{}] }] }), "messages[0].blocks[0]"],
  [
    "a user who thinks",
    asked({ messages: [{ role: "user", blocks: [{ thinking: { thinking: "hm" } }] }] }),
    "messages[0].blocks[0].thinking",
  ],
  ["an endless top_p", asked({ options: { topP: "Infinity" } }), "options.top_p"],
  ["a seed too deep", asked({ options: { seed: `-${tooLarge}` } }), "options.seed"],
  ["a nameless allowed tool", asked({ options: { allowedTools: [""] } }), "options.allowed_tools[0]"],
  [
    "a schema of nothing",
    asked({ options: { responseFormat: { type: "json_schema" } } }),
    "options.response_format.json_schema.schema",
  ],
  [
    "a schema that is no JSON",
    asked({ options: { responseFormat: { type: "json_schema", jsonSchema: { schema: "{'a'" } } } }),
    "options.response_format.json_schema.schema",
  ],
];

const oddIds: [name: string, sessionId: string][] = [
  ["..", ".."],
  ["a slash", "a/b"],
  ["a backslash", "a\\b"],
  ["NUL", "a\u0000b"],
  ["a line break", "a\nb"],
  ["a blank", " "],
  ["another alphabet", "сессия"],
  ["5,000 characters", "x".repeat(5000)],
];

const badRules: [field: string, permissions: JsonObject][] = [
  ["allow[0]", { allow: ["run_command("] }],
  ["ask[1]", { ask: ["read_file", "run_command()"] }],
  ["deny[0]", { deny: ["rm -rf"] }],
  ["deny[0]", { deny: ["run_command(git * push)"] }],
  ["allow", { allow: Array.from({ length: 1001 }, () => "read_file") }],
];

const badAnswers: [name: string, responses: JsonObject[], field: string][] = [
  ["no answers", [], "responses"],
  ["an answer to nothing", [{ decision: "deny" }], "responses[0].request_id"],
  ["an answer without a decision", [{ requestId: "req_x" }], "responses[0].decision"],
  ["a decision nobody knows", [{ requestId: "req_x", decision: "maybe" }], "responses[0].decision"],
  ["an answer without words", [{ requestId: "req_x", decision: "answer", text: " " }], "responses[0].text"],
  ["a tool's result", [{ requestId: "req_x", decision: "deny", toolResult: {} }], "responses[0].tool_result"],
  [
    "an answer given twice",
    ["deny", "deny"].map((decision) => ({ requestId: "req_x", decision })),
    "responses[1].request_id",
  ],
  ["a long text", [{ requestId: "req_x", decision: "deny", text: "x".repeat(65_537) }], "responses[0].text"],
];

/** In the contract, and not in this version. */
const badExecutions: [method: Method, request: JsonObject, field: string][] = [
  [PlanService.method.executePlan, {}, "plan_id"],
  [PlanService.method.executePlan, { planId: "p", version: 0 }, "version"],
  [PlanService.method.executePlan, { planId: "p", executionId: "e", requestId: "r" }, "request_id"],
  [PlanService.method.submitPlanInput, { planId: "p" }, "step_id"],
  [PlanService.method.submitPlanInput, { planId: "p", stepId: "s", itemPath: Array(17).fill(0) }, "item_path"],
  [PlanService.method.cancelPlan, {}, "plan_id"],
];

const badRequests: BadRequest[] = [
  ...badTurns.map(([name, request, field, says]) => ({
    name: `a turn with ${name}`,
    method: generate,
    request,
    code: Code.InvalidArgument,
    field,
    ...(says === undefined ? {} : { says }),
  })),
  ...oddIds.flatMap(([name, sessionId]) =>
    [agent.streamGenerate, createSession, agent.getSession, agent.deleteSession, subscribeSession].map((method) => ({
      name: `${method.name} of a session id with ${name}`,
      method,
      request: method === agent.streamGenerate ? asked({ sessionId }) : { sessionId },
      code: Code.InvalidArgument,
      field: "session_id",
    })),
  ),
  ...[agent.getSession, agent.deleteSession, listMessages, agent.cancelTurn, subscribeSession, forkSession].map(
    (method) => ({
      name: `${method.name} of no session`,
      method,
      request: { sessionId: "" },
      code: Code.InvalidArgument,
      field: "session_id",
    }),
  ),
  ...[
    updateSession,
    forkSession,
    listMessages,
    agent.cancelTurn,
    subscribeSession,
    executeTool,
    ToolService.method.listTools,
  ].flatMap((method) =>
    ["nobody", "__proto__", "constructor"].map((sessionId) => ({
      name: `${method.name} of the unknown session ${sessionId}`,
      method,
      request: { sessionId },
      code: Code.NotFound,
      says: new RegExp(`there is no session ${sessionId}$`),
    })),
  ),
  ...[
    ["an unknown provider", "nobody/m", Code.NotFound, /"nobody\/m" has no known provider/],
    ["a provider by an inherited name", "constructor/m", Code.NotFound, /has no known provider/],
    ["no slash", "gpt", Code.NotFound, /write provider\/model/],
    ["no name after the slash", "scripted/", Code.NotFound, /names no model of scripted/],
    ["a provider without its key", "openai/gpt", Code.FailedPrecondition, /OPENAI_API_KEY/],
    ["5,000 characters", "m".repeat(5000), Code.NotFound, /has no known provider/],
  ].flatMap(([name, model, code, says]) =>
    [generate, createSession, updateSession].map((method) => ({
      name: `${method.name} with a model of ${String(name)}`,
      method,
      request:
        method === generate
          ? asked({ model: String(model) })
          : { sessionId: method === createSession ? "new" : "taken", model: String(model) },
      code: code === Code.NotFound ? Code.NotFound : Code.FailedPrecondition,
      ...(says instanceof RegExp ? { says } : {}),
    })),
  ),
  {
    name: "a request id used for another session",
    method: createSession,
    request: { requestId: "first-session", title: "another" },
    code: Code.AlreadyExists,
    says: /first-session/,
  },
  {
    name: "20,000 messages to begin with",
    method: createSession,
    request: { initialMessages: Array.from({ length: 20_000 }, () => user("x")) },
    code: Code.ResourceExhausted,
    field: "initial_messages",
    says: /20000.*10000/,
  },
  {
    name: "an unknown mode",
    method: createSession,
    request: { permissions: { mode: "yolo" } },
    code: Code.InvalidArgument,
    field: "permissions.mode",
    says: /bypass/,
  },
  {
    name: "an update to an unknown mode",
    method: updateSession,
    request: { sessionId: "taken", permissions: { mode: "yolo" } },
    code: Code.InvalidArgument,
    field: "permissions.mode",
  },
  {
    name: "an empty rule",
    method: createSession,
    request: { permissions: { allow: ["read_file", ""] } },
    code: Code.InvalidArgument,
    field: "permissions.allow[1]",
  },
  {
    name: "an approval that waits too long",
    method: createSession,
    request: { approvalTimeoutMs: "99999999999" },
    code: Code.InvalidArgument,
    field: "approval_timeout_ms",
  },
  ...(
    [
      ["/", "/", Code.PermissionDenied],
      ["/etc", "/etc", Code.PermissionDenied],
      ["a missing folder elsewhere", "/nowhere/at/all", Code.PermissionDenied],
      ["a relative path", "src", Code.InvalidArgument],
      ["a home", "~/code", Code.InvalidArgument],
      ["a URL", "file:///etc", Code.InvalidArgument],
      ["NUL", "/tmp\u0000", Code.InvalidArgument],
    ] as const
  ).map(([name, workspace, code]) => ({
    name: `a workspace of ${name}`,
    method: createSession,
    request: { workspace },
    code,
    field: "workspace",
  })),
  ...(
    [
      ["a missing folder", "/missing", Code.NotFound],
      ["a file", "/README.md", Code.InvalidArgument],
      ["the folder above", "/..", Code.PermissionDenied],
      ["a folder beside", "/../data", Code.PermissionDenied],
    ] as const
  ).map(([name, rest, code]) => ({
    name: `a workspace of ${name}`,
    method: createSession,
    request: ({ workspace }: Place) => ({ workspace: `${workspace}${rest}` }),
    code,
    field: "workspace",
  })),
  {
    name: "a fork inside a turn",
    method: forkSession,
    request: { sessionId: "taken", throughSeq: "2" },
    code: Code.InvalidArgument,
    field: "through_seq",
    says: /inside turn/,
  },
  {
    name: "a fork beyond the head",
    method: forkSession,
    request: ({ headSeq }) => ({ sessionId: "taken", throughSeq: String(headSeq + 1) }),
    code: Code.InvalidArgument,
    field: "through_seq",
  },
  {
    name: "a fork at 2^60",
    method: forkSession,
    request: { sessionId: "taken", throughSeq: String(2n ** 60n) },
    code: Code.InvalidArgument,
    field: "through_seq",
  },
  {
    name: "a fork into a taken id",
    method: forkSession,
    request: { sessionId: "taken", newSessionId: "other" },
    code: Code.AlreadyExists,
  },
  {
    name: "a fork into an odd id",
    method: forkSession,
    request: { sessionId: "taken", newSessionId: "../other" },
    code: Code.InvalidArgument,
    field: "new_session_id",
  },
  {
    name: "a cursor of 2^64 - 1",
    method: subscribeSession,
    request: { sessionId: "taken", afterSeq: String(2n ** 64n - 1n) },
    code: Code.InvalidArgument,
    field: "after_seq",
  },
  ...[listSessions, listMessages, agent.listPendingRequests].flatMap((method) => [
    {
      name: `${method.name} with a page of 4 billion`,
      method,
      request: { ...(method === listMessages ? { sessionId: "taken" } : {}), pageSize: 4_294_967_295 },
      code: Code.InvalidArgument,
      field: "page_size",
    },
    ...["x", "%", "bnVsbA", "W10", "WyJ4Il0", "WzFd", "Wy0xXQ", "WzFlMzAwXQ", "W251bGwsbnVsbF0", "W1tdLHt9XQ"]
      .filter((pageToken) => !(method === listMessages && ["W10", "WzFd"].includes(pageToken)))
      .map((pageToken) => ({
        name: `${method.name} with the page token ${Buffer.from(pageToken, "base64url").toString()}`,
        method,
        request: { ...(method === listMessages ? { sessionId: "taken" } : {}), pageToken },
        code: Code.InvalidArgument,
        field: "page_token",
      })),
  ]),
  {
    name: "an unknown turn",
    method: agent.cancelTurn,
    request: { sessionId: "taken", turnId: "turn_nobody" },
    code: Code.NotFound,
    says: /turn_nobody/,
  },
  ...["2147483648", String(2n ** 64n - 1n)].map((timeoutMs) => ({
    name: `a tool that may take ${timeoutMs} ms`,
    method: executeTool,
    request: { name: "read_file", arguments: '{"path":"README.md"}', timeoutMs },
    code: Code.InvalidArgument,
    field: "timeout_ms",
  })),
  ...["fly", "", "__proto__", "constructor", "toString", "READ_FILE", "x".repeat(5000)].map((name) => ({
    name: `the unknown tool ${name.slice(0, 20)}`,
    method: executeTool,
    request: { name },
    code: Code.NotFound,
  })),
  ...badRules.map(([field, permissions]) => ({
    name: `rules like ${JSON.stringify(permissions).slice(0, 60)}`,
    method: createSession,
    request: { permissions },
    code: Code.InvalidArgument,
    field: `permissions.${field}`,
  })),
  ...badAnswers.map(([name, responses, field]) => ({
    name: `RespondToRequest with ${name}`,
    method: agent.respondToRequest,
    request: { sessionId: "taken", responses },
    code: Code.InvalidArgument,
    field,
  })),
  {
    name: "an answer to a request nobody opened",
    method: agent.respondToRequest,
    request: { sessionId: "taken", responses: [{ requestId: "req_nobody", decision: "deny" }] },
    code: Code.NotFound,
    says: /req_nobody/,
  },
  {
    name: "an answer in an unknown session",
    method: agent.respondToRequest,
    request: { sessionId: "nobody", responses: [{ requestId: "req_nobody", decision: "deny" }] },
    code: Code.NotFound,
    says: /session nobody/,
  },
  {
    name: "what waits in an unknown session",
    method: agent.listPendingRequests,
    request: { sessionId: "nobody" },
    code: Code.NotFound,
    says: /session nobody/,
  },
  {
    name: "the permission of an unknown tool",
    method: ToolService.method.checkPermission,
    request: { name: "fly" },
    code: Code.NotFound,
    says: /fly/,
  },
  {
    name: "the permission of a call nobody can read",
    method: ToolService.method.checkPermission,
    request: { name: "read_file", arguments: "{" },
    code: Code.InvalidArgument,
    field: "arguments",
  },
  ...badExecutions.map(([method, request, field]) => ({
    name: `${method.name} with a bad ${field}`,
    method,
    request,
    code: Code.InvalidArgument,
    field,
  })),
];

/** What only JSON can say. */
const badJson: [name: string, method: Method, request: JsonObject | string][] = [
  ["a message that is a text", generate, { messages: ["hi"] }],
  ["a content that is a list", generate, { messages: [{ role: "user", content: [{ type: "text", text: "hi" }] }] }],
  ["content told twice", generate, { messages: [{ ...user("x"), contentParts: { parts: [] } }] }],
  ["a temperature of 5,000 letters", generate, asked({ options: { temperature: "h".repeat(5000) } })],
  ["a seed with a fraction", generate, asked({ options: { seed: 1.5 } })],
  ["options that are a list", generate, asked({ options: [] })],
  ["half a surrogate pair in an id", agent.getSession, { sessionId: "\ud83d" }],
  ["half a surrogate pair in a request id", createSession, { requestId: "\udc00" }],
  ["half a surrogate pair in a title", createSession, { title: "a\ud83d" }],
  ["half a surrogate pair in a tool's arguments", executeTool, { name: "read_file", arguments: "\ud83d" }],
  ["half a surrogate pair in a tool's name", executeTool, { name: "\ud83d" }],
  ["a negative page", listSessions, { pageSize: -1 }],
  ["half a page", listSessions, { pageSize: 0.5 }],
  ["a page of 2^32", listSessions, { pageSize: 4_294_967_296 }],
  ["a page of many", listSessions, { pageSize: "many" }],
  ["a negative cursor", subscribeSession, { sessionId: "taken", afterSeq: -1 }],
  ["metadata of numbers", createSession, { metadata: { a: 1 } }],
  ["metadata that is a list", createSession, { metadata: [] }],
  ["permissions that are a word", createSession, { permissions: "bypass" }],
  ["a mode that is a number", createSession, { permissions: { mode: 3 } }],
  ["a time that is none", generate, asked({ messages: [{ ...user("x"), createTime: "yesterday" }] })],
  [
    "bytes that are no base64",
    generate,
    asked({ messages: [{ role: "assistant", blocks: [{ thinking: { raw: "%" } }] }] }),
  ],
  ["a text", createSession, '"hi"'],
  ["a number", createSession, "7"],
  ["a comment", createSession, "{/* hi */}"],
  ["a key told twice in both spellings", createSession, '{"session_id": "a", "sessionId": "b"}'],
];

/** Connect's JSON as a program without any library would write it. */
function jsonVisitor(url: string) {
  return async (method: Method, body: string): Promise<JsonValue> => {
    const stream = method.methodKind === "server_streaming";
    const answer = await fetch(`${url}/${method.parent.typeName}/${method.name}`, {
      method: "POST",
      headers: { "content-type": stream ? "application/connect+json" : "application/json" },
      body: stream ? new Uint8Array(enveloped(body)) : body,
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (stream) return messagesFrom(bytes);
    const value = parseJson(bytes.toString());
    if (answer.status !== 200) throw failureFromJson(value);
    return value;
  };
}

/** One sentence for a person, with nothing in it that is our business alone. */
function assertForPeople({ message }: CallFailed, folder: string, said: string): void {
  assert.ok(message.length > 10, `says something: ${message}`);
  assert.ok(Buffer.byteLength(message) <= 2048, `${Buffer.byteLength(message)} bytes`);
  assert.doesNotMatch(
    message,
    /\n\s*at |node_modules|file:\/\/\/\w+\/.*\.[jt]s|RangeError|TypeError|Maximum call stack/,
  );
  if (!said.includes(folder)) assert.ok(!message.includes(folder), "no path of ours");
}

async function startPlace(context: TestContext) {
  const { app, client, folder, workspace, reports } = await startTestApp(context, {
    flags: { "limits.max_message_bytes": 2 * 1024 * 1024 },
  });
  await client.createSession({ sessionId: "taken", title: "the first", requestId: "first-session" });
  await client.createSession({ sessionId: "other" });
  await client.generate({ sessionId: "taken", messages: [userMessage("hello")], requestId: "first-turn" });
  const { headSeq } = await client.getSession({ sessionId: "taken" });
  const place: Place = { workspace, headSeq: Number(headSeq) };
  /** All there is to see of the sessions. */
  const seen = async () => {
    const { sessions } = await client.listSessions({ pageSize: 1000 });
    return sessions;
  };
  return { app, client, folder, reports, place, seen };
}

const visitors: [name: string, to: (baseUrl: string) => Visitor][] = [
  ["gRPC", (baseUrl) => connectVisitor(createGrpcTransport({ baseUrl }))],
  ["gRPC-Web", (baseUrl) => connectVisitor(createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }))],
  [
    "Connect JSON",
    (baseUrl) => {
      const ask = jsonVisitor(baseUrl);
      return {
        unary: (method, request) => ask(method, JSON.stringify(request)),
        stream: async (method, request) => [await ask(method, JSON.stringify(request))],
      };
    },
  ],
];

for (const [protocol, to] of visitors)
  test(`bad input by ${protocol} is refused by the field, and nothing changes`, async (context) => {
    const { app, folder, place, seen, reports } = await startPlace(context);
    const visitor = to(app.url);
    for (const { name, method, request: made, code, field, says } of badRequests)
      await context.test(name, async () => {
        const before = await seen();
        const request = typeof made === "function" ? made(place) : made;
        const call = method.methodKind === "unary" ? visitor.unary(method, request) : visitor.stream(method, request);
        const error = await callFailure(call);
        assert.equal(Code[error.code], Code[code], error.message);
        if (says !== undefined) assert.match(error.message, says);
        const bad = error.details.some(({ type }) => type === BadRequestSchema.typeName);
        const fields = bad ? error.detail(BadRequestSchema).fieldViolations.map((violation) => violation.field) : [];
        assert.deepEqual(fields, field === undefined ? [] : [field]);
        assertForPeople(error, folder, JSON.stringify(request));
        assert.deepEqual(await seen(), before, "nothing has changed");
      });
    assert.deepEqual(reports, [], "none of it is the operator's business");
  });

test("JSON that is none, or says what no message can hold, is refused, and nothing changes", async (context) => {
  const { app, folder, seen, reports } = await startPlace(context);
  const ask = jsonVisitor(app.url);
  for (const [name, method, request] of badJson)
    await context.test(name, async () => {
      const before = await seen();
      const body = typeof request === "string" ? request : JSON.stringify(request);
      const error = await callFailure(ask(method, body));
      assert.equal(Code[error.code], Code[Code.InvalidArgument], error.message);
      assertForPeople(error, folder, body);
      assert.deepEqual(await seen(), before, "nothing has changed");
    });
  assert.deepEqual(reports, [], "none of it is the operator's business");
});

const emptyMessage = new Uint8Array();
/** Field 1 of a message, a text. */
const textField = (bytes: Uint8Array) => Buffer.concat([Buffer.of(10, bytes.length), bytes]);

const badFrames: [name: string, method: Method, body: Buffer, codes: Code[], headers?: Record<string, string>][] = [
  ["bytes that are no message", agent.getSession, framed(Buffer.of(255, 255)), [Code.InvalidArgument, Code.Internal]],
  [
    "a text that ends in the middle",
    agent.getSession,
    framed(Buffer.of(10, 9, 97)),
    [Code.InvalidArgument, Code.Internal],
  ],
  [
    "a text that is no UTF-8",
    agent.getSession,
    framed(textField(Buffer.of(0xff, 0xfe))),
    [Code.InvalidArgument, Code.Internal],
  ],
  [
    "a frame shorter than promised",
    agent.getSession,
    framed(textField(Buffer.from("abc")), 100),
    [Code.InvalidArgument],
  ],
  ["three bytes", agent.getSession, Buffer.of(0, 0, 0), [Code.InvalidArgument]],
  ["no message", agent.getSession, Buffer.alloc(0), [Code.Unimplemented]],
  [
    "two messages",
    createSession,
    Buffer.concat([framed(emptyMessage), framed(emptyMessage)]),
    [Code.Unimplemented, Code.InvalidArgument],
  ],
  ["a compressed message of no encoding", createSession, framed(emptyMessage, 0, 1), [Code.Internal]],
  [
    "an unknown encoding",
    createSession,
    framed(emptyMessage, 0, 1),
    [Code.Unimplemented],
    { "grpc-encoding": "zip-of-mine" },
  ],
  [
    "a message that is no gzip",
    createSession,
    framed(Buffer.from("not gzip"), 8, 1),
    [Code.InvalidArgument],
    { "grpc-encoding": "gzip" },
  ],
  [
    "a message that unpacks to 100 MB",
    createSession,
    framed(gzipSync(Buffer.alloc(100_000_000)), undefined, 1),
    [Code.ResourceExhausted],
    { "grpc-encoding": "gzip" },
  ],
  ["a message over the limit", createSession, framed(Buffer.alloc(3_000_000)), [Code.ResourceExhausted]],
  ["a message of 4 GB, it says", createSession, framed(emptyMessage, 0xff_ff_ff_ff), [Code.ResourceExhausted]],
  [
    "groups 400,000 deep",
    agent.getSession,
    framed(Buffer.alloc(800_000, Buffer.of(0xa3, 6))),
    [Code.InvalidArgument, Code.Internal],
  ],
];

/** Status and message of gRPC, from wherever in the answer they are; as soon as it has come, not when the call is closed. */
async function grpcFailure(url: string, contentType: string, [, method, body, , headers]: (typeof badFrames)[number]) {
  const session = http2.connect(url);
  try {
    const { promise: ended, resolve, reject } = Promise.withResolvers<void>();
    const fields = new Map<string, string>();
    const add = (some: http2.IncomingHttpHeaders) => {
      for (const [name, value] of Object.entries(some)) fields.set(name, String(value));
    };
    const received: Buffer[] = [];
    const path = `/${method.parent.typeName}/${method.name}`;
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": contentType,
      te: "trailers",
      ...headers,
    });
    stream.on("response", add);
    stream.on("trailers", add);
    stream.on("data", (bytes: Buffer) => received.push(bytes));
    stream.on("end", resolve);
    stream.on("error", reject);
    session.on("error", reject);
    stream.end(body);
    await ended;
    if (contentType.startsWith("application/grpc-web"))
      for (const line of Buffer.concat(received).subarray(5).toString().split("\r\n")) {
        const [name = "", value = ""] = line.split(/: ?/, 2);
        fields.set(name, value);
      }
    const message = decodeURIComponent(fields.get("grpc-message") ?? "");
    return new CallFailed(Number(fields.get("grpc-status") ?? -1), message, []);
  } finally {
    session.destroy();
  }
}

for (const contentType of ["application/grpc", "application/grpc+proto", "application/grpc-web+proto"])
  test(`broken frames of ${contentType} are refused, and nothing changes`, async (context) => {
    const { app, folder, seen, reports } = await startPlace(context);
    for (const frame of badFrames) {
      const [name, , , codes] = frame;
      await context.test(name, async () => {
        const before = await seen();
        const begun = performance.now();
        const error = await grpcFailure(app.url, contentType, frame);
        assert.ok(codes.includes(error.code), `code ${error.code}: ${error.message}`);
        assertForPeople(error, folder, "");
        assert.ok(performance.now() - begun < 3000, "answered within 3 s");
        assert.deepEqual(await seen(), before, "nothing has changed");
      });
    }
    assert.deepEqual(reports, [], "none of it is the operator's business");
  });

test("a tool that is not done in the time the caller allows is DEADLINE_EXCEEDED", async (context) => {
  const definition = { name: "wait", description: "waits", parameters: '{"type":"object"}', source: "local" as const };
  const functions: FunctionProvider = {
    source: "local",
    list: async () => [{ ...definition, readOnly: true, timeoutMs: 30_000 }],
    call: () => new Promise(() => undefined),
    close: async () => undefined,
  };
  const { app, reports } = await startTestApp(context, { functions: [functions] });
  const error = await callFailure(jsonVisitor(app.url)(executeTool, '{"name":"wait","timeoutMs":"20"}'));
  assert.equal(Code[error.code], Code[Code.DeadlineExceeded]);
  assert.match(error.message, /^wait did not end within 20 ms/);
  assert.deepEqual(reports, []);
});

test("a method nobody has is UNIMPLEMENTED in Connect too", async (context) => {
  const { app } = await startPlace(context);
  for (const path of ["/codeagent.v1.CodeAgentService/NoSuch", "/no.Service/Generate"])
    for (const contentType of ["application/json", "application/json; charset=utf-8", "application/proto"]) {
      const headers = { "content-type": contentType };
      const answer = await fetch(`${app.url}${path}`, { method: "POST", headers, body: "{}" });
      assert.equal(answer.status, 404);
      assert.equal(failureFromJson(parseJson(await answer.text())).code, Code.Unimplemented);
    }
  const elsewhere = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
  const answer = await fetch(`${app.url}/nothing`, elsewhere);
  assert.equal(failureFromJson(parseJson(await answer.text())).code, Code.NotFound);
});

test("odd input that is only data is kept as data", async (context) => {
  const { app, client } = await startPlace(context);
  const ask = jsonVisitor(app.url);
  const body =
    '{"sessionId":"__proto__","title":"a\\u0000b","metadata":{"constructor":"c","toString":"s"},"__proto__":{"a":1}}';
  const session = await ask(createSession, body);
  assert.equal(at(session, "sessionId"), "__proto__");
  const kept = await client.getSession({ sessionId: "__proto__" });
  assert.equal(kept.title, "a\u0000b");
  assert.deepEqual(Object.entries(kept.metadata), [
    ["constructor", "c"],
    ["toString", "s"],
  ]);
  assert.equal(Reflect.get({}, "a"), undefined);

  const broken = { id: "c1", name: "read_file", arguments: '{"path": ' };
  const answer = await client.generate({
    sessionId: "__proto__",
    messages: [
      { role: "assistant", toolCalls: [broken] },
      { role: "tool", toolCallId: "c1", contentType: { case: "content", value: "no JSON" } },
      userMessage("go on"),
    ],
  });
  assert.equal(answer.finishReason, "stop", "a model's own words in the history are no fault of the caller");
  const { messages } = await client.listMessages({ sessionId: "__proto__" });
  assert.equal(messages[0]?.toolCalls[0]?.arguments, '{"path": ');
  const many = Array.from({ length: 10_000 }, () => userMessage("x"));
  await client.createSession({ sessionId: "many", initialMessages: many });
  assert.equal((await client.getSession({ sessionId: "many" })).messageCount, 10_000);
});
