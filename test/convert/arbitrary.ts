import fc from "fast-check";
import { agentErrorKinds } from "../../src/chat/error.ts";
import { finishReasons } from "../../src/chat/finish-reason.ts";
import { compactionTriggers, type LogEvent, type PendingRequest, type TurnError } from "../../src/chat/log-event.ts";
import type { ContentBlock, Message, ToolResultBlock, ToolUseBlock } from "../../src/chat/message.ts";
import { roles } from "../../src/chat/message.ts";
import {
  type GoalCheck,
  goalStates,
  type MissingFunction,
  onErrorPolicies,
  type PlanCompensation,
  type PlanDraft,
  type PlanOutcome,
  type PlanProblem,
  type PlanRetry,
  type PlanRun,
  type PlanStep,
  type PlanStepDetails,
  type PlanVersion,
  planComplexities,
  planOutcomeStates,
  planStepStates,
} from "../../src/chat/plan.ts";
import {
  type Budget,
  type GenerateOptions,
  strategies,
  type ToolDefinition,
  type TurnRequest,
} from "../../src/chat/request.ts";
import {
  type LaneHandler,
  type Lanes,
  laneModes,
  lanes,
  longestLaneMs,
  type PermissionPolicy,
  permissionModes,
  type SessionConfig,
  shortestLaneMs,
} from "../../src/chat/session-config.ts";
import { setTodoStatuses, type Todo, todoPriorities, todosSet } from "../../src/chat/todo.ts";
import type { ToolResult } from "../../src/chat/tool-result.ts";
import type { Usage } from "../../src/chat/usage.ts";
import type { PartBlock } from "../../src/convert/proto/block.ts";
import { errorCodes } from "../../src/convert/proto/error.ts";
import type { TurnAnswer } from "../../src/convert/turn-answer.ts";

// Everything our words can say that the wire can hold: no empty text, empty list or `false` where absent is meant.

type Arbitraries<Fields> = { [Key in keyof Required<Fields>]: fc.Arbitrary<Exclude<Fields[Key], undefined>> };

function record<Fields extends object>(fields: Arbitraries<Fields>, optional: readonly (keyof Fields)[]) {
  const requiredKeys = Object.keys(fields).filter((key) => !optional.some((other) => other === key));
  return fc
    .record<Record<string, unknown>>(fields as Record<string, fc.Arbitrary<unknown>>, {
      requiredKeys,
      noNullPrototype: true,
    })
    .map((value) => value as Fields);
}

export const text = fc.string({ unit: "binary", maxLength: 12 });
export const filledText = fc.string({ unit: "binary", minLength: 1, maxLength: 12 });
export const count = fc.maxSafeNat();
const uint32 = fc.nat({ max: 0xffff_ffff });
export const timeMs = fc.nat({ max: Date.UTC(9999, 0) });
const yes = fc.constant(true);
const texts = fc.array(text, { maxLength: 3 });
const raw = fc.uint8Array({ minLength: 1, maxLength: 8 });
const map = fc.dictionary(text, text, { maxKeys: 3, noNullPrototype: true });
const filledMap = fc.dictionary(text, text, { minKeys: 1, maxKeys: 3, noNullPrototype: true });
export const jsonObject = fc
  .dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 })
  .map((value) => JSON.stringify(value));

const origin = { provider: filledText, model: filledText, dialect: filledText, raw };
const originKeys = ["provider", "model", "dialect", "raw"] as const;
const is = <const Type extends string>(type: Type) => fc.constant(type);

type Block<Type extends ContentBlock["type"]> = Extract<ContentBlock, { type: Type }>;

