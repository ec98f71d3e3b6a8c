import type { FinishReason } from "../chat/finish-reason.ts";
import type { LogEvent, LogRecord, PendingRequest, RequestAnswer, TurnError } from "../chat/log-event.ts";
import { type ContentBlock, type Message, type ToolUseBlock, toolUses } from "../chat/message.ts";
import type { PlanRun, PlanStepChange } from "../chat/plan.ts";
import type { GenerateOptions, ToolDefinition } from "../chat/request.ts";
import { loadSkillName } from "../chat/skill.ts";
import { type Todo, todosFrom, todosSet, todosText, updateTodosName } from "../chat/todo.ts";
import { type ToolResult, toolFailure, toolResultText } from "../chat/tool-result.ts";
import { addUsage, type Usage } from "../chat/usage.ts";
import { present } from "../convert/present.ts";
import type { SkillPermissions } from "../tool/permission.ts";
import { createPlanName, planFunctionNames, runPlanName } from "../tool/plan-functions.ts";
import { taskName } from "../tool/task.ts";
import { compactedHistory } from "./compact-history.ts";
import { sessionPaused, sessionResumed } from "./session-change.ts";
import { taskUsageOf } from "./task-usage.ts";

/** What the log of a session adds up to. Only `foldRecord` changes it. */
export interface SessionState {
  /** The last event folded; 0 for none. */
  seq: number;
  /** The history, as a model reads it. */
  readonly messages: Message[];
  /** All turns together, and the summaries that were asked for between them. */
  usage: Usage | undefined;
  /** What the tasks used that finished turns handed over; it is not part of `usage`. */
  taskUsage: Usage | undefined;
  /** How long the finished turns ran in all, waiting for answers to pending requests left out. */
  ranMs: number;
  /** How many tokens a model read and wrote that was shown so many messages; undefined before one has told. */
  size: { readonly tokens: number; readonly messages: number } | undefined;
  /** The turn that was begun and has not finished. */
  turn: TurnState | undefined;
  /** The model asked last, in whatever turn. */
  asked: { readonly provider: string; readonly model: string } | undefined;
  /** Of the server's functions when the last turn began; undefined before the first. */
  toolsDigest: string | undefined;
  /** The last event after which no turn ran; 0 for none. */
  settledSeq: number;
  /** Skills whose instructions were loaded, and what they need for their work. */
  readonly loadedSkills: SkillPermissions[];
  /** Calls that somebody allowed for the rest of the session, as the model made them. */
  readonly allowedCalls: AllowedCall[];
  /** What is to be done, as the model wrote it down last, or somebody set it. */
  todos: readonly Todo[];
  /** Somebody set the list, and the model has not been told. */
  hasUntoldTodos: boolean;
  /** No model call and no tool begins. */
  paused: boolean;
}

export interface AllowedCall {
  readonly name: string;
  /** JSON text. */
  readonly argumentsText: string;
  /** Of what it would run besides its arguments; the allowance holds for this only. */
  readonly contentSha256?: string;
}

export interface TurnState {
  readonly turnId: string;
  readonly requestId: string;
  readonly principal: string;
  readonly model: string;
  readonly options: GenerateOptions;
  /** Functions the client runs. */
  readonly clientTools: readonly ToolDefinition[];
  readonly startedMs: number;
  /** Number of the last step begun; 0 before the first. */
  step: number;
  /** Number of its last attempt. */
  attempt: number;
  /** The model asked last; absent before the first step. */
  asked: { readonly provider: string; readonly model: string } | undefined;
  /** Answers that were not in the form asked for, and of which the model was told. */
  rejectedAnswers: number;
  /** What the last attempt came to; absent while the model has not finished. */
  answer: AnswerState | undefined;
  /** Blocks of the running attempt that are complete. */
  blocks: ContentBlock[];
  usage: Usage | undefined;
  /** What the tasks used that the turn handed over; it is not part of `usage`. */
  taskUsage: Usage | undefined;
  /** The last step whose history was compacted because its provider said that it is too long; 0 for none. */
  compactedStep: number;
  /** The plan it executes; undefined for others. */
  readonly plan: PlanTurnState | undefined;
  /** How far a planned turn is: nothing yet, a plan that can run, or over, since it ran or there is none. */
  planning: "none" | "made" | "over";
  /** The last calls of the turn's answers before this one, in order. */
  earlierCalls: readonly ToolUseBlock[];
  /** Pending requests that nobody has answered, since when there are any, and for how long there were before. */
  waits: { readonly open: number; readonly sinceMs: number; readonly beforeMs: number };
}

