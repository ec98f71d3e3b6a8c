import assert from "node:assert/strict";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { Client } from "@connectrpc/connect";
import type { CodeAgentService, GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { arrayOf, objectOf, parseJson } from "../../src/dialect/json.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import {
  call,
  type DialectId,
  dialectIds,
  dialectOf,
  errorEvent,
  eventsThrough,
  providerAt,
  says,
  text,
  thinking,
} from "../provider/answers.ts";
import { type Answer, eventStream, startUpstream } from "../provider/upstream.ts";
import { startTestApp, user } from "../support/test-app.ts";

type ServiceClient = Client<typeof CodeAgentService>;

/** Tools that say which calls ran; calls with the ids to hold run until they are stopped. */
function heldTools(hold: readonly string[]) {
  const ran: string[] = [];
  const { promise: held, resolve } = Promise.withResolvers<void>();
  const provider: FunctionProvider = {
    source: "local",
    list: async () =>
      ["look", "change"].map((name) => ({
        name,
        description: name,
        parameters: '{"type":"object"}',
        source: "local",
        readOnly: name === "look",
        timeoutMs: 30_000,
      })),
    async call(_, { toolCallId, signal }) {
      ran.push(toolCallId);
      if (!hold.includes(toolCallId)) return { success: true, output: "all done" };
      resolve();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    },
    close: async () => undefined,
  };
  return { provider, ran, held };
}

interface Stage {
  readonly client: ServiceClient;
  readonly sessionId: string;
  /** Resolves when a call that is held runs. */
  readonly held: Promise<void>;
  /** The service as it would start after a kill at this moment. */
  restart(): Promise<ServiceClient>;
}

interface Happening {
  readonly name: string;
  /** What the upstream answers first; after that it says `Fine.` */
  readonly answers: (dialect: DialectId) => readonly Answer[];
  readonly hold?: readonly string[];
  /** By default a turn is asked, whatever comes of it. Returns another client where the service was restarted. */
  readonly happens?: (stage: Stage) => Promise<ServiceClient | undefined>;
  /** What the model hears of each call in every later turn, in their order. */
  readonly results: readonly RegExp[];
  /** Ids of the calls that ran, in all. */
  readonly ran?: readonly string[];
}

const editor = { name: "ask_editor", description: "asks", parameters: '{"type":"object"}', strict: false };

function toolMessage(toolCallId: string, content: string) {
  return { role: "tool", toolCallId, contentType: { case: "content" as const, value: content } };
}

/** A result as Anthropic's clients send it. */
function userResult(toolUseId: string, content: string) {
  return { role: "user", blocks: [{ block: { case: "toolResult" as const, value: { toolUseId, content } } }] };
}

function use(id: string) {
  return { block: { case: "toolUse" as const, value: { id, name: "look", input: "{}" } } };
}

function image(url: string) {
  return { role: "user", blocks: [{ block: { case: "image" as const, value: { url } } }] };
}

/** Asks a turn with these messages, whatever comes of it. */
async function tells(
  { client, sessionId }: Stage,
  messages: NonNullable<Parameters<ServiceClient["generate"]>[0]["messages"]>,
): Promise<undefined> {
  await client.generate({ sessionId, messages }).catch(() => undefined);
}

/** Asks a turn and reads it to its end, whatever that is. */
async function ask({ client, sessionId }: Stage, see: (chunk: GenerateChunk) => Promise<void> = async () => undefined) {
  for await (const chunk of client.streamGenerate({ sessionId, messages: [user("go")] })) await see(chunk);
}

async function cancelWhileHeld(stage: Stage): Promise<undefined> {
  const asked = ask(stage);
  await stage.held;
  await stage.client.cancelTurn({ sessionId: stage.sessionId });
  await asked;
}

/** Kills the service as soon as something of an answer was seen. */
async function killInAnswer(stage: Stage): Promise<ServiceClient> {
  for await (const { event } of stage.client.streamGenerate({ sessionId: stage.sessionId, messages: [user("go")] })) {
    if (event.case === "blockDelta") break;
  }
  return stage.restart();
}

async function killWhileHeld(stage: Stage): Promise<ServiceClient> {
  const asked = ask(stage).catch(() => undefined);
  await stage.held;
  const client = await stage.restart();
  await asked;
  return client;
}