export const textBlock = record<Omit<Block<"text">, "phase">>({ type: is("text"), text: filledText }, []);
export const imageBlock = record<Block<"image">>(
  {
    type: is("image"),
    url: fc.oneof(
      fc.webUrl({ validSchemes: ["https", "http"] }),
      fc.base64String().map((data) => `data:image/png;base64,${data}`),
    ),
    detail: fc.constantFrom("auto", "low", "high"),
  },
  ["detail"],
);
export const fileBlock = record<Block<"file">>(
  {
    type: is("file"),
    data: fc.base64String().map((data) => `data:application/pdf;base64,${data}`),
    fileId: filledText,
    filename: filledText,
  },
  ["data", "fileId", "filename"],
).filter((file) => file.data !== undefined || file.fileId !== undefined);
export const audioBlock = record<Block<"audio">>(
  { type: is("audio"), data: fc.base64String({ minLength: 4 }), format: fc.constantFrom("wav", "mp3") },
  [],
);
const phasedTextBlock = record<Block<"text">>({ type: is("text"), text: filledText, phase: filledText }, ["phase"]);
export const partBlock: fc.Arbitrary<PartBlock> = fc.oneof(textBlock, imageBlock, fileBlock, audioBlock);
export const thinkingBlock = record<Block<"thinking">>(
  { type: is("thinking"), thinking: text, signature: filledText, ...origin },
  ["signature", ...originKeys],
);
const redactedThinkingBlock = record<Block<"redacted_thinking">>(
  { type: is("redacted_thinking"), data: text, ...origin },
  originKeys,
);
const reasoningBlock = record<Block<"reasoning">>(
  { type: is("reasoning"), content: text, encrypted: filledText, summary: texts, id: filledText, ...origin },
  ["encrypted", "id", ...originKeys],
);
export const toolUseBlock: fc.Arbitrary<ToolUseBlock> = record<ToolUseBlock>(
  { type: is("tool_use"), id: filledText, name: filledText, input: fc.oneof(text, jsonObject) },
  [],
);
export const toolResultBlock: fc.Arbitrary<ToolResultBlock> = record<ToolResultBlock>(
  {
    type: is("tool_result"),
    toolUseId: filledText,
    content: text,
    isError: yes,
    parts: fc.array(partBlock, { minLength: 1, maxLength: 3 }),
  },
  ["isError", "parts"],
);
const unknownBlock = record<Block<"unknown">>({ type: is("unknown"), unknownType: text, ...origin }, originKeys);

const blocksByType = {
  text: phasedTextBlock,
  thinking: thinkingBlock,
  redacted_thinking: redactedThinkingBlock,
  reasoning: reasoningBlock,
  tool_use: toolUseBlock,
  tool_result: toolResultBlock,
  image: imageBlock,
  file: fileBlock,
  audio: audioBlock,
  unknown: unknownBlock,
} satisfies { [Type in ContentBlock["type"]]: fc.Arbitrary<Block<Type>> };
export const blockTypes = Object.keys(blocksByType) as ContentBlock["type"][];
export const blockOf = (type: ContentBlock["type"]): fc.Arbitrary<ContentBlock> => blocksByType[type];
export const block: fc.Arbitrary<ContentBlock> = fc.oneof(...Object.values(blocksByType));

function messageOf(role: fc.Arbitrary<Message["role"]>, blocks: fc.Arbitrary<ContentBlock[]>): fc.Arbitrary<Message> {
  return record<Message>(
    { role, blocks, id: filledText, name: filledText, metadata: filledMap, createTimeMs: timeMs },
    ["id", "name", "metadata", "createTimeMs"],
  );
}

/** Any message, also such as no client may send. */
export const storedMessage = messageOf(fc.constantFrom(...roles), fc.array(block, { maxLength: 4 }));

const said = fc.oneof(phasedTextBlock, unknownBlock, imageBlock, fileBlock, audioBlock);
/** Messages a client may send. */
export const message: fc.Arbitrary<Message> = fc.oneof(
  messageOf(fc.constantFrom("system", "developer"), fc.array(textBlock, { maxLength: 2 })),
  messageOf(fc.constant("user"), fc.array(fc.oneof(said, toolResultBlock), { minLength: 1, maxLength: 4 })),
  messageOf(
    fc.constant("assistant"),
    fc.array(fc.oneof(said, thinkingBlock, redactedThinkingBlock, reasoningBlock, toolUseBlock), {
      minLength: 1,
      maxLength: 5,
    }),
  ),
  messageOf(
    fc.constant("tool"),
    toolResultBlock.map((result) => [result]),
  ),
);

export const usage = record<Usage>(
  {
    inputTokens: count,
    outputTokens: count,
    totalTokens: count,
    cacheReadTokens: count,
    cacheCreationTokens: count,
    reasoningTokens: count,
    costNanoUsd: count,
    priceSource: filledText,
    partial: yes,
  },
  [
    "inputTokens",
    "outputTokens",
    "totalTokens",
    "cacheReadTokens",
    "cacheCreationTokens",
    "reasoningTokens",
    "costNanoUsd",
    "priceSource",
    "partial",
  ],
);