/** What a turn that executes a plan came to so far. */
export interface PlanTurnState {
  readonly run: PlanRun;
  /** All changes of its steps, in order. */
  readonly changes: (PlanStepChange & { readonly seq: number; readonly timeMs: number })[];
  /** What was asked about its steps, in order; `toolCallId` is the step. */
  readonly requests: RequestState[];
  /** Why it ends before its time; undefined while nothing makes it. */
  ending: { readonly code: PlanEndingCode; readonly message: string } | undefined;
}

/** Codes of the notices that say, once, that an execution ends before its time. */
export const planEndingCodes = ["PLAN_CANCELLED", "PLAN_TIME_OVER", "PLAN_BUDGET_EXHAUSTED"] as const;
export type PlanEndingCode = (typeof planEndingCodes)[number];

export interface AnswerState {
  readonly finishReason: FinishReason;
  readonly rawFinishReason: string;
  readonly continues: boolean;
  readonly responseId: string;
  readonly calls: CallState[];
}

export interface CallState {
  readonly use: ToolUseBlock;
  /** It was about to run: it may have. */
  started: { readonly readOnly: boolean; readonly source: string } | undefined;
  /** Its approval was asked for. */
  request: RequestState | undefined;
  result: ToolResult | undefined;
}

export interface RequestState {
  readonly request: PendingRequest;
  /** The event that opened it. */
  readonly seq: number;
  readonly openedMs: number;
  /** What became of it; absent while it waits. */
  answer: RequestAnswer | undefined;
}

/** As many as a call may be repeated before somebody is asked (`limits.repeated_calls`). */
const earlierCallsKept = 100;

/** Marks a message of the history that the server wrote, with the code of its notice. */
const noticeMetadata = "codeagent.notice";

/** What a session is before anything happened in it. */
export function emptyState(initialMessages: readonly Message[]): SessionState {
  return {
    seq: 0,
    messages: initialMessages.map((message, index) => ({ ...message, id: `initial-${index + 1}` })),
    usage: undefined,
    taskUsage: undefined,
    asked: undefined,
    ranMs: 0,
    size: undefined,
    turn: undefined,
    toolsDigest: undefined,
    settledSeq: 0,
    loadedSkills: [],
    allowedCalls: [],
    todos: [],
    hasUntoldTodos: false,
    paused: false,
  };
}

