import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { LogEvent } from "../../src/chat/log-event.ts";
import { type NextStep, nextStep } from "../../src/session/next-step.ts";
import { emptyState, foldRecord } from "../../src/session/state.ts";

type Step = Extract<LogEvent, { type: "step-finished" }>;
const started = (more: object = {}): LogEvent => ({
  type: "turn-started",
  requestId: "",
  principal: "",
  model: "p/m",
  messages: [],
  options: {},
  tools: [],
  ...more,
});
const asking = (step: number, attempt = 1): LogEvent => ({
  type: "step-started",
  step,
  attempt,
  model: "m",
  provider: "p",
});
const text: LogEvent = { type: "block-stop", index: 0, block: { type: "text", text: "t" } };
const call = (id: string, name = "f"): LogEvent => ({
  type: "block-stop",
  index: 0,
  block: { type: "tool_use", id, name, input: "{}" },
});
const answered = (finishReason: Step["finishReason"], more: Partial<Step> = {}): LogEvent => ({
  type: "step-finished",
  step: 1,
  attempt: 1,
  finishReason,
  rawFinishReason: "",
  ...more,
});
const begun = (toolCallId: string, readOnly: boolean): LogEvent => ({
  type: "tool-started",
  toolCallId,
  name: "f",
  source: "local",
  readOnly,
});
const done = (toolCallId: string): LogEvent => ({
  type: "tool-finished",
  toolCallId,
  name: "f",
  result: { success: true, output: "" },
});
const asked = (toolCallId: string, expireTimeMs: number): LogEvent => ({
  type: "request-opened",
  request: { requestId: `about ${toolCallId}`, kind: "approval", title: "", toolCallId, options: [], expireTimeMs },
});
const told = (toolCallId: string, decision: string): LogEvent => ({
  type: "request-resolved",
  requestId: `about ${toolCallId}`,
  decision,
  author: "",
});
const ended: LogEvent = { type: "turn-finished", finishReason: "stop", steps: 1 };
const usage = { inputTokens: 90, outputTokens: 20 };
const client = [{ name: "mine", description: "", parameters: "" }];

/** What a step says in short. */
function short(step: NextStep): string {
  if (step.type === "call-model") return `call-model ${step.step}.${step.attempt}`;
  if (step.type === "finish-turn") return `finish ${step.finishReason}`;
  if (step.type === "run-tools") return step.calls.map(({ call: { use }, action }) => `${action} ${use.id}`).join(", ");
  if (step.type === "await-answers") return `await answers until ${step.untilMs}`;
  return step.type;
}

describe("nextStep, asked after every event a crash could come behind", () => {
  const cases: { name: string; log: LogEvent[]; next: string }[] = [
    { name: "nothing has happened", log: [], next: "wait" },
    { name: "a turn has begun", log: [started()], next: "call-model 1.1" },
    { name: "the model was asked", log: [started(), asking(1)], next: "call-model 1.2" },
    { name: "it had said something", log: [started(), asking(1), text], next: "call-model 1.2" },
    { name: "it was asked again", log: [started(), asking(1), text, asking(1, 2)], next: "call-model 1.3" },
    { name: "it has answered", log: [started(), asking(1), text, answered("stop")], next: "finish stop" },
    { name: "its answer was cut", log: [started(), asking(1), call("a"), answered("length")], next: "finish length" },
    {
      name: "its answer was filtered",
      log: [started(), asking(1), call("a"), answered("content_filter")],
      next: "finish content_filter",
    },
    {
      name: "it paused",
      log: [started(), asking(1), text, answered("stop", { continues: true })],
      next: "call-model 2.1",
    },
    {
      name: "it calls tools",
      log: [started(), asking(1), call("a"), call("b"), answered("tool_calls")],
      next: "run a, run b",
    },
    { name: "it calls tools and says stop", log: [started(), asking(1), call("a"), answered("stop")], next: "run a" },
    {
      name: "it says tool_calls and calls none",
      log: [started(), asking(1), text, answered("tool_calls")],
      next: "finish stop",
    },
    {
      name: "a tool that reads was running",
      log: [started(), asking(1), call("a"), call("b"), answered("tool_calls"), begun("a", true)],
      next: "run-again a, run b",
    },
    {
      name: "a tool that changes something was running",
      log: [started(), asking(1), call("a"), call("b"), answered("tool_calls"), begun("a", false)],
      next: "report-interrupted a, run b",
    },
    {
      name: "one tool has ended",
      log: [
        started(),
        asking(1),
        call("a"),
        call("b"),
        answered("tool_calls"),
        begun("a", false),
        begun("b", true),
        done("a"),
      ],
      next: "run-again b",
    },
    {
      name: "one of two calls has to be approved",
      log: [started(), asking(1), call("a"), call("b"), answered("tool_calls"), asked("a", 70)],
      next: "run b",
    },
    {
      name: "nothing is left but what has to be approved",
      log: [
        started(),
        asking(1),
        ...[call("a"), call("b"), call("c"), answered("tool_calls"), asked("a", 70), asked("c", 60)],
        ...[begun("b", true), done("b")],
      ],
      next: "await answers until 60",
    },
    {
      name: "one of two was approved",
      log: [
        started(),
        asking(1),
        ...[call("a"), call("b"), answered("tool_calls"), asked("a", 70), asked("b", 70), told("b", "allow_once")],
      ],
      next: "run b",
    },
    {
      name: "it was denied",
      log: [started(), asking(1), call("a"), answered("tool_calls"), asked("a", 70), told("a", "deny")],
      next: "run a",
    },
    {
      name: "what was approved was running",
      log: [
        started(),
        asking(1),
        ...[call("a"), answered("tool_calls"), asked("a", 70), told("a", "allow_once"), begun("a", false)],
      ],
      next: "report-interrupted a",
    },
    {
      name: "all tools have ended",
      log: [started(), asking(1), call("a"), answered("tool_calls"), begun("a", false), done("a")],
      next: "call-model 2.1",
    },
    {
      name: "the client has to run a tool",
      log: [started({ tools: client }), asking(1), call("a", "mine"), answered("tool_calls")],
      next: "finish tool_calls",
    },
    {
      name: "the client has to run one of two",
      log: [started({ tools: client }), asking(1), call("a", "mine"), call("b"), answered("tool_calls")],
      next: "run b",
    },
    {
      name: "no more steps are allowed",
      log: [started({ options: { maxSteps: 1 } }), asking(1), call("a"), answered("tool_calls")],
      next: "finish max_steps",
    },
    {
      name: "the tokens are used up",
      log: [
        started({ options: { budget: { maxTotalTokens: 100 } } }),
        asking(1),
        call("a"),
        answered("tool_calls", { usage }),
        begun("a", true),
        done("a"),
      ],
      next: "finish budget",
    },
    { name: "the answer failed", log: [started(), asking(1), text, answered("error")], next: "finish error" },
    { name: "the turn has ended", log: [started(), asking(1), text, answered("stop"), ended], next: "wait" },
  ];
  for (const { name, log, next } of cases) {
    test(name, () => {
      const state = emptyState([]);
      for (const [index, event] of log.entries())
        foldRecord(state, { seq: index + 1, turnId: "turn", timeMs: 0, event });
      assert.equal(short(nextStep(state, 50)), next);
    });
  }
});