export const toolResult = record<ToolResult>(
  {
    success: fc.boolean(),
    output: text,
    error: filledText,
    durationMs: count.filter((milliseconds) => milliseconds > 0),
    truncated: yes,
    metadata: filledMap,
  },
  ["error", "durationMs", "truncated", "metadata"],
);

export const toolDefinition = record<ToolDefinition>(
  { name: filledText, description: text, parameters: fc.oneof(fc.constant(""), jsonObject), strict: yes },
  ["strict"],
);

export const budget = record<Budget>({ maxCostNanoUsd: count, maxTotalTokens: count, maxDurationMs: fc.nat() }, [
  "maxCostNanoUsd",
  "maxTotalTokens",
  "maxDurationMs",
]);

type JsonSchemaFormat = Extract<GenerateOptions["responseFormat"], { type: "json_schema" }>;
const responseFormat = fc.oneof(
  fc.constantFrom({ type: "text" } as const, { type: "json_object" } as const),
  record<JsonSchemaFormat>(
    {
      type: is("json_schema"),
      name: filledText,
      description: filledText,
      schema: jsonObject,
      strict: fc.boolean(),
    },
    ["description", "strict"],
  ),
);
const thinkingOptions = record<NonNullable<GenerateOptions["thinking"]>>(
  { enabled: fc.boolean(), budgetTokens: count, effort: filledText },
  ["enabled", "budgetTokens", "effort"],
);
const statefulOptions = record<NonNullable<GenerateOptions["stateful"]>>(
  { store: fc.boolean(), previousResponseId: filledText, includeEncrypted: fc.boolean() },
  ["store", "previousResponseId", "includeEncrypted"],
);

export const options = record<GenerateOptions>(
  {
    temperature: fc.double({ min: 0, max: 2, noNaN: true }),
    topP: fc.double({ min: 0, max: 1, noNaN: true }),
    maxTokens: count,
    stop: fc.array(filledText, { minLength: 1, maxLength: 3 }),
    seed: fc.maxSafeInteger(),
    toolChoice: filledText,
    parallelToolCalls: fc.boolean(),
    responseFormat,
    thinking: thinkingOptions,
    stateful: statefulOptions,
    maxSteps: uint32,
    budget,
    allowedTools: fc.array(filledText, { minLength: 1, maxLength: 3 }),
    timeoutMs: fc.nat(),
    metadata: filledMap,
    strategy: fc.constantFrom(...strategies),
    profile: filledText,
  },
  [
    "temperature",
    "topP",
    "maxTokens",
    "stop",
    "seed",
    "toolChoice",
    "parallelToolCalls",
    "responseFormat",
    "thinking",
    "stateful",
    "maxSteps",
    "budget",
    "allowedTools",
    "timeoutMs",
    "metadata",
    "strategy",
    "profile",
  ],
);

const tools = fc.uniqueArray(toolDefinition, { selector: (tool) => tool.name, maxLength: 3 });
export const turnRequest = record<Omit<TurnRequest, "plan" | "isUnattended">>(
  {
    sessionId: text,
    messages: fc.array(message, { maxLength: 3 }),
    model: text,
    options,
    tools,
    requestId: text,
    wholeHistory: fc.constant(true),
  },
  ["wholeHistory"],
);

const rules = fc.array(filledText, { maxLength: 2 });
export const permissionPolicy = record<PermissionPolicy>(
  { mode: fc.constantFrom(...permissionModes), allow: rules, ask: rules, deny: rules },
  [],
);

const laneHandler = record<LaneHandler>(
  {
    mode: fc.constantFrom(...laneModes),
    timeoutMs: fc.integer({ min: shortestLaneMs, max: longestLaneMs }),
  },
  [],
);

export const todo = record<Todo>(
  {
    content: text,
    status: fc.constantFrom(...setTodoStatuses),
    id: filledText,
    priority: fc.constantFrom(...todoPriorities),
  },
  ["id", "priority"],
);

export const sessionConfig = record<SessionConfig>(
  {
    title: text,
    workspace: text,
    model: text,
    systemPrompt: text,
    permissions: permissionPolicy,
    approvalTimeoutMs: fc.nat(),
    placement: fc.stringMatching(/^[\w.-]{1,64}$/),
    lanes: record<Lanes>({ query: laneHandler, execute: laneHandler }, ["query", "execute"]),
    budget,
    initialMessages: fc.array(message, { maxLength: 3 }),
    metadata: map,
  },
  ["permissions", "approvalTimeoutMs", "budget", "placement", "lanes"],
);