/** Adds one event to the state. Deltas may be left out: `block-stop` has the whole block. */
export function foldRecord(state: SessionState, record: LogRecord): void {
  state.seq = record.seq;
  const { event } = record;
  const turn = state.turn;
  switch (event.type) {
    case "turn-started":
      tellTodos(state, record);
      for (const [index, message] of event.messages.entries()) {
        state.messages.push({ ...message, id: `${record.turnId}-in${index + 1}`, createTimeMs: record.timeMs });
      }
      state.toolsDigest = event.toolsDigest;
      state.turn = {
        turnId: record.turnId,
        requestId: event.requestId,
        principal: event.principal,
        model: event.model,
        options: event.options,
        clientTools: event.tools,
        startedMs: record.timeMs,
        step: 0,
        attempt: 0,
        asked: undefined,
        rejectedAnswers: 0,
        answer: undefined,
        blocks: [],
        usage: undefined,
        taskUsage: undefined,
        compactedStep: 0,
        planning: "none",
        earlierCalls: [],
        plan: event.plan === undefined ? undefined : { run: event.plan, changes: [], requests: [], ending: undefined },
        waits: { open: 0, sinceMs: 0, beforeMs: 0 },
      };
      return;
    case "step-started":
      if (turn === undefined) return;
      if (turn.answer !== undefined) addToolMessages(state, turn, record, () => undefined);
      tellTodos(state, record);
      if (event.voidedUsage !== undefined) turn.usage = addUsage(turn.usage, event.voidedUsage);
      turn.step = event.step;
      turn.attempt = event.attempt;
      turn.asked = { provider: event.provider, model: event.model };
      state.asked = turn.asked;
      turn.earlierCalls = [...turn.earlierCalls, ...(turn.answer?.calls.map(({ use }) => use) ?? [])].slice(
        -earlierCallsKept,
      );
      turn.answer = undefined;
      turn.blocks = [];
      return;
    case "block-stop":
      turn?.blocks.push(event.block);
      return;
    case "step-finished": {
      if (turn === undefined) return;
      const usable =
        event.finishReason === "error" || event.finishReason === "cancelled"
          ? turn.blocks.filter(isShownText)
          : turn.blocks;
      const message: Message = {
        role: "assistant",
        blocks: usable,
        id: answerId(turn.turnId, event.step),
        createTimeMs: record.timeMs,
      };
      if (usable.length > 0) state.messages.push(message);
      turn.answer = {
        finishReason: event.finishReason,
        rawFinishReason: event.rawFinishReason,
        continues: event.continues ?? false,
        responseId: event.responseId ?? "",
        calls: toolUses(message).map((use) => ({ use, started: undefined, request: undefined, result: undefined })),
      };
      turn.blocks = [];
      turn.usage = addUsage(turn.usage, event.usage);
      if (event.usage?.inputTokens !== undefined) {
        const tokens = event.usage.inputTokens + (event.usage.outputTokens ?? 0);
        state.size = { tokens, messages: state.messages.length };
      }
      return;
    }
    case "tool-started": {
      const call = callOf(turn, event.toolCallId);
      if (call !== undefined) call.started = { readOnly: event.readOnly, source: event.source };
      return;
    }
    case "tool-finished": {
      const call = callOf(turn, event.toolCallId);
      if (call === undefined) return;
      call.result = event.result;
      if (call.started?.source !== "local") return;
      if (call.use.name === updateTodosName && event.result.success)
        state.todos = todosFrom(parsedInput(call.use.input)) ?? state.todos;
      if (call.use.name === loadSkillName) noteLoadedSkill(state.loadedSkills, event.result);
      const isTask = call.use.name === taskName || planFunctionNames.includes(call.use.name);
      const used = isTask ? taskUsageOf(event.result) : undefined;
      if (turn !== undefined && call.use.name === createPlanName)
        turn.planning = event.result.success ? "made" : "over";
      if (turn !== undefined && call.use.name === runPlanName) turn.planning = "over";
      if (turn !== undefined && used !== undefined) turn.taskUsage = addUsage(turn.taskUsage, used);
      return;
    }
    case "request-opened": {
      if (turn !== undefined) turn.waits = waitsAfter(turn.waits, 1, record.timeMs);
      const opened: RequestState = {
        request: event.request,
        seq: record.seq,
        openedMs: record.timeMs,
        answer: undefined,
      };
      turn?.plan?.requests.push(opened);
      const call = callOf(turn, event.request.toolCallId ?? "");
      if (call !== undefined) call.request = opened;
      return;
    }
    case "request-resolved": {
      if (turn !== undefined) turn.waits = waitsAfter(turn.waits, -1, record.timeMs);
      const asked =
        turn === undefined ? undefined : requestsOf(turn).find(({ request }) => request.requestId === event.requestId);
      if (asked === undefined) return;
      const { type: _, ...answer } = event;
      asked.answer = answer;
      const { toolName = "", arguments: argumentsText = "", contentSha256 } = asked.request;
      if (answer.decision === "allow_session")
        state.allowedCalls.push(present({ name: toolName, argumentsText, contentSha256 }));
      return;
    }
    case "turn-finished":
      if (turn === undefined) return;
      if (turn.answer !== undefined) {
        const theClients = new Set(turn.clientTools.map((tool) => tool.name));
        addToolMessages(state, turn, record, (call) =>
          event.finishReason === "tool_calls" && theClients.has(call.use.name)
            ? undefined
            : unfinishedResult(call, event.finishReason, event.error),
        );
      }
      state.usage = addUsage(state.usage, event.usage ?? turn.usage);
      if (turn.taskUsage !== undefined) state.taskUsage = addUsage(state.taskUsage, turn.taskUsage);
      state.ranMs += Math.max(0, ranMs(turn, record.timeMs));
      state.settledSeq = record.seq;
      state.turn = undefined;
      return;
    case "block-start":
    case "block-delta":
    case "tool-output":
      return;
    case "history-compacted": {
      if (turn !== undefined && event.usage !== undefined) turn.usage = addUsage(turn.usage, event.usage);
      if (turn === undefined) {
        if (event.usage !== undefined) state.usage = addUsage(state.usage, event.usage);
        state.settledSeq = record.seq;
      }
      if (turn !== undefined && event.trigger === "context_length") turn.compactedStep = turn.step;
      if (event.droppedMessages === 0) return;
      // An answer that the provider keeps has the whole history before it: the next step doesn't go on from it.
      if (turn?.answer !== undefined) turn.answer = { ...turn.answer, responseId: "" };
      replaceMessages(state, compactedHistory(state.messages, event, record, state.todos));
      if (event.summary !== "") state.hasUntoldTodos = false;
      state.size =
        event.tokensAfter === undefined ? undefined : { tokens: event.tokensAfter, messages: state.messages.length };
      return;
    }
    case "plan-step":
      if (turn?.plan === undefined) return;
      turn.plan.changes.push({ ...event, seq: record.seq, timeMs: record.timeMs });
      if (event.usage !== undefined) turn.usage = addUsage(turn.usage, event.usage);
      return;
    case "tools-changed":
      return;
    case "notice":
      foldChange(state, event, record);
      if (turn?.plan !== undefined) {
        const code = planEndingCodes.find((each) => each === event.code);
        if (code !== undefined) turn.plan.ending ??= { code, message: event.message };
      }
      if (turn?.answer === undefined || event.modelText === undefined) return;
      turn.rejectedAnswers++;
      turn.answer = { ...turn.answer, continues: true };
      state.messages.push({
        role: "user",
        blocks: [{ type: "text", text: event.modelText }],
        id: `${turn.turnId}-step${turn.step}-notice`,
        metadata: { [noticeMetadata]: event.code },
        createTimeMs: record.timeMs,
      });
      return;
    default:
      event satisfies never;
  }
}

