import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { LogEvent, LogRecord } from "../../src/chat/log-event.ts";
import { type Message, toolUses } from "../../src/chat/message.ts";
import { dialects } from "../../src/dialect/dialect.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import {
  compactedHistory,
  estimateTokens,
  planCompaction,
  textTokens,
  transcriptOf,
} from "../../src/session/compact-history.ts";
import { emptyState, foldRecord } from "../../src/session/state.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { checkRequest } from "../dialect/check-request.ts";

const said = (role: Message["role"], id: string, text = id): Message => ({
  role,
  id,
  blocks: [{ type: "text", text }],
});
const calls = (id: string, ...callIds: string[]): Message => ({
  role: "assistant",
  id,
  blocks: [
    { type: "text", text: `looking, ${id}` },
    ...callIds.map((callId) => ({ type: "tool_use", id: callId, name: "look", input: "{}" }) as const),
  ],
});
const result = (toolUseId: string, content = "seen"): Message => ({
  role: "tool",
  id: `result-${toolUseId}`,
  blocks: [{ type: "tool_result", toolUseId, content }],
});
const request = (turn: number, text?: string) => said("user", `turn${turn}-in1`, text);
const answer = (turn: number) => said("assistant", `turn${turn}-step1`);
const long = "word ".repeat(400);

type Bounds = Parameters<typeof planCompaction>[1];
const all: Bounds = { keepTokens: Number.POSITIVE_INFINITY, comingTokens: 0, from: "request" };

/** What a plan comes to, by ids. */
function outcome(messages: readonly Message[], bounds: Partial<Bounds>) {
  const plan = planCompaction(messages, { ...all, ...bounds });
  const ids = (some: readonly Message[]) => some.map(({ id }) => id).join(" ");
  return plan && `${ids(plan.dropped)} | ${ids(plan.pinned)} | ${ids(plan.tail)}`;
}

