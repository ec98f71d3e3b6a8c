import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError, CutAnswerError } from "../../src/chat/error.ts";
import type { ChatEvent } from "../../src/chat/event.ts";
import type { ChatRequest } from "../../src/chat/request.ts";
import { askModel, type ModelQuestion } from "../../src/session/ask-model.ts";
import type { Model } from "../../src/session/models.ts";

/** What a model does when it is asked: the words it says, then how it ends. */
type Answer = (signal: AbortSignal) => AsyncIterable<readonly ChatEvent[]>;

function said(text: string, finishReason: "stop" | "length" = "stop"): Answer {
  return async function* () {
    for (const piece of text.match(/.{1,4}/gs) ?? []) yield [{ type: "text-delta", index: 0, text: piece }];
    yield [{ type: "usage", usage: { inputTokens: 10, outputTokens: 5, totalTokens: 15 } }];
    yield [{ type: "finish", finishReason, rawFinishReason: finishReason }];
  };
}

function fails(error: Error, text = ""): Answer {
  return async function* () {
    if (text !== "") yield [{ type: "text-delta", index: 0, text }];
    if (text !== "") yield [{ type: "usage", usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 } }];
    throw error;
  };
}

const waits: Answer = async function* (signal) {
  await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  yield [];
};

function modelOf(name: string, answers: readonly Answer[]) {
  const requests: ChatRequest[] = [];
  const others: boolean[] = [];
  const model: Model = {
    ...{ provider: "test", model: name, dialect: "openai-chat", features: [] },
    refusal: () => undefined,
    withholds: () => false,
    check: () => undefined,
    contextWindow: async () => undefined,
    hasPrice: async () => true,
    priced: async (usage) => ({ ...usage, costNanoUsd: 7 }),
    stream(request, signal, hasOthers) {
      const answer = answers[requests.length];
      requests.push(request);
      others.push(hasOthers);
      assert.ok(answer !== undefined, `${name} is asked too often`);
      return answer(signal);
    },
  };
  return { model, requests, others };
}

const schema = '{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}';
const format = { name: "answer", schema };
const reports: unknown[] = [];
const means = { newId: (prefix: string) => `${prefix}_1`, report: (...report: unknown[]) => void reports.push(report) };
const never = new AbortController().signal;

function ask(models: readonly { readonly model: Model }[], more: Partial<ModelQuestion> = {}, signal = never) {
  const messages = [{ role: "user", blocks: [{ type: "text", text: "how many?" }] }] as const;
  return askModel({ models: models.map(({ model }) => model), messages, limitMs: 5000, ...more }, means, signal);
}

const gone = new AgentError("provider_unavailable", "it is down");
const cut = new CutAnswerError(new AgentError("provider_unavailable", "it broke off"));