const sends =
  (write: (dialect: DialectId) => string, ends = true) =>
  (dialect: DialectId): Answer[] => [
    (_, response) => {
      response.writeHead(200, eventStream).write(write(dialect));
      if (ends) response.end();
    },
  ];
const first =
  (...given: Parameters<typeof says> extends [DialectId, ...infer Rest] ? Rest : never) =>
  (dialect: DialectId): Answer[] => [says(dialect, ...given)];

const cutCall = [text("I look."), call("c1", "look", '{"path":"notes"}')];
const three = [call("c1", "change"), call("c2", "change"), call("c3", "change")];
const interrupted = /interrupted.*the outcome is unknown/;
const noResult = /no result was given/;

const happenings: readonly Happening[] = [
  {
    name: "cancelled while text streams",
    answers: sends((dialect) => eventsThrough(dialect, [text("Hello")], "Hel"), false),
    happens: async (stage) => {
      await ask(stage, async ({ event }) => {
        if (event.case === "blockDelta") await stage.client.cancelTurn({ sessionId: stage.sessionId });
      });
      return undefined;
    },
    results: [],
  },
  {
    name: "cancelled while a tool runs",
    answers: first([text("I change."), call("c1", "change")]),
    hold: ["c1"],
    happens: cancelWhileHeld,
    results: [interrupted],
    ran: ["c1"],
  },
  {
    name: "cancelled between calls that run one after another",
    answers: first(three),
    hold: ["c2"],
    happens: cancelWhileHeld,
    results: [/all done/, interrupted, /not run/],
    ran: ["c1", "c2"],
  },
  {
    name: "cancelled while the arguments of a call stream",
    answers: sends((dialect) => eventsThrough(dialect, cutCall, '{\\"path'), false),
    happens: async (stage) => {
      await ask(stage, async ({ event }) => {
        const begins = event.case === "blockStart" && event.value.type === "tool_use";
        if (begins) await stage.client.cancelTurn({ sessionId: stage.sessionId });
      });
      return undefined;
    },
    results: [],
    ran: [],
  },
  {
    name: "cancelled with one of several reads done",
    answers: first([call("c1", "look"), call("c2", "look"), call("c3", "look"), call("c4", "change")]),
    hold: ["c2"],
    happens: cancelWhileHeld,
    results: [/all done/, interrupted, /all done/, /not run/],
    ran: ["c1", "c2", "c3"],
  },
  {
    name: "out of time while a tool runs",
    answers: first([text("I change."), call("c1", "change"), call("c2", "look")]),
    hold: ["c1"],
    happens: async ({ client, sessionId }) => {
      const late = client.generate({ sessionId, messages: [user("go")], options: { timeoutMs: 500n } });
      await assert.rejects(late, /longer than 500 ms/);
      return undefined;
    },
    results: [interrupted, /not run/],
    ran: ["c1"],
  },
  {
    name: "an error in the middle of an answer, after a call",
    answers: sends((dialect) => eventsThrough(dialect, cutCall, '"c1"') + errorEvent(dialect, "server_error", "busy")),
    results: [],
    ran: [],
  },
  {
    name: "a cut in the arguments of a call",
    answers: sends((dialect) => eventsThrough(dialect, cutCall, '{\\"path')),
    results: [],
    ran: [],
  },
  {
    name: "arguments cut by the bound of tokens",
    answers: first([text("I look."), call("c1", "look", '{"path":"no')], "length"),
    results: [/not run: the turn ended \(length\)/],
    ran: [],
  },
  {
    name: "one whole call and one cut by the bound of tokens",
    answers: first([call("c1", "change"), call("c2", "look", '{"path":"no')], "length"),
    results: [/not run/, /not run/],
    ran: [],
  },
  {
    name: "arguments that are no JSON",
    answers: first([call("c1", "look", "path = notes")]),
    results: [/JSON/],
    ran: [],
  },
  {
    name: "arguments that are JSON, but no object",
    answers: first([call("c1", "look", '["notes"]')]),
    results: [/object/],
    ran: [],
  },
  {
    name: "a tool by a name that no API takes",
    answers: first([call("c1", "functions.look")]),
    results: [/functions\.look/],
  },
  {
    name: "a call without an id",
    answers: first([call("", "look")]),
    results: [/all done/],
  },
  {
    name: "an id with characters that others refuse",
    answers: first([call("functions.look:0", "look")]),
    results: [/all done/],
    ran: ["functions.look:0"],
  },
  {
    name: "the same id in two answers",
    answers: (dialect) => [says(dialect, [call("c1", "look")]), says(dialect, [call("c1", "look")])],
    results: [/all done/, /all done/],
  },
  {
    name: "open calls at the bound of steps",
    answers: first([text("I change."), call("c1", "change"), call("c2", "look")]),
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [user("go")], options: { maxSteps: 1 } });
      return undefined;
    },
    results: [/not run: the turn ended \(max_steps\)/, /not run: the turn ended \(max_steps\)/],
    ran: [],
  },
  {
    name: "a call of a client's tool that is never answered",
    answers: first([call("c1", "ask_editor"), call("c2", "look")]),
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [user("go")], tools: [editor] });
      return undefined;
    },
    results: [noResult, /all done/],
    ran: ["c2"],
  },
  {
    name: "a call of a client's tool that is answered twice",
    answers: first([call("c1", "ask_editor")]),
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [user("go")], tools: [editor] });
      const messages = [toolMessage("c1", "line 3"), toolMessage("c1", "line 4")];
      await client.generate({ sessionId, messages, tools: [editor] });
      await client.generate({ sessionId, messages: [toolMessage("c1", "line 5"), user("on")], tools: [editor] });
      return undefined;
    },
    results: [/line 3/],
  },
  {
    name: "a call of a client's tool that is answered in a user's message",
    answers: first([call("c1", "ask_editor")]),
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [user("go")], tools: [editor] });
      await client.generate({ sessionId, messages: [userResult("c1", "line 3")], tools: [editor] });
      return undefined;
    },
    results: [/line 3/],
  },
  {
    name: "a call of a client's tool that is answered after another turn",
    answers: first([call("c1", "ask_editor")]),
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [user("go")], tools: [editor] });
      await client.generate({ sessionId, messages: [user("something else")] });
      await client.generate({ sessionId, messages: [toolMessage("c1", "line 3")], tools: [editor] });
      return undefined;
    },
    results: [/line 3/],
  },
  {
    name: "an answer to a call that nobody made",
    answers: () => [],
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [toolMessage("c9", "line 3"), user("go")] }).catch(() => undefined);
      return undefined;
    },
    results: [],
  },
  {
    name: "an answer to a call that nobody made, in a user's message",
    answers: () => [],
    happens: async ({ client, sessionId }) => {
      await client.generate({ sessionId, messages: [userResult("c9", "line 3"), user("go")] });
      return undefined;
    },
    results: [],
  },
  {
    name: "an author whose name OpenAI refuses",
    answers: () => [],
    happens: (stage) => tells(stage, [{ ...user("hello"), name: "Ada Lovelace" }]),
    results: [],
  },
  {
    name: "a client's history with two calls under one id",
    answers: () => [],
    happens: (stage) => tells(stage, [user("go"), { role: "assistant", blocks: [use("c1"), use("c1")] }, user("on")]),
    results: [noResult, noResult],
  },
  {
    name: "an image of a kind that Anthropic does not read",
    answers: () => [],
    happens: (stage) => tells(stage, [image("data:image/bmp;base64,Qk0=")]),
    results: [],
  },
  {
    name: "an image at an address that Anthropic does not ask",
    answers: () => [],
    happens: (stage) => tells(stage, [image("http://pictures.invalid/a.png")]),
    results: [],
  },
  { name: "an answer without content", answers: first([]), results: [] },
  { name: "an answer of white space", answers: first([text(" \n")]), results: [] },
  { name: "an answer of nothing but thinking", answers: first([thinking("hm, what?")]), results: [] },
  {
    name: "thinking cut by the bound of tokens",
    answers: first([thinking("hm, what?")], "length"),
    results: [],
  },
  {
    name: "killed while text streams",
    answers: sends((dialect) => eventsThrough(dialect, [text("Hello")], "Hel"), false),
    happens: killInAnswer,
    results: [],
  },
  {
    name: "killed while the arguments of a call stream",
    answers: sends((dialect) => eventsThrough(dialect, [call("c1", "look", '{"path":"notes"}')], '{\\"path'), false),
    happens: killInAnswer,
    results: [],
    ran: [],
  },
  {
    name: "killed while a tool runs that may change something",
    answers: first([thinking("now"), text("I change."), call("c1", "change")]),
    hold: ["c1"],
    happens: killWhileHeld,
    results: [interrupted],
    ran: ["c1"],
  },
  {
    name: "killed while a tool runs that only reads",
    answers: first([call("c1", "look")]),
    hold: ["c1"],
    happens: killWhileHeld,
    results: [/all done/],
    ran: ["c1", "c1"],
  },
  {
    name: "killed with half of its calls done",
    answers: first(three),
    hold: ["c2"],
    happens: killWhileHeld,
    results: [/all done/, interrupted, /all done/],
    ran: ["c1", "c2", "c3"],
  },
];