describe("what a compaction drops | keeps from before | keeps from the end", () => {
  const looks = (step: number, content?: string) => [
    calls(`turn2-step${step}`, `c${step}`),
    result(`c${step}`, content),
  ];
  const cases: { name: string; given: Message[]; bounds?: Partial<Bounds>; drops: string | undefined }[] = [
    { name: "nothing is there", given: [], drops: undefined },
    { name: "only one request is there", given: [request(1)], drops: undefined },
    { name: "only one turn is there", given: [said("system", "s"), request(1), answer(1)], drops: undefined },
    {
      name: "turns before the last request go",
      given: [said("system", "s"), request(1), answer(1), request(2), answer(2)],
      drops: "turn1-in1 turn1-step1 | s | turn2-in1 turn2-step1",
    },
    {
      name: "instructions between turns stay, and go in front of all",
      given: [said("system", "s"), request(1), answer(1), said("developer", "turn2-in0"), request(2)],
      drops: "turn1-in1 turn1-step1 | s turn2-in0 | turn2-in1",
    },
    {
      name: "instructions said again in the same words stay once",
      given: [said("system", "a", "s"), request(1), answer(1), said("system", "b", "s"), request(2), answer(2)],
      drops: "turn1-in1 turn1-step1 b | a | turn2-in1 turn2-step1",
    },
    {
      name: "messages sent with the last request stay with it",
      given: [request(1), answer(1), said("user", "turn2-in1"), said("user", "turn2-in2"), answer(2)],
      drops: "turn1-in1 turn1-step1 |  | turn2-in1 turn2-in2 turn2-step1",
    },
    {
      name: "what the server told the model is no request",
      given: [request(1), answer(1), request(2), answer(2), said("user", "turn2-step1-notice"), calls("turn2-step2")],
      drops: "turn1-in1 turn1-step1 |  | turn2-in1 turn2-step1 turn2-step1-notice turn2-step2",
    },
    {
      name: "an earlier summary goes with what came after it",
      given: [said("user", "compacted-9"), request(2), answer(2), request(3)],
      drops: "compacted-9 turn2-in1 turn2-step1 |  | turn3-in1",
    },
    { name: "a summary alone is not summarised", given: [said("user", "compacted-9"), request(2)], drops: undefined },
    {
      name: "a running turn that fits stays whole",
      given: [request(1), answer(1), request(2), ...looks(1), ...looks(2)],
      bounds: { keepTokens: 1000 },
      drops: "turn1-in1 turn1-step1 |  | turn2-in1 turn2-step1 result-c1 turn2-step2 result-c2",
    },
    {
      name: "of one that does not fit the oldest rounds go, and its request stays",
      given: [said("system", "s"), request(1), answer(1), request(2), ...looks(1, long), ...looks(2), ...looks(3)],
      bounds: { keepTokens: 200 },
      drops: "turn1-in1 turn1-step1 turn2-step1 result-c1 | s turn2-in1 | turn2-step2 result-c2 turn2-step3 result-c3",
    },
    {
      name: "the last round stays however long it is",
      given: [request(2), ...looks(1, long), ...looks(2, long)],
      bounds: { keepTokens: 1 },
      drops: "turn2-step1 result-c1 | turn2-in1 | turn2-step2 result-c2",
    },
    {
      name: "results that are still to come need room",
      given: [request(2), ...looks(1), ...looks(2), calls("turn2-step3", "c3")],
      bounds: { keepTokens: 1000, comingTokens: 1000 },
      drops: "turn2-step1 result-c1 turn2-step2 result-c2 | turn2-in1 | turn2-step3",
    },
    {
      name: "calls side by side are not parted from the results of the last",
      given: [request(2), calls("turn2-step1", "a", "b"), result("a"), result("b", long), ...looks(2)],
      bounds: { keepTokens: 300 },
      drops: "turn2-step1 result-a result-b | turn2-in1 | turn2-step2 result-c2",
    },
    {
      name: "calls of the client keep the turn that answers them",
      given: [request(1), answer(1), request(2), calls("turn2-step1", "mine"), { ...result("mine"), id: "turn3-in1" }],
      drops: "turn1-in1 turn1-step1 |  | turn2-in1 turn2-step1 turn3-in1",
    },
    {
      name: "a request that brings the result of a call stays behind it",
      given: [
        request(1),
        calls("turn1-step1", "mine"),
        { role: "user", id: "turn2-in1", blocks: [...result("mine").blocks, { type: "text", text: "there" }] },
        ...looks(1, long),
        ...looks(2),
      ],
      bounds: { keepTokens: 100 },
      drops: "turn1-in1 |  | turn1-step1 turn2-in1 turn2-step1 result-c1 turn2-step2 result-c2",
    },
    {
      name: "without a summary as many rounds stay as fit",
      given: [request(1, long), answer(1), request(2), answer(2), request(3)],
      bounds: { keepTokens: 200, from: "anywhere" },
      drops: "turn1-in1 |  | turn1-step1 turn2-in1 turn2-step1 turn3-in1",
    },
    {
      name: "an answer of two parts stays or goes whole",
      given: [request(1), said("assistant", "turn1-step1", long), said("assistant", "turn1-step2"), request(2)],
      bounds: { keepTokens: 100, from: "anywhere" },
      drops: "turn1-in1 turn1-step1 turn1-step2 |  | turn2-in1",
    },
  ];
  for (const { name, given, bounds = {}, drops } of cases) {
    test(name, () => assert.equal(outcome(given, bounds), drops));
  }
});

const event = (messages: readonly Message[], bounds: Bounds): Extract<LogEvent, { type: "history-compacted" }> => {
  const plan = planCompaction(messages, bounds);
  const first = plan?.tail[0]?.id;
  return {
    type: "history-compacted",
    droppedMessages: plan?.dropped.length ?? 0,
    keptMessages: (plan?.pinned.length ?? 0) + (plan?.tail.length ?? 0),
    summary: "what was said",
    keptMessageIds: plan?.pinned.flatMap(({ id = "" }) => id) ?? [],
    ...(first === undefined ? {} : { firstKeptMessageId: first }),
    trigger: "share",
    model: "p/m",
  };
};

const place = { seq: 7, timeMs: 5 };

test("the summary is a message of the user between the instructions and the last request", () => {
  const given = [said("system", "s"), request(1), answer(1), request(2), calls("turn2-step1")];
  const [system, summary, ...rest] = compactedHistory(given, event(given, all), place);
  assert.equal(system, given[0]);
  assert.deepEqual([summary?.role, summary?.id, summary?.createTimeMs], ["user", "compacted-7", 5]);
  assert.match(JSON.stringify(summary?.blocks), /what was said/);
  assert.deepEqual(rest, given.slice(3));
});

test("a fold that does not have the kept messages stays as it is", () => {
  const given = [request(1), answer(1), request(2)];
  const compacted = { ...event(given, all), firstKeptMessageId: "unknown" };
  assert.equal(compactedHistory(given, compacted, place), given);
});

