import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { Client, credentials, Metadata, status } from "@grpc/grpc-js";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type Era, type LegacyClient, legacyClients } from "./legacy-client.ts";

const script = `
- when: { text: { contains: twice } }
  text: hello hello
- when: { text: { contains: look } , role: user }
  text: "I look. "
  tool_calls: [{ id: call_1, name: list_files, arguments: { pattern: "*.md" } }]
- when: { tool: list_files }
  text: There is one.
  usage: { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 }
- when: { text: { contains: numbers } }
  text: "[1, 2]"
- text: hello
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 }
`;

const path = (rpc: string) => `/a3s.code.agent.v1.CodeAgentService/${rpc}`;

/** Hexadecimal of what a text is on the wire, its length before it. */
function text(words: string): string {
  const bytes = Buffer.from(words);
  return Buffer.concat([Buffer.from([bytes.length]), bytes]).toString("hex");
}

/** A field with what is in it, as hexadecimal. */
function field(tag: string, content: string): string {
  return tag + (content.length / 2).toString(16).padStart(2, "0") + content;
}

const userHello = {
  enum: "08011205" + "68656c6c6f",
  string: "0a0475736572" + "1205" + "68656c6c6f",
  nobody: "1205" + "68656c6c6f",
};
/** An entry of a map, as both eras have it in field 3 and the earliest in field 4. */
const entry = `0a${text("k")}12${text("v")}`;
/** An attachment of the earliest clients: type 1, a name. */
const attachment = `080112${text("notes.txt")}`;

interface RawAnswer {
  readonly messages: readonly string[];
  readonly code: status;
  readonly details: string;
}