/** What a request tells the model of its calls, in their order. */
function resultsOf(url: string, body: string): string[] {
  const request = objectOf(parseJson(body));
  const told = (content: unknown) => (typeof content === "string" ? content : JSON.stringify(content));
  switch (dialectOf(url)) {
    case "openai-chat":
      return arrayOf(request["messages"]).flatMap((message) => {
        const { role, content } = objectOf(message);
        return role === "tool" ? [told(content)] : [];
      });
    case "openai-responses":
      return arrayOf(request["input"]).flatMap((item) => {
        const { type, output } = objectOf(item);
        return type === "function_call_output" ? [told(output)] : [];
      });
    case "anthropic-messages":
      return arrayOf(request["messages"])
        .flatMap((message) => arrayOf(objectOf(message)["content"]))
        .flatMap((block) => {
          const { type, content } = objectOf(block);
          return type === "tool_result" ? [told(content)] : [];
        });
  }
}

/** A new service over what the data directory holds at this moment, as a kill would leave it. */
async function copyOfData(context: TestContext, dataDir: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-test-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  for (const file of ["codeagent.db", "codeagent.db-wal"]) await copyFile(join(dataDir, file), join(folder, file));
  return folder;
}

const fine: Answer = (request, response, body) =>
  says(dialectOf(request.url ?? ""), [text("Fine.")])(request, response, body);