const callId = fc.constantFrom("a", "b", "c", "d");
const words = fc.constantFrom("few", long, "словами", "漢字".repeat(300));
const part = fc.oneof(
  fc
    .tuple(fc.constantFrom("user", "assistant", "system", "developer"), words)
    .map(([role, text]): Omit<Message, "id"> => ({ role: role as Message["role"], blocks: [{ type: "text", text }] })),
  fc.uniqueArray(callId, { minLength: 1 }).map((ids) => calls("", ...ids)),
  fc.tuple(callId, words).map(([id, content]) => result(id, content)),
  callId.map((id): Message => ({ role: "user", blocks: [...result(id).blocks, { type: "text", text: "and" }] })),
);
const history = fc.array(part, { maxLength: 30 }).map((parts) =>
  parts.map((message, index): Message => {
    const kind = message.role === "user" && index % 3 > 0 ? `turn${Math.floor(index / 4)}-in${index}` : `m${index}`;
    return { ...message, id: kind };
  }),
);
const bounds = fc.record<Bounds>({
  keepTokens: fc.constantFrom(0, 100, 1000, Number.POSITIVE_INFINITY),
  comingTokens: fc.constantFrom(0, 500),
  from: fc.constantFrom("request", "anywhere"),
});

/** Which result each call has, as pairs of message ids. */
function pairs(messages: readonly Message[]): string[] {
  const open: { id: string; place: string }[] = [];
  const found: string[] = [];
  for (const message of messages) {
    for (const { id } of toolUses(message)) open.push({ id, place: message.id ?? "" });
    for (const block of message.blocks) {
      if (block.type !== "tool_result") continue;
      const call = open.findIndex(({ id }) => id === block.toolUseId);
      if (call >= 0) found.push(`${open.splice(call, 1)[0]?.place} ${block.toolUseId} ${message.id}`);
    }
  }
  return found;
}

test("whatever the history, no call is parted from its result, and instructions, request and last answer stay", () => {
  fc.assert(
    fc.property(history, bounds, (given, asked) => {
      const compacted = compactedHistory(given, event(given, asked), place);
      const ids = new Set(compacted.map(({ id }) => id));
      for (const message of given)
        if (ids.has(message.id)) assert.ok(compacted.includes(message), "kept messages are the same object");
      const whole = pairs(given).filter((pair) => pair.split(" ").every((id, index) => index === 1 || ids.has(id)));
      assert.deepEqual(pairs(compacted), whole, "kept calls have their own results");
      for (const pair of pairs(given)) {
        const [call = "", , answered = ""] = pair.split(" ");
        assert.equal(ids.has(call), ids.has(answered), `call and result stay or go together: ${pair}`);
      }
      const texts = new Set(compacted.map(({ blocks }) => JSON.stringify(blocks)));
      for (const { role, blocks } of given)
        if (role === "system" || role === "developer") assert.ok(texts.has(JSON.stringify(blocks)));
      const lastRequest = given.findLast(({ role, id = "" }) => role === "user" && id.includes("-in"));
      if (lastRequest !== undefined) assert.ok(compacted.includes(lastRequest));
      const lastAnswer = given.findLast(({ role }) => role === "assistant");
      const isAfter =
        lastRequest === undefined || given.indexOf(lastAnswer ?? lastRequest) > given.indexOf(lastRequest);
      if (lastAnswer !== undefined && isAfter && given.at(-1) !== undefined && lastRequest !== undefined)
        assert.ok(compacted.includes(lastAnswer));
      const again = planCompaction(compacted, asked);
      assert.ok(again === undefined || compacted.length < given.length || asked.from === "anywhere");
    }),
    { numRuns: 2000 },
  );
});

const paths = {
  "openai-chat": "/chat/completions",
  "openai-responses": "/responses",
  "anthropic-messages": "/messages",
};

for (const dialect of Object.values(dialects)) {
  test(`${dialect.id} takes every compacted history`, () => {
    fc.assert(
      fc.property(history, bounds, (given, asked) => {
        const valid = (messages: readonly Message[]) => {
          const sent = [...validHistory(messages)];
          const text = dialect.encode({ model: "m", messages: sent, tools: [], options: {} }, defaultQuirks, "p");
          checkRequest(paths[dialect.id], text);
        };
        const compacted = compactedHistory(given, event(given, asked), place);
        if (compacted !== given) valid(compacted);
      }),
      { numRuns: 500 },
    );
  });
}