describe("asking a model outside of a conversation", { timeout: 10_000 }, () => {
  test("a text comes back whole, with what it cost", async () => {
    const pieces: string[] = [];
    const one = modelOf("one", [said("there are three")]);
    const reply = await ask([one], { maxTokens: 100, onText: (piece) => void pieces.push(piece) });
    assert.deepEqual(reply, {
      ...{ ok: true, text: "there are three", value: undefined, model: "test/one" },
      usage: { inputTokens: 10, outputTokens: 5, totalTokens: 15, costNanoUsd: 7 },
    });
    assert.equal(pieces.join(""), "there are three");
    assert.ok(pieces.length > 1);
    assert.deepEqual(one.requests[0]?.options, { maxTokens: 100 });
    assert.deepEqual([one.requests[0]?.tools, one.others], [[], [false]]);
  });

  for (const [name, text] of [
    ["as it is", '{"count":3}'],
    ["in a fence", '```json\n{"count":3}\n```\n'],
  ] as const) {
    test(`JSON by a schema is read ${name}`, async () => {
      const one = modelOf("one", [said(text)]);
      const reply = await ask([one], { format });
      assert.deepEqual(reply.ok && reply.value, { count: 3 });
      assert.deepEqual(one.requests[0]?.options.responseFormat, { type: "json_schema", name: "answer", schema });
    });
  }

  for (const [name, text, fault] of [
    ["no JSON", "three", /^is no JSON/],
    ["another form", '{"count":"three"}', /"count" must be integer; "three" was given/],
    ["nothing", "", /^is empty$/],
  ] as const) {
    test(`an answer of ${name} comes back with what is wrong, and nobody else is asked`, async () => {
      const two = modelOf("two", []);
      const reply = await ask([modelOf("one", [said(text)]), two], { format });
      assert.ok(!reply.ok);
      assert.match(reply.fault ?? "", fault);
      assert.deepEqual([reply.text, reply.error.kind, reply.usage?.totalTokens], [text, "answer_invalid", 15]);
    });
  }

  test("a model that is not to be had makes way for the next", async () => {
    const [one, two] = [modelOf("one", [fails(gone)]), modelOf("two", [said("two")])];
    const reply = await ask([one, two]);
    assert.deepEqual([reply.ok, reply.text, reply.model], [true, "two", "test/two"]);
    assert.deepEqual([...one.others, ...two.others], [true, false]);
  });

  test("a cut answer is asked for once more, and both are paid for", async () => {
    const reply = await ask([modelOf("one", [fails(cut, "the"), said("three")])]);
    assert.deepEqual([reply.ok, reply.text], [true, "three"]);
    assert.deepEqual([reply.usage?.totalTokens, reply.usage?.costNanoUsd], [17, 14]);
    const again = await ask([modelOf("one", [fails(cut, "the"), fails(cut, "there")])]);
    assert.deepEqual([again.ok, again.text, !again.ok && again.error], [false, "", cut]);
  });

  test("a cut answer of which something was told is not asked for again", async () => {
    const told: string[] = [];
    const reply = await ask([modelOf("one", [fails(cut, "the")])], { onText: (piece) => void told.push(piece) });
    assert.deepEqual([reply.ok, told], [false, ["the"]]);
  });

  for (const [name, answer, more, message] of [
    ["that is too long", said("three", "length"), {}, /not whole: it was cut at the most tokens/],
    ["that its caller refuses", said("three"), { faultOf: () => "three is not enough" }, /^three is not enough$/],
    ["that does not come", waits, { limitMs: 20 }, /no answer within 20 ms/],
  ] as const) {
    test(`an answer ${name} makes way for the next model`, async () => {
      const reply = await ask([modelOf("one", [answer])], more);
      assert.match(!reply.ok ? reply.error.message : "", message);
      const second = { faultOf: (text: string) => (text === "two" ? undefined : "three is not enough") };
      const other = await ask([modelOf("one", [answer]), modelOf("two", [said("two")])], { ...more, ...second });
      assert.deepEqual([other.ok, other.text], [true, "two"]);
    });
  }

  test("what nobody expects is told to the operator and not to the caller", async () => {
    const reply = await ask([modelOf("one", [fails(new TypeError("x is undefined"))])]);
    assert.deepEqual([!reply.ok && reply.error.message, reports.length], ["it failed", 1]);
  });

  test("nobody to ask", async () => {
    const reply = await ask([]);
    assert.deepEqual([reply.ok, reply.model, !reply.ok && reply.error.kind], [false, "", "failed_precondition"]);
  });

  test("its caller's reason ends it, before and while it is asked", async () => {
    const reason = new AgentError("cancelled", "enough");
    const one = modelOf("one", []);
    await assert.rejects(ask([one], {}, AbortSignal.abort(reason)), (error) => error === reason);
    assert.equal(one.requests.length, 0);
    const abort = new AbortController();
    const asked = ask([modelOf("one", [waits]), modelOf("two", [])], {}, abort.signal);
    setImmediate(() => abort.abort(reason));
    await assert.rejects(asked, (error) => error === reason);
  });
});