/** What somebody changed at once. Time in which a turn can't go on counts as waiting. */
function foldChange(
  state: SessionState,
  { code, todos }: Extract<LogEvent, { type: "notice" }>,
  { seq, timeMs }: LogRecord,
): void {
  if (state.turn === undefined) state.settledSeq = seq; // a fork takes it over
  if (code === todosSet && todos !== undefined) {
    state.todos = todos;
    state.hasUntoldTodos = true;
  }
  const paused = code === sessionPaused || (state.paused && code !== sessionResumed);
  if (paused === state.paused) return;
  state.paused = paused;
  if (state.turn !== undefined) state.turn.waits = waitsAfter(state.turn.waits, paused ? 1 : -1, timeMs);
}

/** Between messages, and in no place that parts a call from its result. */
function tellTodos(state: SessionState, { seq, timeMs }: LogRecord): void {
  if (!state.hasUntoldTodos) return;
  state.hasUntoldTodos = false;
  const list = state.todos.length === 0 ? "It is empty now." : `It is now:\n${todosText(state.todos)}`;
  state.messages.push({
    role: "user",
    blocks: [{ type: "text", text: `The todo list of this session was set by somebody else than you. ${list}` }],
    id: `todos-${seq}`,
    metadata: { [noticeMetadata]: todosSet },
    createTimeMs: timeMs,
  });
}