/** Turns of a session: how many calls each step makes, and before which step the history is compacted, as far as it goes. */
const turns = fc.array(
  fc.record({
    steps: fc.array(fc.record({ calls: fc.nat({ max: 3 }), answered: fc.boolean() }), { maxLength: 6 }),
    compactBefore: fc.nat({ max: 8 }),
    endsWith: fc.constantFrom("stop", "cancelled", "tool_calls"),
    bounds,
    words,
  }),
  { minLength: 1, maxLength: 5 },
);

for (const dialect of Object.values(dialects)) {
  test(`a session that is compacted anywhere is always one that ${dialect.id} takes, and folds the same again`, () => {
    fc.assert(
      fc.property(turns, (given) => {
        const log: LogRecord[] = [];
        const state = emptyState([said("system", "", "the rules")]);
        let turnId = "";
        const add = (one: LogEvent) => {
          const record = { seq: log.length + 1, turnId, timeMs: log.length, event: one };
          log.push(record);
          foldRecord(state, record);
        };
        const check = (asked: string) => {
          const messages = [...validHistory(state.messages)];
          const body = dialect.encode({ model: "m", messages, tools: [], options: {} }, defaultQuirks, "p");
          checkRequest(paths[dialect.id], body);
          const texts = messages.map(({ role, blocks }) => `${role} ${JSON.stringify(blocks)}`);
          assert.ok(texts.includes(`system [{"type":"text","text":"the rules"}]`));
          assert.ok(texts.includes(`user [{"type":"text","text":${JSON.stringify(asked)}}]`), `lost: ${asked}`);
        };
        for (const [index, { steps, compactBefore, endsWith, bounds: asked, words: more }] of given.entries()) {
          turnId = `turn${index}`;
          const request = `${turnId} ${more}`;
          const messages = [said("user", "", request)];
          add({ type: "turn-started", requestId: "", principal: "", model: "p/m", messages, options: {}, tools: [] });
          for (const [place, step] of [...steps, { calls: 0, answered: true }].entries()) {
            if (place === compactBefore) add(event(state.messages, asked));
            add({ type: "step-started", step: place + 1, attempt: 1, model: "m", provider: "p" });
            check(request);
            const ids = Array.from({ length: step.calls }, (_, call) => `${turnId}-${place}-${call}`);
            for (const block of calls("", ...ids).blocks) add({ type: "block-stop", index: 0, block });
            const rest = { rawFinishReason: "", usage: { inputTokens: 10 } };
            const finishReason = step.calls > 0 ? "tool_calls" : "stop";
            add({ type: "step-finished", step: place + 1, attempt: 1, finishReason, ...rest });
            for (const toolCallId of step.answered ? ids : [])
              add({ type: "tool-finished", toolCallId, name: "look", result: { success: true, output: more } });
          }
          add({ type: "turn-finished", finishReason: endsWith, steps: steps.length + 1 });
          turnId = "";
          if (compactBefore === 8) add(event(state.messages, asked));
        }
        const again = emptyState([said("system", "", "the rules")]);
        for (const record of log) foldRecord(again, record);
        assert.deepEqual(again, state);
      }),
      { numRuns: 300 },
    );
  });
}

test("the text to summarise is as long as it may be", () => {
  const messages = Array.from({ length: 50 }, (_, index) => said("user", `turn${index}-in1`, `${index} ${long}`));
  const whole = transcriptOf(messages, 1_000_000);
  assert.ok(whole.includes(long) && whole.includes("[user]\n49 word"));
  for (const most of [500, 5000, 20_000]) {
    const text = transcriptOf([said("user", "compacted-1", "the beginning"), ...messages], most);
    assert.ok(textTokens(text) <= most + 20, `${textTokens(text)} of ${most}`);
    assert.ok(text.includes("the beginning") && text.includes("characters left out"), `at ${most}`);
  }
});

test("estimates count scripts without letters by characters, and images by their number", () => {
  assert.equal(textTokens("a".repeat(400)), 100);
  assert.equal(textTokens("漢".repeat(400)), 400);
  const url = `data:image/png;base64,${"A".repeat(1_000_000)}`;
  assert.ok(estimateTokens([{ role: "user", blocks: [{ type: "image", url }] }]) < 2000);
});