const ambiguousCodes = Object.values(errorCodes);
export const turnError: fc.Arbitrary<TurnError> = fc.constantFrom(...agentErrorKinds).chain((kind) => {
  // A reason of its own is kept, but only the first kind of a code is found again without its own reason.
  const first = agentErrorKinds[ambiguousCodes.indexOf(errorCodes[kind])] === kind;
  const own = fc.constant(kind.toUpperCase());
  return record<TurnError>(
    {
      kind: fc.constant(kind),
      reason: first ? fc.oneof(own, fc.constantFrom("", "OF_ITS_OWN")) : own,
      message: text,
      detail: record<TurnError["detail"]>(
        {
          retryable: yes,
          sideEffectPossible: yes,
          upstreamStatus: fc.integer({ min: 100, max: 599 }),
          provider: filledText,
          upstreamRequestId: filledText,
        },
        ["retryable", "sideEffectPossible", "upstreamStatus", "provider", "upstreamRequestId"],
      ),
      retryAfterMs: count,
    },
    ["retryAfterMs"],
  );
});

export const pendingRequest = record<PendingRequest>(
  {
    requestId: text,
    kind: fc.constantFrom("approval", "question", "client_tool", "budget"),
    title: text,
    toolName: filledText,
    toolCallId: filledText,
    arguments: filledText,
    options: texts,
    explanation: filledText,
    contentSha256: filledText,
    expireTimeMs: timeMs,
    lane: fc.constantFrom(...lanes),
  },
  ["toolName", "toolCallId", "arguments", "explanation", "contentSha256", "expireTimeMs", "lane"],
);