function replaceMessages({ messages }: SessionState, others: readonly Message[]): void {
  if (others === messages) return;
  messages.length = 0;
  for (const message of others) messages.push(message);
}

/** How long a turn has run at a time, waiting for answers to pending requests left out. */
export function ranMs(turn: TurnState, timeMs: number): number {
  return timeMs - turn.startedMs - waitedMs(turn, timeMs);
}

/** For how long pending requests of a turn waited for an answer, up to a time. */
export function waitedMs({ waits }: TurnState, timeMs: number): number {
  return waits.beforeMs + (waits.open === 0 ? 0 : Math.max(0, timeMs - waits.sinceMs));
}

function waitsAfter({ open, sinceMs, beforeMs }: TurnState["waits"], change: 1 | -1, timeMs: number) {
  const still = Math.max(0, open + change);
  if (open === 0) return { open: still, sinceMs: timeMs, beforeMs };
  return still === 0
    ? { open: 0, sinceMs: 0, beforeMs: beforeMs + timeMs - sinceMs }
    : { open: still, sinceMs, beforeMs };
}

/** The requests of the running turn that nobody has answered, in the order they were opened. */
export function openRequests(state: SessionState): readonly RequestState[] {
  const requests = state.turn === undefined ? [] : requestsOf(state.turn);
  return requests.filter((request) => request.answer === undefined).toSorted((left, right) => left.seq - right.seq);
}

/** What was asked about the calls of the last answer, or the steps of a plan. */
function requestsOf({ plan, answer }: TurnState): readonly RequestState[] {
  return plan?.requests ?? (answer?.calls ?? []).flatMap(({ request }) => request ?? []);
}

/** Id of the message that a step adds to the history. */
export function answerId(turnId: string, step: number): string {
  return `${turnId}-step${step}`;
}

function isShownText(block: ContentBlock): boolean {
  return block.type === "text" && block.text !== "";
}

/** What a skill of the operator's may use, for as long as the session lives; the rules of others stand above it. */
function noteLoadedSkill(loaded: SkillPermissions[], { success, metadata = {} }: ToolResult): void {
  const { skill, allowed_tools: allowedTools } = metadata;
  if (!success || skill === undefined || allowedTools === undefined) return;
  const rules = parsedInput(allowedTools);
  const before = loaded.findIndex((other) => other.skill === skill);
  if (before !== -1) loaded.splice(before, 1);
  if (!Array.isArray(rules) || rules.length === 0) return;
  loaded.push({ skill, allow: rules.filter((rule) => typeof rule === "string") });
}

function parsedInput(input: string): unknown {
  try {
    return JSON.parse(input);
  } catch {
    return undefined;
  }
}

function callOf(turn: TurnState | undefined, toolCallId: string): CallState | undefined {
  return turn?.answer?.calls.find((call) => call.use.id === toolCallId);
}

/** Results enter the history in the order of the calls, whatever order they came in. */
function addToolMessages(
  state: SessionState,
  turn: TurnState,
  record: LogRecord,
  missing: (call: CallState) => ToolResult | undefined,
): void {
  for (const call of turn.answer?.calls ?? []) {
    const result = call.result ?? missing(call);
    if (result === undefined) continue;
    state.messages.push({
      role: "tool",
      blocks: [
        {
          type: "tool_result",
          toolUseId: call.use.id,
          content: toolResultText(result),
          ...(result.success ? {} : { isError: true }),
        },
      ],
      id: `${turn.turnId}-step${turn.step}-${call.use.id}`,
      createTimeMs: record.timeMs,
    });
  }
}

function unfinishedResult(call: CallState, finishReason: FinishReason, error: TurnError | undefined): ToolResult {
  const why =
    finishReason === "error" ? `the turn failed (${error?.reason ?? "error"})` : `the turn ended (${finishReason})`;
  return toolFailure(
    call.started === undefined
      ? `not run: ${why}`
      : `interrupted: ${why}; the outcome is unknown, check before trying again`,
  );
}
