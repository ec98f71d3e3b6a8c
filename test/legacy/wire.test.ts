import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { Client, credentials, status } from "@grpc/grpc-js";
import { skillText, toolsText } from "../skill/write-files.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { serverProgram } from "../tool/mcp/start-mcp-servers.ts";
import { at, type Era, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";
import {
  aCount,
  aDouble,
  aFloat,
  anything,
  aTime,
  bytesAt,
  canonical,
  checkMessage,
  double,
  entry,
  eraBytes,
  field,
  float,
  inner,
  mapAt,
  mapWith,
  message,
  some,
  textAt,
  valuesAt,
  type WantFields,
} from "./wire-fixtures.ts";

const plan = {
  goal: "The read me is known.",
  success_criteria: ["Its first line was seen."],
  complexity: "simple",
  steps: [
    {
      ...{ id: "read", kind: "function_call", description: "Read it.", function: "read_file" },
      parameters: { path: "README.md" },
    },
  ],
};
const goal = { description: "Tests are green.", success_criteria: ["No test fails.", "None is skipped."] };
const judged = (state: string) => JSON.stringify({ state, evidence: "It says so." });
const person = { name: "Ada", age: 36 };

/** Together more than clients of gRPC take in one message by default. */
const bigFile = `${"x".repeat(200)}\n`.repeat(1300);
const manyReads = Array.from({ length: 24 }, (_, index) => ({
  name: "read_file",
  arguments: { path: "big.txt", start_line: index + 1 },
}));

const script = `
- when: { text: { contains: write me a plan } }
  text: ${JSON.stringify(JSON.stringify(plan))}
- when: { role: user, text: { contains: read it all } }
  tool_calls: ${JSON.stringify(manyReads)}
- when: { role: user, text: { contains: write } }
  tool_calls: [{ id: call_write, name: write_file, arguments: { path: a.txt, content: a } }]
- when: { role: user, text: { contains: look } }
  text: "I look. "
  tool_calls: [{ id: call_look, name: list_files, arguments: { pattern: "*.md" } }]
- when: { role: tool }
  text: Done.
  usage: { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 }
- when: { text: { contains: wait } }
  text: too late
  first_delay_ms: 60000
- when: { text: { contains: a person } }
  text: '${JSON.stringify(person)}'
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 }
- when: { text: { contains: a plan for reading } }
  text: ${JSON.stringify(JSON.stringify(plan))}
- when: { text: { contains: make the tests green } }
  text: ${JSON.stringify(JSON.stringify(goal))}
- when: { text: "The criterion: No test fails." }
  text: ${JSON.stringify(judged("met"))}
- when: { text: "The criterion:" }
  text: ${JSON.stringify(judged("not_met"))}
- text: hello
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 }
`;

const eras = ["L1", "L2"] as const;
type LaterEra = (typeof eras)[number];

/** Numbers of the enums, as they are in the protos of both eras. */
const active = 1;
const paused = 2;
const lane = { control: 1, query: 2, execute: 3 };
const handler = { internal: 1, external: 2, hybrid: 3 };
const decision = { allow: 1, deny: 2, ask: 3 };
const eventType = { started: 3, completed: 4, called: 5, confirmation: 10, received: 11, stored: 16 };

describe("the earlier service from bytes to bytes", { timeout: 60_000 }, () => {
  const shared = fileContext();
  let app: Awaited<ReturnType<typeof startTestApp>>;
  let protos: Record<Era, LegacyClient>;
  let connections: Record<LaterEra, Client>;
  /** RPCs that were asked. */
  const asked = new Set<string>();

  before(async () => {
    app = await startTestApp(shared, {
      script,
      files: {
        "big.txt": bigFile,
        ".codeagent/skills/one/SKILL.md": skillText("one", toolsText({ run_one: "run.sh" })),
        ".codeagent/skills/one/run.sh": "echo one\n",
      },
    });
    const { host } = new URL(app.app.url);
    protos = legacyClients(shared, app.app.url);
    connections = {
      L1: new Client(host, credentials.createInsecure()),
      L2: new Client(host, credentials.createInsecure()),
    };
    shared.after(() => {
      for (const connection of Object.values(connections)) connection.close();
    });
  });

  const identity = (bytes: Buffer) => bytes;
  const path = (rpc: string) => `/a3s.code.agent.v1.CodeAgentService/${rpc}`;

  /** Sends bytes as they are, with no deadline and no metadata. @throws {ServiceError} of grpc-js. */
  function send(era: LaterEra, rpc: string, request: Buffer): Promise<Buffer> {
    asked.add(rpc);
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    connections[era].makeUnaryRequest(path(rpc), identity, identity, request, (error, answer) =>
      answer === undefined ? reject(error) : resolve(answer),
    );
    return promise;
  }

  function open(era: LaterEra, rpc: string, request: Buffer) {
    asked.add(rpc);
    return connections[era].makeServerStreamRequest(path(rpc), identity, identity, request);
  }

  async function readAll(era: LaterEra, rpc: string, request: Buffer): Promise<readonly Buffer[]> {
    const stream: AsyncIterable<Buffer> = open(era, rpc, request);
    return Array.fromAsync(stream);
  }

  /** What both protos read from the same bytes has to be the same. */
  function decodeByBoth(rpc: string, bytes: Buffer): LegacyMessage {
    const read = protos.L2.decode(rpc, bytes);
    if (protos.L1.rpcs.includes(rpc)) assert.deepEqual(protos.L1.decode(rpc, bytes), read, rpc);
    return read;
  }

  /** Asks over the connection of one era, and looks at the answer's bytes. */
  async function call(era: LaterEra, rpc: string, request: Buffer, want: WantFields): Promise<Buffer> {
    const answer = await send(era, rpc, request);
    checkMessage(answer, want, rpc);
    decodeByBoth(rpc, answer);
    return answer;
  }

  /** As `call`, over both connections at once; for what changes nothing. */
  async function both(rpc: string, request: Buffer, want: WantFields): Promise<Buffer> {
    const [answer] = await Promise.all(eras.map((era) => call(era, rpc, request, want)));
    return answer ?? assert.fail();
  }

  async function refused(rpc: string, request: Buffer, code: status, words: RegExp): Promise<void> {
    for (const era of eras)
      await assert.rejects(send(era, rpc, request), (error) => {
        assert.equal(at(error, "code"), code, `${rpc}: ${String(error)}`);
        assert.match(String(at(error, "details")), words, rpc);
        return true;
      });
  }

  const none = message();
  const inSession = (id: string, ...more: readonly Buffer[]) => message(field(1, id), ...more);
  const says = (era: LaterEra, no: number, words: string) =>
    inner(no, field(1, era === "L1" ? 1 : "user"), field(2, words));
  const sessionWith = (id: string, more: WantFields = {}): WantFields => ({
    ...{ 1: id, 2: { 2: app.workspace }, 3: active, 5: aTime, 6: aTime },
    ...more,
  });

  test("health, capabilities, initialization", async () => {
    await both("HealthCheck", none, { 1: 1, 2: /ready/, 3: mapWith({ version: /./ }) });
    await both("GetCapabilities", none, {
      1: { 1: "codeagent", 2: /^\d/, 3: /./, 5: /./ },
      2: some("memory"),
      3: some({ 1: "read_file", 2: /./, 3: some("path") }),
      4: [{ 1: "scripted", 2: "test", 3: some("tools") }],
      5: { 2: aCount, 3: aCount },
      6: mapWith({ max_message_bytes: /^\d+$/ }),
    });
    const info = { 1: "codeagent", 2: /^\d/, 3: /./, 5: /./ };
    const elsewhere = message(field(1, "/nowhere/at/all"), entry(2, "PATH", "/tmp"));
    await both("Initialize", elsewhere, { 2: /PATH|variable/, 3: info });
    await both("Initialize", message(field(1, app.workspace)), { 1: true, 2: "ready", 3: info });
  });

  test("a server that is part of another program is not shut down", async () => {
    await refused("Shutdown", none, status.UNIMPLEMENTED, /part of another program/);
  });

  test("sessions: what one era makes the other reads, configures and lists", async () => {
    const config = inner(
      2,
      field(1, "One"),
      field(2, app.workspace),
      inner(3, field(1, "scripted"), field(2, "test"), field(3, "sk-secret"), float(5, 0.5), field(6, 100)),
      field(4, "Be short."),
      field(5, 1000),
      field(6, true),
      field(7, 2),
    );
    const context = [
      inner(3, field(1, 3), field(2, "Be kind."), entry(3, "k", "v")),
      inner(3, field(1, 2), field(2, "Hi.")),
    ];
    const shownConfig: WantFields = {
      ...{ 1: "One", 2: app.workspace, 4: "Be short.", 5: 1000, 6: true, 7: 2 },
      3: { 1: "scripted", 2: "test", 5: aFloat(0.5), 6: 100 },
    };
    const usage = { 1: aCount, 2: aCount, 3: aCount, 4: 2 };
    const created = message(field(1, "wire"), config, ...context);
    const shown = sessionWith("wire", { 2: shownConfig, 4: usage });
    const answer = await call("L1", "CreateSession", created, { 1: "wire", 2: shown });
    assert.ok(!answer.includes("sk-secret"));
    await both("GetSession", inSession("wire"), { 1: shown });
    await both("ListSessions", none, { 1: [{ ...shown, 4: { 4: 2 } }] });

    const ofStrings = [
      inner(3, field(1, "system"), field(2, "Be kind.")),
      inner(3, field(1, "assistant"), field(2, "Hi.")),
    ];
    await call("L2", "CreateSession", message(field(1, "other"), ...ofStrings), {
      1: "other",
      2: sessionWith("other", { 4: usage }),
    });
    const unnamed = textAt(await call("L1", "CreateSession", none, { 1: /./, 2: anything }), 1);
    await both("ListSessions", none, {
      1: some(sessionWith(unnamed, { 4: {} })),
    });
    await call("L2", "DestroySession", inSession(unnamed), { 1: true });
    await refused("GetSession", inSession(unnamed), status.NOT_FOUND, new RegExp(unnamed));

    const changed = message(field(1, "wire"), inner(2, field(1, "Two")));
    await call("L2", "ConfigureSession", changed, { 1: { ...shown, 2: { ...shownConfig, 1: "Two" } } });
    const first = { 1: /./, 2: "system", 3: { 1: { 1: "Be kind." } }, 4: aTime, 5: mapWith({ k: "v" }) };
    const second = { 1: /./, 2: "assistant", 3: { 1: { 1: "Hi." } }, 4: aTime };
    await both("GetMessages", inSession("wire"), { 1: [first, second], 2: 2 });
    await both("GetMessages", inSession("wire", field(2, 1)), { 1: first, 2: 2, 3: true });
    await both("GetMessages", inSession("wire", field(2, 5), field(3, 1)), { 1: second, 2: 2 });
  });

  for (const era of ["L0", "L1", "L2"] as const) {
    const connection = era === "L0" ? "L1" : era;
    const fixture = eraBytes[era];

    test(`Generate, byte by byte: ${era}`, async () => {
      for (const request of [fixture.request, fixture.withMetadata]) {
        const answer = await send(connection, "Generate", Buffer.from(request, "hex"));
        const [facts, rest] = [valuesAt(answer, 6), canonical(answer, 2).filter((each) => !each.startsWith("6:"))];
        assert.deepEqual(rest, canonical(Buffer.from(fixture.response, "hex"), 2));
        assert.equal(facts.length, 2);
        assert.match(mapAt(answer, 6, "turn_id"), /^turn_/);
        assert.equal(mapAt(answer, 6, "model"), "scripted/test");
        const read = protos[era].decode("Generate", answer);
        const word = (prefix: string, own: string) => (era === "L2" ? own : `${prefix}_${own.toUpperCase()}`);
        assert.equal(at(read, "message.role"), word("ROLE", "assistant"));
        assert.equal(at(read, "message.content"), "hello");
        assert.equal(at(read, "finish_reason"), word("FINISH_REASON", "stop"));
      }
    });

    test(`StreamGenerate, byte by byte: ${era}`, async () => {
      for (const request of [fixture.request, fixture.withMetadata]) {
        const chunks = await readAll(connection, "StreamGenerate", Buffer.from(request, "hex"));
        assert.deepEqual(
          chunks.map((chunk) => canonical(chunk)),
          [fixture.content, fixture.done].map((chunk) => canonical(Buffer.from(chunk, "hex"))),
        );
      }
    });
  }

  test("the metadata of messages came through in all layouts", async () => {
    const history = await both("GetMessages", inSession("wire", field(3, 2)), { 1: anything, 2: 26 });
    const withK = valuesAt(history, 1).filter((each) => Buffer.isBuffer(each) && valuesAt(each, 5).length > 0);
    assert.equal(withK.length, 6);
    for (const each of withK) assert.equal(mapAt(Buffer.isBuffer(each) ? each : none, 5, "k"), "v");
  });

  for (const era of eras) {
    const word = (number: number, text: string) => (era === "L1" ? number : text);

    test(`a turn with a tool: ${era}`, async () => {
      const request = inSession("wire", says(era, 2, "look"));
      const chunks = await readAll(era, "StreamGenerate", request);
      const toolCall = { 1: /^call_/, 2: "list_files", 3: '{"pattern":"*.md"}' };
      const toolResult = { 1: true, 2: /README\.md/ };
      const ofType = (number: number, text: string, more: WantFields): WantFields => ({
        ...{ 1: word(number, text), 2: "wire" },
        ...more,
      });
      const tokens = mapWith({ prompt_tokens: "20", completion_tokens: "5", total_tokens: "25" });
      const wanted = [
        ofType(1, "content", { 3: "I look. " }),
        ofType(2, "tool_call", { 4: toolCall }),
        ofType(3, "tool_result", { 5: toolResult, 6: mapWith({ tool_call_id: /^call_/, tool_name: "list_files" }) }),
        ofType(1, "content", { 3: "Done." }),
        ofType(5, "done", { 3: "I look. Done.", 6: tokens, ...(era === "L1" ? {} : { 7: "stop" }) }),
      ];
      assert.equal(chunks.length, wanted.length);
      for (const [index, chunk] of chunks.entries()) checkMessage(chunk, wanted[index] ?? {}, `chunk ${index}`);

      const answer = await send(era, "Generate", request);
      checkMessage(
        answer,
        {
          ...{ 1: "wire", 2: { 1: word(2, "assistant"), 2: "Done." }, 3: { ...toolCall, 4: toolResult } },
          ...{ 4: { 1: 20, 2: 5, 3: 25 }, 5: word(1, "stop"), 6: mapWith({ model: "scripted/test" }) },
        },
        "Generate",
      );
    });

    test(`structured answers: ${era}`, async () => {
      const schema = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } } };
      const request = inSession("other", says(era, 2, "a person"), field(3, JSON.stringify(schema)));
      const answer = await call(era, "GenerateStructured", request, {
        ...{ 1: "other", 2: /./, 3: { 1: 3, 2: 1, 3: 4 }, 4: mapWith({ model: "scripted/test" }) },
      });
      assert.deepEqual(JSON.parse(textAt(answer, 2)), person);
      const chunks = await readAll(era, "StreamGenerateStructured", request);
      assert.equal(chunks.length, 2);
      const [first = none, last = none] = chunks;
      checkMessage(first, { 1: "other", 2: textAt(answer, 2) }, "the first chunk");
      checkMessage(last, { 1: "other", 3: true }, "the last chunk");
      for (const chunk of chunks) decodeByBoth("StreamGenerateStructured", chunk);
    });
  }

  test("an answer with many results fits what clients take by default", async () => {
    const answer = await send("L1", "Generate", message(says("L1", 2, "read it all")));
    const results = valuesAt(answer, 3).map((call) => (Buffer.isBuffer(call) ? call : none));
    assert.equal(results.length, manyReads.length);
    for (const result of results) {
      assert.match(textAt(result, 4, 2), /bytes left out/);
      assert.equal(mapAt(bytesAt(result, 4), 4, "truncated"), "true");
    }
    assert.ok(answer.length > 2 * 1024 * 1024);
    assert.equal(textAt(answer, 2, 2), "Done.");
  });

  test("in a turn without a session nobody can approve: it is denied at once, and a stream can be approved", async () => {
    for (const era of eras) {
      const answer = await send(era, "Generate", message(says(era, 2, "write")));
      const denied = /^not run: .*nobody can be asked in a turn without a session/;
      checkMessage(bytesAt(answer, 3, 4), { 3: denied }, "the result");
      assert.equal(textAt(answer, 2, 2), "Done.");
      const stream = open(era, "StreamGenerate", message(says(era, 2, "write")));
      const chunks: AsyncIterable<Buffer> = stream;
      let result = none;
      for await (const chunk of chunks) {
        if (valuesAt(chunk, 5).length > 0) result = bytesAt(chunk, 5);
        if (valuesAt(chunk, 4).length === 0) continue;
        const approval = [field(2, textAt(chunk, 4, 1)), field(3, true)];
        await approved(era, inSession(textAt(chunk, 2), ...approval));
      }
      assert.deepEqual(valuesAt(result, 1), [1n]);
    }
  });

  /** Approves as soon as something waits for it: a call is told before it is judged. */
  async function approved(era: LaterEra, approval: Buffer): Promise<void> {
    for (;;) {
      const answer = await send(era, "ConfirmToolExecution", approval).catch(() => none);
      if (valuesAt(answer, 1)[0] === 1n) return;
      await new Promise(setImmediate);
    }
  }

  test("skills", async () => {
    const described = { 1: "one", 2: "It does one", 3: "run_one" };
    await both("ListSkills", none, { 1: { ...described, 4: mapWith({ scope: "workspace" }) } });
    const one = (no: number) => field(no, "one");
    await call("L1", "UnloadSkill", inSession("wire", one(2)), { 1: true, 2: "run_one" });
    await both("ListSkills", inSession("wire"), { 1: { ...described, 4: mapWith({ loaded: "false" }) } });
    await call("L2", "LoadSkill", inSession("wire", one(2)), { 1: true, 2: "run_one" });
    await both("ListSkills", inSession("wire"), { 1: { ...described, 4: mapWith({ loaded: "true" }) } });
    const text = { 1: "one", 2: "It does one", 5: "How to one.\n" };
    await both("GetClaudeCodeSkills", none, { 1: text });
    await both("GetClaudeCodeSkills", message(one(1)), { 1: text });
    const withText = inSession("wire", one(2), field(3, "# code"));
    await refused("LoadSkill", withText, status.UNIMPLEMENTED, /skill_content is not taken/);
  });

  test("context: usage, compaction, clearing", async () => {
    await call("L1", "CreateSession", message(field(1, "short"), says("L1", 3, "One.")), { 1: "short", 2: anything });
    const usage = { 1: aCount, 2: aCount, 4: 1 };
    await both("GetContextUsage", inSession("short"), { 1: usage });
    await call("L2", "CompactContext", inSession("short"), { 1: true, 2: usage, 3: usage });
    await call("L1", "ClearContext", inSession("short"), { 1: true });
    await both("GetContextUsage", inSession("short"), { 1: {} });
    await both("GetMessages", inSession("short"), {});
  });

  test("control: a pause that the other era sees and ends", async () => {
    await call("L1", "Pause", inSession("other"), { 1: true });
    await both("GetSession", inSession("other"), { 1: sessionWith("other", { 3: paused, 4: anything }) });
    await call("L2", "Resume", inSession("other"), { 1: true });
    await both("GetSession", inSession("other"), { 1: sessionWith("other", { 4: anything }) });
    await both("Cancel", inSession("other"), {});
  });

  /** Subscribes, waits until the server listens, and reads along. */
  async function listen(era: LaterEra, request: Buffer) {
    const stream = open(era, "SubscribeEvents", request);
    await new Promise((resolve) => stream.once("metadata", resolve));
    const seen: Buffer[] = [];
    let wake: (() => void) | undefined;
    stream.on("error", () => undefined);
    stream.on("data", (event: Buffer) => {
      decodeByBoth("SubscribeEvents", event);
      seen.push(event);
      wake?.();
    });
    return {
      cancel: () => stream.cancel(),
      async next(type: number): Promise<Buffer> {
        for (;;) {
          const found = seen.find((event) => valuesAt(event, 1)[0] === BigInt(type));
          if (found !== undefined) return found;
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      },
    };
  }

  for (const [era, other] of [
    ["L1", "L2"],
    ["L2", "L1"],
  ] as const) {
    test(`${era} asks, ${other} hears of it, approves and cancels`, async () => {
      const id = `shared-${era}`;
      await call(era, "CreateSession", message(field(1, id)), { 1: id, 2: anything });
      const events = await listen(other, inSession(id));
      const writing = send(era, "Generate", inSession(id, says(era, 2, "write")));
      const event = await events.next(eventType.confirmation);
      const about = { tool_name: "write_file", arguments: '{"path":"a.txt","content":"a"}' };
      checkMessage(event, { 1: eventType.confirmation, 2: id, 3: aTime, 4: /./, 5: mapWith(about) }, "the event");
      const approval = inSession(id, field(2, mapAt(event, 5, "tool_id")), field(3, true));
      await call(other, "ConfirmToolExecution", approval, { 1: true });
      assert.equal(textAt(await writing, 2, 2), "Done.");
      assert.ok(existsSync(join(app.workspace, "a.txt")));
      await call(other, "ConfirmToolExecution", approval, { 2: /answered allow_once/ });
      for (const type of [eventType.started, eventType.called, eventType.received, eventType.completed])
        checkMessage(await events.next(type), { 1: type, 2: id, 3: aTime, 4: /./, 5: anything }, "an event");
      events.cancel();

      const later = await listen(other, inSession(id, field(2, "EVENT_TYPE_GENERATION_STARTED")));
      const waiting = send(era, "Generate", inSession(id, says(era, 2, "wait")));
      const turnId = mapAt(await later.next(eventType.started), 5, "turn_id");
      await call(other, "Cancel", inSession(id, field(2, turnId)), { 1: true });
      const cancelled = await waiting;
      assert.deepEqual(valuesAt(cancelled, 5), era === "L1" ? [1n] : [Buffer.from("stop")]);
      assert.equal(mapAt(cancelled, 6, "finish_reason"), "cancelled");
      later.cancel();
    });
  }

  test("confirmation policies: nothing is approved by silence", async () => {
    const policy = message(field(1, false), field(2, "Read"), field(3, "Bash"), field(4, 5000), field(5, 2));
    const lanes = Buffer.from("32020203", "hex"); // packed, as clients of proto3 write it
    const inForce = { 1: true, 2: "Read", 3: "Bash", 4: 5000, 5: 1 };
    const set = inSession("wire", field(2, message(policy, lanes)));
    await call("L1", "SetConfirmationPolicy", set, { 1: true, 2: inForce });
    await both("GetConfirmationPolicy", inSession("wire"), { 1: inForce });
  });

  test("lanes and the tasks of others", async () => {
    await call("L2", "CreateSession", message(field(1, "lanes")), { 1: "lanes", 2: anything });
    const external = inner(3, field(1, handler.external), field(2, 30_000));
    const set = inSession("lanes", field(2, lane.query), external);
    await call("L1", "SetLaneHandler", set, { 1: true, 2: { 1: handler.external, 2: 30_000 } });
    const ofLane = (number: number) => inSession("lanes", field(2, number));
    await both("GetLaneHandler", ofLane(lane.query), { 1: { 1: handler.external, 2: 30_000 } });
    await both("GetLaneHandler", ofLane(lane.control), { 1: { 1: handler.internal, 2: 60_000 } });
    await both("ListPendingExternalTasks", inSession("lanes"), {});

    const events = await listen("L1", inSession("lanes"));
    const looking = send("L2", "Generate", inSession("lanes", says("L2", 2, "look")));
    const pending = await events.next(13);
    const tasks = await both("ListPendingExternalTasks", inSession("lanes"), {
      1: {
        ...{ 1: mapAt(pending, 5, "task_id"), 2: "lanes", 3: lane.query, 4: "list_files", 5: '{"pattern":"*.md"}' },
        ...{ 6: aCount, 7: aCount },
      },
    });
    const taskId = field(2, textAt(tasks, 1, 1));
    const done = inSession("lanes", taskId, field(3, true), field(4, "theirs.md"));
    await call("L1", "CompleteExternalTask", done, { 1: true });
    checkMessage(
      bytesAt(await looking, 3),
      { 1: /^call_/, 2: "list_files", 3: /./, 4: { 1: true, 2: "theirs.md" } },
      "the call",
    );
    const otherwise = inSession("lanes", taskId, field(3, false), field(5, "no"));
    await call("L2", "CompleteExternalTask", otherwise, { 2: /answered/ });
    events.cancel();
  });

  test("permissions", async () => {
    const rule = (no: number, text: string) => inner(no, field(1, text));
    const policy = inner(
      2,
      ...[rule(1, "Bash(rm:*)"), rule(2, "Read(*)"), rule(2, "bash(npm run test:*)"), rule(3, "Write(src/**)")],
      ...[field(4, decision.ask), field(5, true)],
    );
    const shown = {
      1: { 1: "Bash(rm:*)" },
      2: [{ 1: "Read(*)" }, { 1: "bash(npm run test:*)" }],
      3: { 1: "Write(src/**)" },
      ...{ 4: decision.ask, 5: true },
    };
    await call("L2", "CreateSession", message(field(1, "rules")), { 1: "rules", 2: anything });
    await call("L1", "SetPermissionPolicy", inSession("rules", policy), { 1: true, 2: shown });
    await both("GetPermissionPolicy", inSession("rules"), { 1: shown });
    const rows: readonly (readonly [tool: string, args: object, decision: number, rule?: string])[] = [
      ["Bash", { command: "rm -rf x" }, decision.deny, "Bash(rm:*)"],
      ["BASH", { command: "rm -rf x" }, decision.deny, "Bash(rm:*)"],
      ["bash", { command: "npm run test --all" }, decision.allow, "bash(npm run test:*)"],
      ["Bash", { command: "ls" }, decision.ask],
      ["Read", { file_path: "README.md" }, decision.allow, "Read(*)"],
      ["Write", { file_path: "src/a/b.ts", content: "" }, decision.ask, "Write(src/**)"],
      ["mcp__github__create_issue", {}, decision.ask],
    ];
    for (const [tool, args, decided, matching] of rows) {
      const question = inSession("rules", field(2, tool), field(3, JSON.stringify(args)));
      await both("CheckPermission", question, { 1: decided, ...(matching === undefined ? {} : { 2: matching }) });
    }
    const added = inSession("rules", field(2, "allow"), field(3, "mcp__github__*"));
    await call("L2", "AddPermissionRule", added, { 1: true });
    const question = inSession("rules", field(2, "mcp__github__create_issue"), field(3, "{}"));
    await both("CheckPermission", question, { 1: decision.allow, 2: "mcp__github__*" });
  });

  test("todos", async () => {
    const todo = (id: string, content: string, state: string, priority: string) =>
      inner(2, field(1, id), field(2, content), field(3, state), field(4, priority));
    const set = inSession("wire", todo("a", "First", "in_progress", "high"), todo("b", "Second", "pending", "low"));
    const shown = [
      { 1: "a", 2: "First", 3: "in_progress", 4: "high" },
      { 1: "b", 2: "Second", 3: "pending", 4: "low" },
    ];
    await call("L1", "SetTodos", set, { 1: true, 2: shown });
    await both("GetTodos", inSession("wire"), { 1: shown });
    await call("L2", "SetTodos", inSession("wire"), { 1: true });
    await both("GetTodos", inSession("wire"), {});
  });

  test("providers: keys go in and never come out", async () => {
    const cost = inner(12, double(1, 3), double(2, 15), double(3, 0.5));
    const model = inner(4, field(1, "big"), field(2, "Big"), cost, inner(13, field(1, 1000), field(2, 100)));
    const provider = (key: string) =>
      inner(1, field(1, "corp"), field(2, key), field(3, "http://127.0.0.1:9/v1"), model);
    const shownModel = {
      ...{ 1: "big", 2: "Big", 6: true, 7: true, 8: true, 9: true, 11: { 1: some("text"), 2: "text" } },
      12: { 1: aDouble(3), 2: aDouble(15), 3: aDouble(0.5), 4: anything },
      13: { 1: 1000, 2: 100 },
    };
    const shown = { 1: "corp", 3: "http://127.0.0.1:9/v1", 4: shownModel };
    await call("L1", "AddProvider", message(provider("sk-wire-secret")), { 1: true, 3: shown });
    await both("GetProvider", message(field(1, "corp")), { 1: shown });
    const listed = await both("ListProviders", none, { 1: some(shown), 2: "scripted", 3: "test" });
    assert.ok(!listed.includes("sk-wire"));
    await call("L2", "UpdateProvider", message(provider("sk-wire-other")), { 1: true, 3: shown });
    await both("GetDefaultModel", none, { 1: "scripted", 2: "test" });
    await call("L1", "SetDefaultModel", message(field(1, "corp"), field(2, "big")), { 1: true, 3: "corp", 4: "big" });
    await both("GetDefaultModel", none, { 1: "corp", 2: "big" });
    await call("L2", "SetDefaultModel", none, { 1: true, 3: "scripted", 4: "test" });
    await call("L2", "RemoveProvider", message(field(1, "corp")), { 1: true });
    await refused("GetProvider", message(field(1, "corp")), status.NOT_FOUND, /corp/);
  });

  test("plans and goals", async () => {
    const step = { 1: "read", 2: "Read it.", 3: "read_file", 5: 1 };
    const shown = { 1: { 1: "The read me is known.", 2: step, 3: 1, 4: "read_file", 5: 1 } };
    for (const [era, words] of [
      ["L1", "write me a plan"],
      ["L2", "a plan for reading"],
    ] as const)
      await call(era, "CreatePlan", inSession("other", field(2, words), field(3, "in short")), shown);
    await both("GetPlan", inSession("other"), shown);
    const wanted = { 1: goal.description, 2: goal.success_criteria, 5: aTime };
    const found = await call("L1", "ExtractGoal", inSession("other", field(2, "make the tests green")), { 1: wanted });
    const current = inSession("other", field(2, bytesAt(found, 1)), field(3, "All green, one skipped."));
    await both("CheckGoalAchievement", current, { 2: aFloat(0.5), 3: "None is skipped." });
  });

  test("memories", async () => {
    const item = (content: string, kind: number, tag: string) =>
      inner(2, field(2, content), float(4, 0.75), field(5, tag), field(6, kind), entry(7, "k", "v"));
    const events = await listen("L2", none);
    const stored = inSession("wire", item("The port is 4088.", 2, "network"));
    const id = textAt(await call("L1", "StoreMemory", stored, { 1: true, 2: /./ }), 2);
    const told = await events.next(eventType.stored);
    checkMessage(told, { 1: eventType.stored, 2: "wire", 3: aTime, 4: /./, 5: mapWith({ memory_id: id }) }, "an event");
    events.cancel();
    const other = inSession("wire", item("Tests ran at noon.", 1, "tests"));
    await call("L2", "StoreMemory", other, { 1: true, 2: /./ });
    const shown = {
      1: id,
      2: "The port is 4088.",
      3: aTime,
      4: aFloat(0.75),
      5: "network",
      6: 2,
      7: mapWith({ k: "v" }),
    };
    await call("L2", "RetrieveMemory", inSession("wire", field(2, id)), { 1: { ...shown, 8: 1, 9: aTime } });
    const read = { ...shown, 8: 1, 9: aTime };
    for (const search of [field(2, "port"), field(3, "network")])
      await both("SearchMemories", inSession("wire", search), { 1: read, 2: 1 });
    await both("SearchMemories", inSession("wire", field(4, 1), field(5, true)), { 1: anything, 2: 2 });
    await both("SearchMemories", inSession("wire", field(2, "zebra")), {});
    await both("GetMemoryStats", inSession("wire"), { 1: { 1: 1, 2: 1 } });
    await call("L1", "ClearMemories", inSession("wire", field(2, true)), { 1: true, 2: 1 });
    await both("GetMemoryStats", inSession("wire"), { 1: { 2: 1 } });
    await refused("RetrieveMemory", inSession("wire", field(2, id)), status.NOT_FOUND, /no memory/);
  });

  test("MCP servers", async () => {
    const stdio = inner(1, field(1, process.execPath), field(2, serverProgram("everything")));
    const described = inner(
      1,
      field(1, "everything"),
      inner(2, stdio),
      field(3, true),
      entry(4, "SECRET_OF_IT", "never-shown"),
    );
    await call("L2", "RegisterMcpServer", message(described), { 1: true, 2: /everything is registered/ });
    const connected = await call("L1", "ConnectMcpServer", message(field(1, "everything")), {
      ...{ 1: true, 3: some("mcp__everything__echo") },
    });
    const count = valuesAt(connected, 3).length;
    const listed = await both("ListMcpServers", none, { 1: { 1: "everything", 2: true, 3: true, 4: count } });
    const echo = { 1: "mcp__everything__echo", 2: "everything", 3: "echo", 4: /./, 5: /"object"/ };
    const tools = await both("GetMcpTools", none, { 1: some(echo) });
    await both("GetMcpTools", message(field(1, "everything")), { 1: some(echo) });
    for (const answer of [connected, listed, tools]) assert.ok(!answer.includes("never-shown"));
    await call("L2", "DisconnectMcpServer", message(field(1, "everything")), { 1: true });
    await both("ListMcpServers", none, { 1: { 1: "everything" } });
  });

  test("language servers: refused where there is none, and listed", async () => {
    await both("ListLspServers", none, {});
    await refused("StartLspServer", message(field(1, "cobol")), status.UNIMPLEMENTED, /cobol/);
    await refused(
      "StartLspServer",
      message(field(1, "rust"), field(2, "ftp://x")),
      status.INVALID_ARGUMENT,
      /root_uri/,
    );
    await refused("StopLspServer", message(field(1, "python")), status.NOT_FOUND, /python/);
    const place = message(field(1, "a.py"), field(2, 1), field(3, 2));
    const including = message(place, field(4, true));
    for (const [rpc, request] of [
      ["LspHover", place],
      ["LspDefinition", place],
      ["LspReferences", including],
      ["LspSymbols", message(field(1, "name"), field(2, 5))],
      ["LspDiagnostics", message(field(1, "a.py"))],
    ] as const)
      await refused(rpc, request, status.FAILED_PRECONDITION, /StartLspServer|no language server/);
    await refused("LspHover", message(field(2, 1)), status.INVALID_ARGUMENT, /file_path/);
  });

  test("cron jobs", async () => {
    const made = message(field(1, "nightly"), field(2, "every day at 2am"), field(3, "echo saved"), field(4, 5000));
    const fields = { 2: "nightly", 3: "0 2 * * *", 4: "echo saved", 6: 5000, 7: aTime, 8: aTime, 13: app.workspace };
    const shown = { 1: /./, ...fields, 5: 1, 10: aTime };
    const created = await call("L1", "CreateCronJob", made, { 1: true, 2: shown });
    const id = field(1, textAt(created, 2, 1));
    await call("L2", "CreateCronJob", made, { 3: /nightly already/ });
    await both("GetCronJob", message(id), { 1: shown });
    await both("GetCronJob", message(field(2, "nightly")), { 1: shown });
    await both("ListCronJobs", none, { 1: shown });
    const updated = { ...shown, 3: "30 2 * * *" };
    await call("L2", "UpdateCronJob", message(id, field(2, "30 2 * * *")), { 1: true, 2: updated });
    const { 10: _, ...pausedJob } = { ...updated, 5: 2 };
    await call("L1", "PauseCronJob", message(id), { 1: true, 2: pausedJob });
    await call("L2", "ResumeCronJob", message(id), { 1: true, 2: updated });
    const jobId = textAt(created, 2, 1);
    const ran = { 1: /./, 2: jobId, 3: 1, 4: aTime, 5: aTime, 6: anything, 7: 0, 8: "saved\n" };
    await call("L1", "RunCronJob", message(id), { 1: true, 2: ran });
    await both("GetCronHistory", message(id, field(2, 5)), { 1: ran });
    await call("L2", "DeleteCronJob", message(id), { 1: true });
    await refused("GetCronJob", message(id), status.NOT_FOUND, /no cron job/);
    await both("ParseCronSchedule", message(field(1, "every 5 minutes")), {
      1: true,
      2: "*/5 * * * *",
      3: /5 minutes/i,
    });
    await both("ParseCronSchedule", message(field(1, "now and then")), { 4: /./ });
  });

  test("unknown ids are not found", async () => {
    const unknown = field(1, "nobody");
    const second = field(2, "nobody");
    const ofSession = [
      ...["DestroySession", "GetSession", "ConfigureSession", "GetMessages", "ListSkills", "GetContextUsage"],
      ...["CompactContext", "ClearContext", "SubscribeEvents", "Cancel", "Pause", "Resume", "GetConfirmationPolicy"],
      ...["ListPendingExternalTasks", "GetPermissionPolicy", "GetTodos", "SetTodos", "GetMemoryStats", "ClearMemories"],
      ...["SearchMemories", "GetPlan"],
    ];
    const rows: readonly (readonly [rpc: string, request: Buffer])[] = [
      ...ofSession.map((rpc) => [rpc, message(unknown)] as const),
      ...["LoadSkill", "UnloadSkill"].map((rpc) => [rpc, inSession("wire", second)] as const),
      ["LoadSkill", message(unknown, field(2, "one"))],
      ["GetClaudeCodeSkills", message(unknown)],
      ["ConfirmToolExecution", inSession("wire", second)],
      ["ConfirmToolExecution", message(unknown, second)],
      ["CompleteExternalTask", inSession("wire", second)],
      ["SetConfirmationPolicy", message(unknown, inner(2))],
      ["SetPermissionPolicy", message(unknown, inner(2))],
      ["CheckPermission", message(unknown, second)],
      ["AddPermissionRule", message(unknown, field(2, "allow"), field(3, "Read"))],
      ["SetLaneHandler", message(unknown, field(2, lane.query), inner(3, field(1, handler.internal)))],
      ["GetLaneHandler", message(unknown, field(2, lane.query))],
      ["GetProvider", message(unknown)],
      ["RemoveProvider", message(unknown)],
      ["UpdateProvider", message(inner(1, unknown))],
      ["SetDefaultModel", message(unknown, second)],
      ["CreatePlan", message(unknown, field(2, "write me a plan"))],
      ["GetPlan", inSession("wire", second)],
      ["ExtractGoal", message(unknown, field(2, "make the tests green"))],
      ["CheckGoalAchievement", message(unknown, inner(2, field(1, "x")))],
      ["StoreMemory", message(unknown, inner(2, field(2, "x")))],
      ["RetrieveMemory", message(unknown, second)],
      ["RetrieveMemory", inSession("wire", second)],
      ...["ConnectMcpServer", "DisconnectMcpServer", "GetMcpTools"].map((rpc) => [rpc, message(unknown)] as const),
      ...["GetCronJob", "UpdateCronJob", "PauseCronJob", "ResumeCronJob", "DeleteCronJob", "GetCronHistory"].map(
        (rpc) => [rpc, message(unknown)] as const,
      ),
      ["RunCronJob", message(unknown)],
    ];
    for (const [rpc, request] of rows) await refused(rpc, request, status.NOT_FOUND, /nobody/);
  });

  test("a turn in a session nobody made is refused as an unknown id, in both eras", async () => {
    for (const era of eras)
      for (const rpc of ["Generate", "GenerateStructured"]) {
        const request = message(field(1, "nobody"), says(era, 2, "hello"), field(3, "{}"));
        await assert.rejects(send(era, rpc, request), { code: status.NOT_FOUND }, `${era} ${rpc}`);
      }
  });

  test("both eras at once, in the same session and in their own", async () => {
    // The first turn after a list of todos was set begins with a message about it.
    await send("L1", "Generate", Buffer.from(eraBytes.L1.request, "hex"));
    const before = Number(
      protos.L2.decode("GetMessages", await send("L2", "GetMessages", inSession("wire")))["total_count"],
    );
    const work: Promise<unknown>[] = [];
    for (let round = 0; round < 6; round++)
      for (const era of eras) {
        const fixture = eraBytes[era];
        work.push(
          send(era, "Generate", Buffer.from(fixture.request, "hex")).then((answer) => {
            const rest = canonical(answer, 2).filter((each) => !each.startsWith("6:"));
            assert.deepEqual(rest, canonical(Buffer.from(fixture.response, "hex"), 2));
          }),
          readAll(era, "StreamGenerate", message(says(era, 2, "hello"))).then((chunks) => {
            const types = chunks.map((chunk) => valuesAt(chunk, 1)[0]);
            assert.deepEqual(types, era === "L1" ? [1n, 5n] : [Buffer.from("content"), Buffer.from("done")]);
          }),
          call(era, "StoreMemory", inSession("other", inner(2, field(2, `${era} was here`))), { 1: true, 2: /./ }),
          both("GetSession", inSession("wire"), { 1: anything }),
        );
      }
    await Promise.all(work);
    await both("GetMessages", inSession("wire", field(2, 1)), { 1: anything, 2: before + 24, 3: true });
    await both("SearchMemories", inSession("other", field(2, "here"), field(4, 50)), { 1: anything, 2: 12 });
  });

  const json = [
    { rpc: "GetSession", request: { sessionId: "wire" }, path: "session.createdAt" },
    { rpc: "GetMessages", request: { session_id: "wire" }, path: "messages.0.timestamp" },
    { rpc: "GetConfirmationPolicy", request: { sessionId: "wire" }, path: "policy.defaultTimeoutMs", is: "5000" },
    {
      rpc: "SetLaneHandler",
      request: { sessionId: "other", lane: 2, config: { mode: "TASK_HANDLER_MODE_HYBRID", timeoutMs: "2500" } },
      path: "config.timeoutMs",
      is: "2500",
    },
    {
      rpc: "StoreMemory",
      request: { sessionId: "json", memory: { id: "m1", content: "x", timestamp: "1700000000001" } },
      path: "memoryId",
      is: "m1",
    },
    {
      rpc: "RetrieveMemory",
      request: { sessionId: "json", memoryId: "m1" },
      path: "memory.timestamp",
      is: "1700000000001",
    },
  ];
  test("in JSON numbers of 64 bits are strings", async () => {
    await call("L1", "CreateSession", message(field(1, "json")), { 1: "json", 2: anything });
    for (const { rpc, request, path: where, is } of json) {
      const answer = await fetch(`${app.app.url}${path(rpc)}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(request),
      });
      const body: unknown = await answer.json();
      assert.equal(answer.status, 200, `${rpc}: ${JSON.stringify(body)}`);
      const value = at(body, where);
      assert.ok(typeof value === "string" && /^[1-9]\d*$|^m1$/.test(value), `${rpc}: ${JSON.stringify(body)}`);
      if (is !== undefined) assert.equal(value, is, rpc);
    }
  });

  test("every RPC of the later era was asked", () => {
    assert.equal(protos.L2.rpcs.length, 77);
    assert.deepEqual([...asked].toSorted(), [...protos.L2.rpcs].toSorted());
  });
});