type EventOf<Type extends LogEvent["type"]> = Extract<LogEvent, { type: Type }>;
const eventsByType = {
  "turn-started": record<EventOf<"turn-started">>(
    {
      type: is("turn-started"),
      requestId: text,
      principal: text,
      model: text,
      messages: fc.array(storedMessage, { maxLength: 3 }),
      options,
      tools: fc.array(toolDefinition, { maxLength: 2 }),
      toolsDigest: fc.string({ minLength: 1 }),
      plan: record<PlanRun>({ planId: text, version: uint32, plan: text, input: text }, []),
    },
    ["toolsDigest", "plan"],
  ),
  "step-started": record<EventOf<"step-started">>(
    { type: is("step-started"), step: uint32, attempt: uint32, model: text, provider: text, voidedUsage: usage },
    ["voidedUsage"],
  ),
  "block-start": record<EventOf<"block-start">>(
    {
      type: is("block-start"),
      index: uint32,
      blockType: fc.constantFrom(...blockTypes),
      id: filledText,
      name: filledText,
    },
    ["id", "name"],
  ),
  "block-delta": record<EventOf<"block-delta">>(
    {
      type: is("block-delta"),
      index: uint32,
      delta: fc.oneof(
        record<{ type: "text"; text: string }>({ type: is("text"), text }, []),
        record<{ type: "thinking"; thinking: string }>({ type: is("thinking"), thinking: text }, []),
        record<{ type: "signature"; signature: string }>({ type: is("signature"), signature: text }, []),
        record<{ type: "reasoning"; reasoning: string }>({ type: is("reasoning"), reasoning: text }, []),
        record<{ type: "input_json"; inputJson: string }>({ type: is("input_json"), inputJson: text }, []),
      ),
    },
    [],
  ),
  "block-stop": record<EventOf<"block-stop">>({ type: is("block-stop"), index: uint32, block }, []),
  "step-finished": record<EventOf<"step-finished">>(
    {
      type: is("step-finished"),
      step: uint32,
      attempt: uint32,
      finishReason: fc.constantFrom(...finishReasons),
      rawFinishReason: text,
      continues: fc.constant<true>(true),
      usage,
      responseId: filledText,
      upstreamRequestId: filledText,
    },
    ["continues", "usage", "responseId", "upstreamRequestId"],
  ),
  "tool-started": record<EventOf<"tool-started">>(
    { type: is("tool-started"), toolCallId: text, name: text, source: text, readOnly: fc.boolean() },
    [],
  ),
  "tool-output": record<EventOf<"tool-output">>({ type: is("tool-output"), toolCallId: text, stream: text, text }, []),
  "tool-finished": record<EventOf<"tool-finished">>(
    { type: is("tool-finished"), toolCallId: text, name: text, result: toolResult },
    [],
  ),
  "request-opened": record<EventOf<"request-opened">>({ type: is("request-opened"), request: pendingRequest }, []),
  "request-resolved": record<EventOf<"request-resolved">>(
    { type: is("request-resolved"), requestId: text, decision: text, author: text, text: filledText, toolResult },
    ["text", "toolResult"],
  ),
  "history-compacted": record<EventOf<"history-compacted">>(
    {
      type: is("history-compacted"),
      droppedMessages: uint32,
      keptMessages: uint32,
      summary: text,
      tokensBefore: count,
      tokensAfter: count,
      firstKeptMessageId: filledText,
      keptMessageIds: texts,
      usage,
      trigger: fc.constantFrom(...compactionTriggers),
      model: filledText,
      fallbackReason: filledText,
      requestId: filledText,
    },
    ["tokensBefore", "tokensAfter", "firstKeptMessageId", "usage", "model", "fallbackReason", "requestId"],
  ),
  "tools-changed": record<EventOf<"tools-changed">>(
    { type: is("tools-changed"), generation: count, added: texts, removed: texts, changed: texts },
    [],
  ),
  notice: fc.oneof(
    record<Omit<EventOf<"notice">, "todos">>(
      {
        type: is("notice"),
        level: fc.constantFrom("info", "warning"),
        code: text,
        message: text,
        modelText: filledText,
      },
      ["modelText"],
    ),
    record<Omit<EventOf<"notice">, "modelText">>(
      {
        type: is("notice"),
        level: fc.constant("info"),
        code: fc.constant(todosSet),
        message: text,
        todos: fc.array(todo, { maxLength: 3 }),
      },
      ["todos"],
    ).map((event): EventOf<"notice"> => ({ todos: [], ...event })),
  ),
  "plan-step": record<EventOf<"plan-step">>(
    {
      type: is("plan-step"),
      stepId: text,
      itemPath: fc.array(uint32, { maxLength: 2 }),
      state: fc.constantFrom(...planStepStates),
      attempt: uint32,
      output: filledText,
      truncated: fc.constant(true),
      reason: filledText,
      error: turnError,
      durationMs: count,
      usage,
      dueTimeMs: timeMs,
      repeatable: fc.constant(true),
    },
    ["output", "truncated", "reason", "error", "durationMs", "usage", "dueTimeMs", "repeatable"],
  ),
  "turn-finished": record<EventOf<"turn-finished">>(
    {
      type: is("turn-finished"),
      finishReason: fc.constantFrom(...finishReasons),
      usage,
      error: turnError,
      steps: uint32,
      plan: record<PlanOutcome>(
        {
          state: fc.constantFrom(...planOutcomeStates),
          goalChecks: fc.array(
            record<GoalCheck>({ criterion: text, state: fc.constantFrom(...goalStates), evidence: text }, []),
            {
              maxLength: 2,
            },
          ),
          output: text,
          failedStepId: text,
        },
        [],
      ),
    },
    ["usage", "error", "plan"],
  ),
} satisfies { [Type in LogEvent["type"]]: fc.Arbitrary<EventOf<Type>> };
export const eventTypes = Object.keys(eventsByType) as LogEvent["type"][];
export const eventOf = (type: LogEvent["type"]): fc.Arbitrary<LogEvent> => eventsByType[type];

export const turnAnswer = record<TurnAnswer>(
  {
    sessionId: text,
    turnId: text,
    model: text,
    message: storedMessage,
    toolCalls: fc.array(toolUseBlock, { maxLength: 2 }),
    usage,
    finishReason: fc.constantFrom(...finishReasons),
    rawFinishReason: text,
    responseId: filledText,
    lastSeq: count,
    steps: uint32,
    metadata: map,
  },
  ["message", "usage", "responseId"],
);

const planRetry = record<PlanRetry>(
  {
    maxAttempts: fc.integer({ min: 1, max: 20 }),
    delayMs: fc.nat({ max: 3_600_000 }),
    backoffFactor: fc.double({ min: 1, max: 100, noNaN: true }),
    maxDelayMs: fc.nat({ max: 86_400_000 }),
  },
  ["maxAttempts", "delayMs", "backoffFactor", "maxDelayMs"],
);
const planCompensation = record<PlanCompensation>(
  { function: filledWord(), parameters: jsonObject, description: text },
  [],
);