describe("the two eras of the earlier service", () => {
  const shared = fileContext();
  let url = "";
  let clients: Record<Era, LegacyClient>;
  let raw: Client;

  before(async () => {
    const { app } = await startTestApp(shared, { script });
    url = app.url;
    clients = legacyClients(shared, url);
    raw = new Client(new URL(url).host, credentials.createInsecure());
    shared.after(() => raw.close());
    await clients.L2.call("CreateSession", { session_id: "s1" });
  });

  const identity = (bytes: Buffer) => bytes;

  /** Sends bytes and gives the bytes of what comes back, as hexadecimal. */
  function send(rpc: string, request: string, headers: Record<string, string> = {}): Promise<RawAnswer> {
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
    const call = raw.makeServerStreamRequest(path(rpc), identity, identity, Buffer.from(request, "hex"), metadata);
    const messages: string[] = [];
    return new Promise((resolve) => {
      call.on("data", (bytes: Buffer) => messages.push(bytes.toString("hex")));
      call.on("error", () => undefined);
      call.on("status", ({ code, details }) => resolve({ messages, code, details }));
    });
  }

  const session = `0a${text("s1")}`;
  const generate = (...messages: string[]) => session + messages.map((message) => field("12", message)).join("");

  const byteRows = [
    { name: "an enum", message: userHello.enum, answered: "enum" },
    { name: "a string", message: userHello.string, answered: "string" },
    { name: "a string with its prefix", message: `0a${text("ROLE_USER")}1205${"68656c6c6f"}`, answered: "string" },
    { name: "the field twice, the last one counts", message: `0803${userHello.enum}`, answered: "enum" },
    { name: "no role", message: userHello.nobody, answered: "string" },
    { name: "a role of 0", message: `0800${userHello.nobody}`, answered: "enum" },
    { name: "no role, the header", message: userHello.nobody, headers: { "x-role-format": "enum" }, answered: "enum" },
    { name: "an enum, the header", message: userHello.enum, headers: { "x-role-format": "string" }, answered: "enum" },
    { name: "an enum with metadata", message: `${userHello.enum}${field("1a", entry)}`, answered: "enum" },
    { name: "metadata of the earliest", message: `${userHello.enum}${field("22", entry)}`, answered: "enum" },
    { name: "a field nobody knows", message: `${userHello.string}f80101`, answered: "string" },
  ] as const;

  const contentHello = `12${text("s1")}1a${text("hello")}`;
  for (const { name, message, answered, ...row } of byteRows) {
    test(`StreamGenerate, ${name}`, async () => {
      const headers = "headers" in row ? { ...row.headers } : {};
      const { messages, code, details } = await send("StreamGenerate", generate(message), headers);
      assert.equal(code, status.OK, details);
      const [type, done] = answered === "enum" ? ["0801", "0805"] : [`0a${text("content")}`, `0a${text("done")}`];
      assert.equal(messages[0], contentHello + type);
      assert.equal(messages.length, 2);
      const last = messages[1] ?? "";
      assert.ok(last.startsWith(contentHello), last);
      assert.ok(last.endsWith(answered === "enum" ? done : `${done}3a${text("stop")}`), last);
    });
  }

  for (const format of ["enum", "string"] as const) {
    test(`Generate, ${format}`, async () => {
      const { messages, code } = await send("Generate", generate(userHello[format]));
      assert.equal(code, status.OK);
      const [answer = ""] = messages;
      const role = format === "enum" ? "0802" : `0a${text("assistant")}`;
      const reason = format === "enum" ? "2801" : `2a${text("stop")}`;
      assert.ok(answer.includes(field("12", `12${text("hello")}${role}`)), answer);
      assert.ok(answer.includes("2206080310011804"), answer);
      assert.ok(answer.endsWith(reason), answer);
    });
  }

  const badBytes = [
    {
      name: "an enum nobody knows",
      messages: [`0809${userHello.nobody}`],
      code: 3,
      says: /^messages\[0\]\.role: is 9/,
    },
    { name: "a negative enum", messages: [`08ffffffffffffffffff01${userHello.nobody}`], code: 3, says: /role: is -1/ },
    {
      name: "a word nobody knows",
      messages: [userHello.string, `0a${text("boss")}${userHello.nobody}`],
      code: 3,
      says: /^messages\[1\]\.role: is "boss"; use one of user/,
    },
    { name: "no UTF-8", messages: [`0a02c328${userHello.nobody}`], code: 3, says: /^messages\[0\]\.role: is no UTF-8/ },
    {
      name: "a role of 64 bits",
      messages: [`090000000000000000${userHello.nobody}`],
      code: 3,
      says: /neither a string/,
    },
    {
      name: "both eras",
      messages: [userHello.string, userHello.enum],
      code: 3,
      says: /^messages\[1\]\.role: is the number/,
    },
    {
      name: "both in one",
      messages: [userHello.enum + userHello.string],
      code: 3,
      says: /^messages\[0\]\.role: is a str/,
    },
    { name: "no messages", messages: [], code: 3, says: /^messages: is empty/ },
    { name: "no words", messages: ["0801"], code: 3, says: /^messages\[0\]\.content: is empty/ },
    { name: "only an empty assistant", messages: ["0802"], code: 3, says: /^messages: are all empty/ },
    {
      name: "an attachment",
      messages: [userHello.enum + field("1a", attachment)],
      code: 12,
      says: /^messages\[0\]\.attachments: attachments are not taken/,
    },
    {
      name: "a cut entry",
      messages: [userHello.enum + field("1a", "0a05")],
      code: 3,
      says: /^messages\[0\]\.metadata/,
    },
  ];
  for (const { name, messages, code, says } of badBytes) {
    test(`bad bytes: ${name}`, async () => {
      for (const rpc of ["Generate", "StreamGenerate"]) {
        const answer = await send(rpc, generate(...messages));
        assert.equal(answer.code, code, answer.details);
        assert.match(answer.details, says);
        assert.deepEqual(answer.messages, []);
      }
    });
  }

  test("a header that names no form is refused", async () => {
    const answer = await send("Generate", generate(userHello.nobody), { "x-role-format": "numbers" });
    assert.equal(answer.code, status.INVALID_ARGUMENT);
    assert.match(answer.details, /^x-role-format: .*string or enum/);
  });

  test("real clients write what these bytes are", () => {
    const request = (role: string) => ({ session_id: "s1", messages: [{ role, content: "hello" }] });
    assert.equal(clients.L1.encode("Generate", request("ROLE_USER")).toString("hex"), generate(userHello.enum));
    assert.equal(clients.L2.encode("Generate", request("user")).toString("hex"), generate(userHello.string));
    const withBoth = { role: "ROLE_USER", content: "hello", metadata: { k: "v" } };
    const earliest = clients.L0.encode("Generate", { session_id: "s1", messages: [withBoth] });
    assert.equal(earliest.toString("hex"), generate(userHello.enum + field("22", entry)));
  });

  test("clients of all eras at once, each in its own words", async () => {
    const asked: Promise<void>[] = [];
    const roleOf = { L0: "ROLE_USER", L1: "ROLE_USER", L2: "user" } as const;
    for (let round = 0; round < 6; round++) {
      for (const era of ["L0", "L1", "L2"] as const) {
        const request = { messages: [{ role: roleOf[era], content: `hello ${round}` }] };
        const isEnum = era !== "L2";
        asked.push(
          clients[era].call("Generate", request).then((answer) => {
            assert.equal(at(answer, "message.role"), isEnum ? "ROLE_ASSISTANT" : "assistant");
            assert.equal(at(answer, "message.content"), "hello");
            assert.equal(answer["finish_reason"], isEnum ? "FINISH_REASON_STOP" : "stop");
          }),
          (async () => {
            const types = [];
            for await (const chunk of clients[era].stream("StreamGenerate", request)) types.push(chunk["type"]);
            assert.deepEqual(types, isEnum ? ["CHUNK_TYPE_CONTENT", "CHUNK_TYPE_DONE"] : ["content", "done"]);
          })(),
        );
      }
    }
    await Promise.all(asked);
  });

  for (const era of ["L1", "L2"] as const) {
    test(`a turn with a tool, ${era}`, async () => {
      const word = (type: string) => (era === "L1" ? `CHUNK_TYPE_${type.toUpperCase()}` : type);
      const role = era === "L1" ? "ROLE_USER" : "user";
      const request = { session_id: "s1", messages: [{ role, content: "look" }] };
      const chunks = await Array.fromAsync(clients[era].stream("StreamGenerate", request));
      const types = chunks.map(({ type }) => type).filter((type, index, all) => type !== all[index - 1]);
      assert.deepEqual(types, ["content", "tool_call", "tool_result", "content", "done"].map(word));
      const call = chunks.find(({ type }) => type === word("tool_call"));
      assert.equal(at(call, "tool_call.name"), "list_files");
      assert.deepEqual(JSON.parse(String(at(call, "tool_call.arguments"))), { pattern: "*.md" });
      const result = chunks.find(({ type }) => type === word("tool_result"));
      assert.equal(at(result, "tool_result.success"), true);
      assert.match(String(at(result, "tool_result.output")), /README\.md/);
      assert.deepEqual(at(result, "metadata"), { tool_call_id: at(call, "tool_call.id"), tool_name: "list_files" });
      const done = chunks.at(-1);
      const shown = chunks.filter(({ type }) => type === word("content")).map(({ content }) => content);
      assert.equal(done?.["content"], "I look. There is one.");
      assert.equal(shown.join(""), done?.["content"]);
      assert.deepEqual(done?.["metadata"], { prompt_tokens: "20", completion_tokens: "5", total_tokens: "25" });
      assert.equal(done?.["finish_reason"], era === "L1" ? undefined : "stop");

      const answer = await clients[era].call("Generate", request);
      assert.equal(at(answer, "message.content"), "There is one.");
      assert.equal(at(answer, "tool_calls.0.name"), "list_files");
      assert.match(String(at(answer, "tool_calls.0.result.output")), /README\.md/);
      assert.equal(at(answer, "usage.total_tokens"), 25);
    });
  }

  /** Asks as a Connect client does in JSON. */
  async function post(rpc: string, body: object, headers: Record<string, string> = {}): Promise<[number, unknown]> {
    const answer = await fetch(`${url}${path(rpc)}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    return [answer.status, await answer.json()];
  }

  const jsonRoles = [
    { role: "user", answered: "assistant", reason: "stop" },
    { role: "User", answered: "assistant", reason: "stop" },
    { role: "role_user", answered: "assistant", reason: "stop" },
    { role: "ROLE_USER", answered: "ROLE_ASSISTANT", reason: "FINISH_REASON_STOP" },
    { role: 1, answered: "ROLE_ASSISTANT", reason: "FINISH_REASON_STOP" },
    { role: "developer", answered: "assistant", reason: "stop" },
    { role: 3, answered: "ROLE_ASSISTANT", reason: "FINISH_REASON_STOP" },
    { role: null, answered: "assistant", reason: "stop" },
    { role: "", answered: "assistant", reason: "stop" },
    { role: undefined, answered: "assistant", reason: "stop" },
    { role: null, headers: { "x-role-format": "enum" }, answered: "ROLE_ASSISTANT", reason: "FINISH_REASON_STOP" },
  ];
  for (const { role, answered, reason, headers } of jsonRoles) {
    test(`Connect JSON, role ${JSON.stringify(role)}${headers === undefined ? "" : " and a header"}`, async () => {
      const messages = [{ role, content: "hello", metadata: { k: "v" } }, { content: "hello" }];
      const [code, answer] = await post("Generate", { messages }, headers);
      assert.equal(code, 200, JSON.stringify(answer));
      assert.equal(at(answer, "message.role"), answered);
      assert.equal(at(answer, "message.content"), "hello");
      assert.equal(at(answer, "finishReason"), reason);
      assert.deepEqual(at(answer, "usage"), { promptTokens: 3, completionTokens: 1, totalTokens: 4 });
    });
  }

  test("Connect JSON, the other requests that hold messages", async () => {
    const initialContext = [
      { role: "ROLE_SYSTEM", content: "Be short.", metadata: { k: "v" } },
      { role: 2, content: "Hi." },
    ];
    const [made, created] = await post("CreateSession", { sessionId: "json", initialContext });
    assert.equal(made, 200, JSON.stringify(created));
    const [, history] = await post("GetMessages", { sessionId: "json" });
    assert.equal(at(history, "messages.0.role"), "system");
    assert.deepEqual(at(history, "messages.0.metadata"), { k: "v" });
    assert.equal(at(history, "messages.1.role"), "assistant");
    const messages = [{ role: "user", content: "numbers" }];
    const [, answer] = await post("GenerateStructured", { messages, schema: '{"type":"array"}' });
    assert.equal(at(answer, "data"), "[1, 2]");
    const [code, mixed] = await post("Generate", { messages: [...messages, { role: 1, content: "hello" }] });
    assert.equal(code, 400);
    assert.match(String(at(mixed, "message")), /^messages\[1\]\.role: is the number of an enum, unlike/);
  });

  for (const role of ["boss", 7, 1.5, true, ["user"], "ROLE_"]) {
    test(`Connect JSON refuses the role ${JSON.stringify(role)}`, async () => {
      const [code, answer] = await post("Generate", { messages: [{ role, content: "hello" }] });
      if (role === "ROLE_") return assert.equal(code, 200);
      assert.equal(code, 400);
      assert.equal(at(answer, "code"), "invalid_argument");
      assert.match(String(at(answer, "message")), /^messages\[0\]\.role: /);
    });
  }

  for (const format of ["enum", "string"] as const) {
    test(`a stream in Connect JSON, ${format}`, async () => {
      const request = JSON.stringify({ messages: [{ role: format === "enum" ? 1 : "user", content: "hello" }] });
      const head = Buffer.alloc(5);
      head.writeUInt32BE(request.length, 1);
      const answer = await fetch(`${url}${path("StreamGenerate")}`, {
        method: "POST",
        headers: { "content-type": "application/connect+json" },
        body: Buffer.concat([head, Buffer.from(request)]),
      });
      const chunks = framesOf(Buffer.from(await answer.arrayBuffer())).map(({ body }): unknown =>
        JSON.parse(body.toString()),
      );
      const [content, done] = chunks;
      assert.equal(at(content, "type"), format === "enum" ? "CHUNK_TYPE_CONTENT" : "content");
      assert.equal(at(done, "type"), format === "enum" ? "CHUNK_TYPE_DONE" : "done");
      assert.equal(at(done, "finishReason"), format === "enum" ? undefined : "stop");
    });
  }

  for (const format of ["enum", "string"] as const) {
    test(`gRPC-Web, ${format}`, async () => {
      const message = Buffer.from(generate(userHello[format]), "hex");
      const head = Buffer.alloc(5);
      head.writeUInt32BE(message.length, 1);
      const answer = await fetch(`${url}${path("StreamGenerate")}`, {
        method: "POST",
        headers: { "content-type": "application/grpc-web+proto", "x-grpc-web": "1" },
        body: Buffer.concat([head, message]),
      });
      const [content] = framesOf(Buffer.from(await answer.arrayBuffer()));
      const type = format === "enum" ? "0801" : `0a${text("content")}`;
      assert.equal(content?.body.toString("hex"), contentHello + type);
    });
  }

  test("metadata of a message is kept, of all layouts", async () => {
    const sent = { k: "v", name: "Ada" };
    const roles = { L0: "ROLE_USER", L1: "ROLE_USER", L2: "user" } as const;
    for (const [index, era] of (["L0", "L1", "L2"] as const).entries()) {
      const sessionId = `metadata-${index}`;
      await clients.L2.call("CreateSession", { session_id: sessionId });
      const messages = [{ role: roles[era], content: "hello", metadata: sent }];
      await clients[era].call("Generate", { session_id: sessionId, messages });
      const history = await clients.L2.call("GetMessages", { session_id: sessionId });
      assert.deepEqual(at(history, "messages.0.metadata"), sent, era);
      assert.equal(at(history, "messages.0.role"), "user");
    }
  });

  test("a tool's message becomes words that say what they are", async () => {
    await clients.L1.call("CreateSession", { session_id: "tooled" });
    const messages = [
      { role: "ROLE_TOOL", content: "42" },
      { role: "ROLE_ASSISTANT", content: "" },
      { role: "ROLE_USER", content: "hello" },
    ];
    await clients.L1.call("Generate", { session_id: "tooled", messages });
    const history = await clients.L1.call("GetMessages", { session_id: "tooled" });
    assert.equal(at(history, "messages.0.content.0.text.text"), "A tool gave this:\n42");
    assert.equal(history["total_count"], 3);
  });
});

test("the configuration says how callers are answered of whom nothing is known", async (context) => {
  const { app } = await startTestApp(context, { flags: { "legacy.roleFormat": "enum" } });
  const clients = legacyClients(context, app.url);
  const request = { messages: [{ content: "hello" }] };
  assert.equal(at(await clients.L1.call("Generate", request), "message.role"), "ROLE_ASSISTANT");
  const headers = { "x-role-format": "string" };
  assert.equal(at(await clients.L2.call("Generate", request, headers), "message.role"), "assistant");
});

interface Frame {
  readonly flags: number;
  readonly body: Buffer;
}

/** The messages of a framed body; the last frame, which tells how it ended, is left out. */
function framesOf(bytes: Buffer): Frame[] {
  const frames: Frame[] = [];
  for (let start = 0; start < bytes.length; ) {
    const length = bytes.readUInt32BE(start + 1);
    frames.push({ flags: bytes[start] ?? 0, body: bytes.subarray(start + 5, start + 5 + length) });
    start += 5 + length;
  }
  return frames.filter(({ flags }) => (flags & 0x82) === 0);
}
