import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { theCaller } from "../../src/rpc/caller.ts";
import { withToken } from "../clients/connect-visitor.ts";
import { at } from "../legacy/legacy-client.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { openDoors, type RestAnswer, type RestAsk, type RpcAnswer } from "./ask-doors.ts";
import { badCalls, maxMessageBytes } from "./bad-calls.ts";
import { badMessages } from "./bad-messages.ts";
import { badNames } from "./bad-names.ts";
import { badOptions } from "./bad-options.ts";
import {
  type AnthropicRefusal,
  type BadRequest,
  chatBody,
  legacyTurn,
  messagesBody,
  type OpenAIRefusal,
  type RpcRefusal,
  responsesBody,
  turn,
} from "./bad-request.ts";
import { badTools } from "./bad-tools.ts";

const token = "the-token-of-this-server";
const secret = "sk-of-the-operator-alone";
const badRequests = [...badMessages, ...badTools, ...badOptions, ...badNames, ...badCalls];

describe("bad input at every door", () => {
  const shared = fileContext();
  let doors: ReturnType<typeof openDoors>;
  let reports: readonly unknown[];
  let working = () => 0;
  /** All there is to see of the sessions. */
  let seen: () => Promise<unknown>;
  let last: unknown;
  let ours: readonly (readonly [what: string, text: string])[];

  before(async () => {
    const started = await startTestApp(shared, {
      flags: { token, "limits.max_message_bytes": maxMessageBytes },
      env: { DEEPSEEK_API_KEY: secret },
    });
    const { app, folder, workspace, dataDir } = started;
    const transport = createGrpcTransport({ baseUrl: app.url, interceptors: [withToken(token)] });
    const client = createClient(CodeAgentService, transport);
    await client.createSession({ sessionId: "taken", title: "the first" });
    await client.generate({ sessionId: "taken", messages: [user("hello")], requestId: "first-turn" });
    doors = openDoors(shared, app.url, token);
    seen = async () => (await app.sessions.list(theCaller, undefined, 100)).sessions;
    working = () => app.sessions.working;
    last = await seen();
    reports = started.reports;
    ours = [
      ["the data folder", dataDir],
      ["the workspace", workspace],
      ["the folder of both", folder],
      ["the token", token],
      ["the key of a provider", secret],
    ];
  });

  /** What no caller is to be told. */
  const assertTellsNothing = (whole: string) => {
    for (const [what, text] of ours) assert.ok(!whole.includes(text), `tells ${what}: ${whole}`);
    assert.doesNotMatch(whole, /\n\s*at |\bat file:|file:\/\/\/\w+\/.*\.[jt]s|node:internal|node_modules/);
    assert.doesNotMatch(whole, /RangeError|TypeError|Maximum call stack|Cannot read prop/);
  };

  /** One sentence for a person, of a length to be read. */
  const assertForPeople = (message: string, says?: RegExp) => {
    assert.ok(message.length > 10 && message.length <= 2048, `${message.length} characters: ${message}`);
    if (says !== undefined) assert.match(message, says);
  };

  const assertRpc = ({ code, reason, fields, message, whole }: RpcAnswer, refused: RpcRefusal) => {
    const told = { code, reason, fields };
    const wanted = {
      ...{ code: refused.code, reason: refused.reason },
      fields: refused.field === undefined ? [] : [refused.field],
    };
    assert.deepEqual(told, wanted, message);
    if (!code.startsWith("HTTP")) assertForPeople(message, refused.says);
    assertTellsNothing(whole);
  };

  const assertOpenAI = ({ status, whole }: RestAnswer, refused: OpenAIRefusal) => {
    const body: unknown = JSON.parse(whole);
    const { says, ...wanted } = refused;
    const [type, code, param] = ["type", "code", "param"].map((name) => at(body, `error.${name}`));
    assert.deepEqual({ status, type, code, param }, wanted, whole);
    assertForPeople(String(at(body, "error.message")), says);
    assertTellsNothing(whole);
  };

  const assertAnthropic = ({ status, whole }: RestAnswer, refused: AnthropicRefusal) => {
    const body: unknown = JSON.parse(whole);
    const { says, field: wantedField, ...wanted } = refused;
    const [type, code, field] = ["type", "details.error_code", "details.field"].map((name) =>
      at(body, `error.${name}`),
    );
    assert.equal(at(body, "type"), "error");
    assert.deepEqual({ status, type, code, field }, { ...wanted, field: wantedField }, whole);
    assertForPeople(String(at(body, "error.message")), says);
    assertTellsNothing(whole);
  };

  const rest = (path: string, ask: RestAsk) =>
    doors.rest(path, { ...ask, headers: { "x-session-id": "taken", ...ask.headers } });
  const good = async (path: string, body: RestAsk["body"]) => {
    const { status, whole } = await doors.rest(path, body === undefined ? {} : { body });
    assert.equal(status, 200, whole);
  };
  const chatPath = "/v1/chat/completions";
  const responsesPath = "/v1/responses";
  const messagesPath = "/v1/messages";

  /** By door: asks what is bad and judges the answer, and asks something good. Nothing where the fault can't be said. */
  const visits: Readonly<
    Record<Exclude<keyof BadRequest, "fault">, { bad(row: BadRequest): Promise<void> | string; good(): Promise<void> }>
  > = {
    grpc: {
      bad: ({ grpc }) =>
        typeof grpc === "string" ? grpc : doors.grpc(grpc.ask).then((answer) => assertRpc(answer, grpc.refused)),
      good: async () => assert.equal((await doors.grpc({ request: turn({ sessionId: "" }) })).code, "OK"),
    },
    connect: {
      bad: ({ connect }) =>
        typeof connect === "string"
          ? connect
          : doors.connect(connect.ask).then((answer) => assertRpc(answer, connect.refused)),
      good: async () => assert.equal((await doors.connect({ request: turn({ sessionId: "" }) })).code, "HTTP 200"),
    },
    chat: {
      bad: ({ chat }) =>
        typeof chat === "string" ? chat : rest(chatPath, chat.ask).then((answer) => assertOpenAI(answer, chat.refused)),
      good: () => good(chatPath, chatBody({})),
    },
    responses: {
      bad: ({ responses }) =>
        typeof responses === "string"
          ? responses
          : rest(responsesPath, responses.ask).then((answer) => assertOpenAI(answer, responses.refused)),
      good: () => good(responsesPath, responsesBody({ store: false })),
    },
    messages: {
      bad: ({ messages }) =>
        typeof messages === "string"
          ? messages
          : rest(messagesPath, messages.ask).then((answer) => assertAnthropic(answer, messages.refused)),
      good: () => good(messagesPath, messagesBody({})),
    },
    legacy: {
      bad: ({ legacy }) =>
        typeof legacy === "string"
          ? legacy
          : doors.legacy(legacy.ask).then((answer) => assertRpc(answer, legacy.refused)),
      good: async () => assert.equal((await doors.legacy({ request: legacyTurn({ session_id: "" }) })).code, "OK"),
    },
  };

  let cells = 0;
  let unsaid = 0;
  for (const row of badRequests)
    test(row.fault, async (context) => {
      for (const [door, { bad, good: askGood }] of Object.entries(visits))
        await context.test(door, async (cell) => {
          const asked = bad(row);
          if (typeof asked === "string") {
            unsaid += 1;
            assert.match(asked, /\w+ \w+/, "says why");
            cell.diagnostic(asked);
            return;
          }
          cells += 1;
          await asked;
          const before = last;
          last = await seen();
          assert.deepEqual(last, before, "nothing has changed");
          assert.equal(working(), 0, "nothing runs");
          await askGood();
        });
    });

  test("no cell was left out, and none of it is the operator's business", () => {
    assert.equal(cells + unsaid, badRequests.length * 6);
    assert.ok(badRequests.length >= 120, `${badRequests.length} faults`);
    assert.ok(cells >= 500, `${cells} cells`);
    assert.equal(new Set(badRequests.map(({ fault }) => fault)).size, badRequests.length, "each fault has its name");
    assert.deepEqual(reports, []);
  });
});