/** A text that is more than spaces. */
function filledWord(): fc.Arbitrary<string> {
  return fc.oneof(
    filledText.filter((word) => word.trim() !== ""),
    fc.constantFrom("~", "null", "12", "yes: no", "# a", "- b", "<<", " a ", "two\nlines\n", "*x"),
  );
}

type DetailsOf<Kind extends PlanStepDetails["kind"]> = Extract<PlanStepDetails, { kind: Kind }>;
const concurrency = fc.integer({ min: 1, max: 64 });
const plainSteps = fc.oneof(
  record<DetailsOf<"function_call">>({ kind: is("function_call"), function: filledWord(), parameters: jsonObject }, []),
  record<DetailsOf<"user_input">>({ kind: is("user_input"), prompt: filledWord(), schema: jsonObject }, []),
  record<DetailsOf<"model">>(
    {
      kind: is("model"),
      prompt: filledWord(),
      systemPrompt: text,
      model: text,
      schema: fc.oneof(is(""), jsonObject),
      maxTokens: fc.integer({ min: 1 }),
    },
    ["maxTokens"],
  ),
  record<DetailsOf<"sub_plan">>(
    {
      kind: is("sub_plan"),
      planId: filledWord(),
      version: fc.integer({ min: 1 }),
      input: fc.oneof(is(""), jsonObject, is("no JSON")),
    },
    ["version"],
  ),
);

function stepDetails(depth: number): fc.Arbitrary<PlanStepDetails> {
  if (depth === 0) return plainSteps;
  const steps = fc.array(planStep(depth - 1), { maxLength: 2 });
  const cases = fc.record({ condition: filledWord(), steps }, { noNullPrototype: true });
  const branches = fc.record({ name: text, steps }, { noNullPrototype: true });
  return fc.oneof(
    plainSteps,
    record<DetailsOf<"branch">>(
      { kind: is("branch"), cases: fc.array(cases, { minLength: 1, maxLength: 2 }), otherwise: steps },
      [],
    ),
    record<DetailsOf<"for_each">>(
      {
        kind: is("for_each"),
        items: fc.constantFrom("[]", "[1,2]", '{"ref":"step.a.result"}', "[12345678901234567890]"),
        steps,
        maxConcurrency: concurrency,
      },
      ["maxConcurrency"],
    ),
    record<DetailsOf<"parallel">>(
      { kind: is("parallel"), branches: fc.array(branches, { maxLength: 2 }), maxConcurrency: concurrency },
      ["maxConcurrency"],
    ),
  );
}

const stepId = fc.stringMatching(/^[\w-]{1,8}$/);
function planStep(depth: number): fc.Arbitrary<PlanStep> {
  return record<PlanStep>(
    {
      id: stepId,
      description: text,
      dependsOn: fc.array(stepId, { maxLength: 2 }),
      condition: text,
      retry: planRetry,
      timeoutMs: fc.integer({ min: 1 }),
      onError: fc.constantFrom(...onErrorPolicies),
      compensation: planCompensation,
      details: stepDetails(depth),
    },
    ["retry", "timeoutMs", "compensation"],
  );
}

const planFields = {
  goal: text,
  requirement: text,
  successCriteria: fc.array(filledWord(), { maxLength: 2 }),
  complexity: fc.constantFrom(...planComplexities),
  steps: fc.array(planStep(2), { maxLength: 3 }),
  inputSchema: fc.oneof(is(""), jsonObject),
  metadata: map,
};
/** Any plan a client may hand in; it need not make sense. */
export const planDraft = record<PlanDraft>(planFields, []);

export const planVersion = record<PlanVersion>(
  {
    ...planFields,
    planId: text,
    version: uint32,
    sessionId: text,
    missingFunctions: fc.array(
      record<MissingFunction>({ name: text, description: text, parameters: text, stepIds: texts }, []),
      { maxLength: 2 },
    ),
    problems: fc.array(
      record<PlanProblem>(
        { message: text, severity: fc.constantFrom("error", "warning"), stepId: text, field: text, code: text },
        [],
      ),
      { maxLength: 2 },
    ),
    usage,
    model: text,
    createTimeMs: timeMs,
    updateTimeMs: timeMs,
  },
  ["usage"],
);