/** The same call may be made over and over. */
const flags = { "limits.repeated_calls": 0 };

describe("whatever happened in a session, its next turns are taken", { timeout: 120_000, concurrency: 4 }, () => {
  for (const dialect of dialectIds) {
    for (const { name, answers, hold = [], happens, results, ran } of happenings) {
      test(`${dialect}: ${name}`, async (context) => {
        const upstream = await startUpstream(context, [...answers(dialect), ...Array<Answer>(9).fill(fine)]);
        const env = Object.assign({}, ...dialectIds.map((one) => providerAt(one, upstream.url).env));
        const tools = heldTools(hold);
        const { client, dataDir, app, reports } = await startTestApp(context, {
          env,
          functions: [tools.provider],
          flags,
        });
        const later = heldTools([]);
        const { model: ofSession } = providerAt(dialect, upstream.url);
        const { sessionId } = await client.createSession({ model: ofSession, permissions: { mode: "bypass" } });
        const stage: Stage = {
          client,
          sessionId,
          held: tools.held,
          restart: async () => {
            const copy = await copyOfData(context, dataDir);
            await app.close(0);
            const restarted = await startTestApp(context, { env, functions: [later.provider], dataDir: copy, flags });
            return restarted.client;
          },
        };
        const now = (await (happens ?? (async () => void (await ask(stage))))(stage)) ?? client;

        // Its own provider first, then the others: what one wrote must not shut out another.
        for (const next of [dialect, ...dialectIds.filter((one) => one !== dialect)]) {
          const { model } = providerAt(next, upstream.url);
          const answer = await now.generate({ sessionId, messages: [user("next")], model });
          assert.equal(answer.message?.contentType.value, "Fine.");
          assert.equal(answer.finishReason, "stop");
          const { url, body } = upstream.requests.at(-1) ?? { url: "", body: "" };
          assert.equal(dialectOf(url), next);
          const told = resultsOf(url, body);
          assert.equal(told.length, results.length, JSON.stringify(told));
          for (const [index, result] of results.entries()) assert.match(told[index] ?? "", result);
        }
        if (ran !== undefined) assert.deepEqual([...tools.ran, ...later.ran], ran);
        assert.deepEqual(reports, [], "no fault of ours");
      });
    }
  }
});
