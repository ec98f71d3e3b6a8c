import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type DescMessage,
  fromBinary,
  fromJsonString,
  type MessageShape,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import {
  CodeAgentService,
  GenerateResponseSchema,
  ListMessagesResponseSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { startServe, temporaryFolder } from "../cli/start-codeagent.ts";
import { dialectOf, says, text } from "../provider/answers.ts";
import { type Answer, eventStream, jsonAnswer } from "../provider/upstream.ts";
import { startTestApp, user } from "../support/test-app.ts";
import {
  emptyThinking,
  type Form,
  forms,
  isUnit,
  type ReasoningCase,
  reasoningCases,
  saidIn,
} from "./reasoning-answers.ts";
import { answers, type Models, startModels } from "./reasoning-models.ts";

type ServiceClient = Client<typeof CodeAgentService>;

const bye: Answer = (request, response, body) =>
  says(dialectOf(request.url ?? ""), [text("Bye.")])(request, response, body);

/** A case in one of its forms, with a model of its own for each way it goes. */
function variants(way: string, cases = reasoningCases) {
  return cases.flatMap((one) =>
    forms.map((form) => {
      const model = `${one.model}-${form}-${way.replaceAll(" ", "-")}-${one.provider}`;
      return { one, form, model, fullModel: `${one.provider}/${model}`, name: `${one.name}, ${form}` };
    }),
  );
}

type Variant = ReturnType<typeof variants>[number];

function resultsOf(said: readonly string[]): string[] {
  return said.flatMap((what) => (what.startsWith("call ") ? [what.replace("call", "result")] : []));
}

/** What the request after the tools holds. */
function inTurn({ callsTool }: ReasoningCase, form: Form): string[] {
  const said = callsTool.said[form];
  return ["user Go", ...said, ...resultsOf(said)];
}

/** What the first request of the next turn holds. */
function inNextTurn({ callsTool, ends, saidLater }: ReasoningCase, form: Form): string[] {
  const [first, second] = [saidLater?.callsTool ?? callsTool.said[form], saidLater?.ends ?? ends.said[form]];
  return ["user Go", ...first, ...resultsOf(first), ...second, "user On"];
}

function planTurn(models: Models, model: string, { callsTool, ends }: ReasoningCase, form: Form): void {
  models.plan(model, answers(callsTool.body, form), answers(ends.body, form));
}

/** Makes a session and runs the turn of the case in it. */
async function runTurn(models: Models, client: ServiceClient, variant: Variant) {
  const { one, form, model, fullModel } = variant;
  planTurn(models, model, one, form);
  const { sessionId } = await client.createSession({ model: fullModel });
  const response = await client.generate({ sessionId, messages: [user("Go")] });
  assert.equal(response.finishReason, "stop");
  return { sessionId, response };
}

/** The cases whose reasoning goes along in every later request. */
const sendAll = reasoningCases.filter(({ saidLater }) => saidLater === undefined);

/** A case of another provider. */
function neighbour(one: ReasoningCase): ReasoningCase {
  const next = sendAll[(sendAll.indexOf(one) + 1) % sendAll.length];
  assert.ok(next !== undefined && next.provider !== one.provider);
  return next;
}

/** Who is asked between two turns of a case's model. */
const others: readonly { who: string; otherOf(one: ReasoningCase): ReasoningCase; isNamesake: boolean }[] = [
  { who: "another provider", otherOf: neighbour, isNamesake: false },
  { who: "another model of its provider", otherOf: (one) => one, isNamesake: false },
  { who: "its namesake elsewhere", otherOf: neighbour, isNamesake: true },
];

/** Runs a turn to its good end; returns the codes of its notices. */
async function ask(client: ServiceClient, request: Parameters<ServiceClient["streamGenerate"]>[0]): Promise<string[]> {
  const notices: string[] = [];
  let end = "none";
  for await (const { event } of client.streamGenerate(request)) {
    if (event.case === "notice") notices.push(event.value.code);
    if (event.case === "turnFinished") end = event.value.finishReason;
  }
  assert.equal(end, "stop");
  return notices;
}

/** When the service is killed. */
const moments: readonly {
  readonly moment: string;
  readonly forms: readonly Form[];
  /** Brings a session to the moment, and plans what its model answers after it. */
  begin(models: Models, client: ServiceClient, sessionId: string, variant: Variant): Promise<void>;
  /** How often its model is asked for the turn. */
  readonly requests: number;
}[] = [
  {
    moment: "in its reasoning",
    forms: ["stream"],
    requests: 3,
    async begin(models, client, sessionId, { one, form, model }) {
      const events = one.callsTool.body.stream.split(/(?<=\n\n)/);
      const cut = events.slice(0, events.findIndex((event) => event.includes("call_1")) - 1).join("");
      models.plan(model, (_, response) => response.writeHead(200, eventStream).write(cut));
      for await (const { event } of client.streamGenerate({ sessionId, messages: [user("Go")], requestId: "go" })) {
        if (event.case === "blockDelta") break;
      }
      planTurn(models, model, one, form);
    },
  },
  {
    moment: "after a tool",
    forms,
    requests: 3,
    async begin(models, client, sessionId, { one, form, model }) {
      models.plan(model, answers(one.callsTool.body, form), "held");
      client.generate({ sessionId, messages: [user("Go")], requestId: "go" }).catch(() => undefined);
      await models.asked(model, 2);
      models.plan(model, answers(one.ends.body, form));
    },
  },
  {
    moment: "between turns",
    forms,
    requests: 2,
    async begin(models, client, sessionId, { one, form, model }) {
      planTurn(models, model, one, form);
      await client.generate({ sessionId, messages: [user("Go")], requestId: "go" });
    },
  },
];

function last(models: Models, model: string): string[] {
  return saidIn(models.sentTo(model).at(-1) ?? "");
}

function inProtobuf<Schema extends DescMessage>(schema: Schema, message: MessageShape<Schema>): MessageShape<Schema> {
  return fromBinary(schema, toBinary(schema, message));
}

function inJson<Schema extends DescMessage>(schema: Schema, message: MessageShape<Schema>): MessageShape<Schema> {
  return fromJsonString(schema, toJsonString(schema, message));
}

/** Sessions wait for the disk most of the time. */
const together = { concurrency: 8, timeout: 30_000 };

describe("reasoning goes back as it came, where it came", () => {
  test("after a tool, in the next turn and in a fork", together, async (context) => {
    const models = await startModels(context, 1);
    const { client } = await startTestApp(context, { env: models.env });
    const tests = variants("same").map((variant) => {
      const { one, form, model, name } = variant;
      return context.test(name, async () => {
        const { sessionId } = await runTurn(models, client, variant);
        assert.deepEqual(last(models, model), inTurn(one, form));
        const fork = await client.forkSession({ sessionId });
        for (const id of [sessionId, fork.sessionId]) {
          models.plan(model, bye);
          await client.generate({ sessionId: id, messages: [user("On")] });
          assert.deepEqual(last(models, model), inNextTurn(one, form), id);
        }
        assert.equal(models.sentTo(model).length, 4);
      });
    });
    await Promise.all(tests);
  });

  test("after a kill, in the turn it interrupted and in the next one", together, async (context) => {
    const models = await startModels(context, 2);
    const folder = temporaryFolder(context);
    const serve = async () => {
      const started = await startServe(context, [], { folder, env: models.env });
      return { ...started, client: createClient(CodeAgentService, createGrpcTransport({ baseUrl: started.url })) };
    };
    const killed = await serve();
    const sessions = moments.flatMap(({ moment, forms, begin, requests }) =>
      variants(moment)
        .filter(({ form }) => forms.includes(form))
        .map(async (variant) => {
          const { sessionId } = await killed.client.createSession({ model: variant.fullModel });
          await begin(models, killed.client, sessionId, variant);
          return { variant, sessionId, requests, name: `${variant.name}, killed ${moment}` };
        }),
    );
    const begun = await Promise.all(sessions);
    killed.child.kill("SIGKILL");
    assert.equal(await killed.ended, "SIGKILL");

    const { client } = await serve();
    const tests = begun.map(({ variant: { one, form, model }, sessionId, requests, name }) =>
      context.test(name, async () => {
        const { finishReason } = await client.generate({ sessionId, messages: [user("Go")], requestId: "go" });
        assert.equal(finishReason, "stop");
        assert.equal(models.sentTo(model).length, requests);
        assert.deepEqual(last(models, model), inTurn(one, form));
        models.plan(model, bye);
        await client.generate({ sessionId, messages: [user("On")] });
        assert.deepEqual(last(models, model), inNextTurn(one, form));
      }),
    );
    await Promise.all(tests);
  });

  test("in a turn that goes on with another model, and in the next one", together, async (context) => {
    const models = await startModels(context, 1);
    const { client } = await startTestApp(context, { env: models.env });
    const tests = variants("fails", sendAll).map(({ one, form, model, fullModel, name }) =>
      context.test(name, async () => {
        const other = neighbour(one);
        const otherModel = `${other.model}-${form}-for-${one.provider}`;
        const noMore = jsonAnswer(503, { error: { message: "no more" } }, { "x-should-retry": "false" });
        models.plan(model, answers(one.callsTool.body, form), noMore);
        models.plan(otherModel, answers(other.ends.body, form));
        const { sessionId } = await client.createSession({ model: `${fullModel}, ${other.provider}/${otherModel}` });
        assert.deepEqual(await ask(client, { sessionId, messages: [user("Go")] }), [
          "MODEL_FALLBACK",
          "REASONING_WITHHELD",
        ]);
        assert.deepEqual(last(models, model), inTurn(one, form));
        const theirs = last(models, otherModel);
        assert.deepEqual(theirs.filter(isThought), []);
        assert.deepEqual(theirs.filter(isCall), inTurn(one, form).filter(isCall));

        models.plan(model, bye);
        assert.deepEqual(await ask(client, { sessionId, messages: [user("On")] }), ["REASONING_WITHHELD"]);
        const back = last(models, model);
        assert.deepEqual(back.slice(0, inTurn(one, form).length), inTurn(one, form));
        assert.deepEqual(back.filter(isThought), one.callsTool.said[form].filter(isUnit));
      }),
    );
    await Promise.all(tests);
  });

  test("through a client that keeps the messages, as Protobuf and as JSON", together, async (context) => {
    const models = await startModels(context, 1);
    const { app, client } = await startTestApp(context, { env: models.env });
    const json = createConnectTransport({ baseUrl: app.url, httpVersion: "1.1", useBinaryFormat: false });
    const ways = [
      { way: "Protobuf", client, copy: inProtobuf },
      { way: "JSON", client: createClient(CodeAgentService, json), copy: inJson },
    ];
    const tests = ways.flatMap(({ way, client, copy }) =>
      variants(way).map((variant) => {
        const { one, form, model, fullModel, name } = variant;
        return context.test(`${name}, ${way}`, async () => {
          const { sessionId, response } = await runTurn(models, client, variant);
          const { messages: kept } = copy(ListMessagesResponseSchema, await client.listMessages({ sessionId }));
          const { message: answer } = copy(GenerateResponseSchema, response);
          assert.ok(answer !== undefined);
          assert.deepEqual(answer.blocks, kept.at(-1)?.blocks);
          models.plan(model, bye, bye);
          await client.generate({ model: fullModel, messages: [...kept.slice(0, -1), answer, user("On")] });
          assert.deepEqual(last(models, model), inNextTurn(one, form));
          const begun = await client.createSession({ model: fullModel, initialMessages: kept });
          await client.generate({ sessionId: begun.sessionId, messages: [user("On")] });
          assert.deepEqual(last(models, model), inNextTurn(one, form));
        });
      }),
    );
    await Promise.all(tests);
  });

  test("not to another model, which is told once, and to its author again", together, async (context) => {
    const models = await startModels(context, 1);
    const { client } = await startTestApp(context, { env: models.env });
    const tests = others.flatMap(({ who, otherOf, isNamesake }) =>
      variants(`before ${who}`, sendAll).map((variant) => {
        const { one, form, model, fullModel, name } = variant;
        return context.test(`${name}, after ${who}`, async () => {
          const other = otherOf(one);
          const otherModel = isNamesake ? model : `${other.model}-as-${other.provider}-beside-${model}`;
          const fullOther = `${other.provider}/${otherModel}`;
          const { sessionId } = await runTurn(models, client, variant);
          const theirs = inNextTurn(one, form);

          models.plan(otherModel, bye);
          assert.deepEqual(await ask(client, { sessionId, model: fullOther, messages: [user("On")] }), [
            "REASONING_WITHHELD",
          ]);
          const foreign = models.sentTo(otherModel).at(-1) ?? "";
          assert.deepEqual(saidIn(foreign).filter(isThought), []);
          assert.doesNotMatch(foreign, /c2VhbGVk|ZW5kZWQ|QUJDQUJD|12345678901234567890|Then /);
          assert.deepEqual(saidIn(foreign).filter(isCall), theirs.filter(isCall));
          assert.equal(textIn(saidIn(foreign)), textIn(theirs));

          models.plan(model, bye);
          assert.deepEqual(await ask(client, { sessionId, model: fullModel, messages: [user("Back")] }), []);
          const back = [...theirs, "text Bye.", "user Back"];
          assert.deepEqual(last(models, model), back);

          // Each of them has its own, and only that.
          planTurn(models, otherModel, other, form);
          assert.deepEqual(await ask(client, { sessionId, model: fullOther, messages: [user("On again")] }), [
            "REASONING_WITHHELD",
          ]);
          assert.deepEqual(last(models, otherModel).filter(isThought), other.callsTool.said[form].filter(isUnit));
          models.plan(model, bye);
          assert.deepEqual(await ask(client, { sessionId, model: fullModel, messages: [user("Back again")] }), [
            "REASONING_WITHHELD",
          ]);
          const mixed = last(models, model);
          assert.deepEqual(mixed.slice(0, back.length), back);
          assert.deepEqual(mixed.slice(back.length).filter(isThought), []);
          assert.match(mixed.slice(back.length).join(), /^text Bye\.,user On again,.*Done\.,user Back again$/);
        });
      }),
    );
    await Promise.all(tests);
  });
});

/** Reasoning, and not the empty field that some providers want beside calls. */
function isThought(said: string): boolean {
  return isUnit(said) && said !== emptyThinking;
}

function isCall(said: string): boolean {
  return /^(call|result) /.test(said);
}

/** What was said to be read: texts of one message may have become one. */
function textIn(said: readonly string[]): string {
  return said.flatMap((what) => /^text (?:\(\w+\) )?(.*)$/s.exec(what)?.[1] ?? []).join("");
}
