import { create } from "@bufbuild/protobuf";
import type {
  Budget as ProtoBudget,
  GenerateOptions as ProtoGenerateOptions,
  GenerateRequest as ProtoGenerateRequest,
  ResponseFormat as ProtoResponseFormat,
  StatefulOptions as ProtoStatefulOptions,
  ThinkingOptions as ProtoThinkingOptions,
  ToolDefinition as ProtoToolDefinition,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import {
  BudgetSchema,
  GenerateOptionsSchema,
  GenerateRequestSchema,
  ResponseFormatSchema,
  StatefulOptionsSchema,
  ThinkingOptionsSchema,
  ToolDefinitionSchema,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import {
  type Budget,
  type GenerateOptions,
  type ResponseFormat,
  type StatefulOptions,
  strategies,
  type ThinkingOptions,
  type ToolDefinition,
  type TurnRequest,
} from "../../chat/request.ts";
import { checkDistinct, checkFilled, checkJsonObject, checkRange } from "../content-check.ts";
import { present, presentList, presentMap, presentText } from "../present.ts";
import type { Source } from "./field.ts";
import { checkStrings, countFromProto, integerFromProto, integerToProto, wordFromProto } from "./field.ts";
import { messageFromProto, messageToProto } from "./message.ts";

/** The longest time a timer of the runtime can wait, 24.8 days; beyond it, timers fire at once. */
export const longestTimeMs = 2 ** 31 - 1;

/**
 * Reads the request of a turn. Ids and times of its messages are read as they come; whoever puts the messages into a
 * history gives them its own.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `messages[2].role`.
 */
export function turnRequestFromProto(request: ProtoGenerateRequest, source: Source = "client"): TurnRequest {
  if (source === "client") checkStrings(GenerateRequestSchema, { ...request, messages: [] }, "");
  const tools = request.tools.map((tool, index) => toolDefinitionFromProto(tool, `tools[${index}]`, source));
  if (source === "client")
    checkDistinct(
      tools.map((tool) => tool.name),
      (index) => `tools[${index}].name`,
    );
  return {
    sessionId: request.sessionId,
    messages: request.messages.map((message, index) => messageFromProto(message, `messages[${index}]`, source)),
    model: request.model,
    options: request.options === undefined ? {} : optionsFromProto(request.options, "options", source),
    tools,
    requestId: request.requestId,
    ...(request.wholeHistory ? { wholeHistory: true } : {}),
  };
}

/** Writes the request of a turn. */
export function turnRequestToProto(request: TurnRequest): ProtoGenerateRequest {
  return create(GenerateRequestSchema, {
    sessionId: request.sessionId,
    messages: request.messages.map(messageToProto),
    model: request.model,
    options: optionsToProto(request.options),
    tools: request.tools.map(toolDefinitionToProto),
    requestId: request.requestId,
    wholeHistory: request.wholeHistory ?? false,
  });
}

/** Reads a function offered to a model; its schema has to be a JSON object, or nothing. */
export function toolDefinitionFromProto(
  tool: ProtoToolDefinition,
  path = "tools[0]",
  source: Source = "client",
): ToolDefinition {
  if (source === "client") checkFilled(tool.name, `${path}.name`);
  if (source === "client" && tool.parameters !== "") checkJsonObject(tool.parameters, `${path}.parameters`);
  return present({
    name: tool.name,
    description: tool.description,
    parameters: tool.parameters,
    strict: tool.strict || undefined,
  });
}

/** Writes a function offered to a model. */
export function toolDefinitionToProto(tool: ToolDefinition): ProtoToolDefinition {
  return create(ToolDefinitionSchema, {
    name: tool.name,
    description: tool.description,
    parameters: tool.parameters,
    strict: tool.strict ?? false,
  });
}

/** Reads how a turn is run. Absent numbers stay absent, 0 stays 0. */
export function optionsFromProto(
  options: ProtoGenerateOptions,
  path = "options",
  source: Source = "client",
): GenerateOptions {
  const checked = source === "client";
  const read = present({
    temperature: options.temperature,
    topP: options.topP,
    maxTokens: countFromProto(options.maxTokens, `${path}.max_tokens`),
    stop: presentList(options.stop),
    seed: integerFromProto(options.seed, `${path}.seed`),
    toolChoice: presentText(options.toolChoice),
    parallelToolCalls: options.parallelToolCalls,
    responseFormat:
      options.responseFormat && responseFormatFromProto(options.responseFormat, `${path}.response_format`, source),
    thinking: options.thinking && thinkingFromProto(options.thinking, `${path}.thinking`),
    stateful: options.stateful && statefulFromProto(options.stateful),
    maxSteps: options.maxSteps,
    budget: options.budget && budgetFromProto(options.budget, `${path}.budget`, source),
    allowedTools: presentList(options.allowedTools),
    timeoutMs: countFromProto(options.timeoutMs, `${path}.timeout_ms`),
    metadata: presentMap(options.metadata),
    strategy: options.strategy === "" ? undefined : wordFromProto(options.strategy, strategies, `${path}.strategy`),
    profile: presentText(options.profile),
  });
  if (checked) {
    checkRange(read.temperature, 0, 2, `${path}.temperature`);
    checkRange(read.topP, 0, 1, `${path}.top_p`);
    checkRange(read.timeoutMs, 0, longestTimeMs, `${path}.timeout_ms`);
    for (const [index, text] of options.stop.entries()) checkFilled(text, `${path}.stop[${index}]`);
    for (const [index, name] of options.allowedTools.entries()) checkFilled(name, `${path}.allowed_tools[${index}]`);
  }
  return read;
}

/** Writes how a turn is run. */
export function optionsToProto(options: GenerateOptions): ProtoGenerateOptions {
  return create(GenerateOptionsSchema, {
    temperature: options.temperature,
    topP: options.topP,
    maxTokens: integerToProto(options.maxTokens),
    stop: [...(options.stop ?? [])],
    seed: integerToProto(options.seed),
    toolChoice: options.toolChoice ?? "",
    parallelToolCalls: options.parallelToolCalls,
    responseFormat: options.responseFormat && responseFormatToProto(options.responseFormat),
    thinking: options.thinking && thinkingToProto(options.thinking),
    stateful: options.stateful && statefulToProto(options.stateful),
    maxSteps: options.maxSteps,
    budget: options.budget && budgetToProto(options.budget),
    allowedTools: [...(options.allowedTools ?? [])],
    timeoutMs: integerToProto(options.timeoutMs),
    metadata: { ...options.metadata },
    strategy: options.strategy ?? "",
    profile: options.profile ?? "",
  });
}

/** Reads the form of an answer. A schema without a name is called `response`, as providers ask for one. */
export function responseFormatFromProto(
  format: ProtoResponseFormat,
  path = "response_format",
  source: Source = "client",
): ResponseFormat {
  const type = wordFromProto(format.type || "text", ["text", "json_object", "json_schema"], `${path}.type`);
  if (type !== "json_schema") {
    if (source === "client" && format.jsonSchema !== undefined)
      throw invalidField(`${path}.type`, `is ${type}, but json_schema is given; use json_schema`);
    return { type };
  }
  const { name = "", description = "", schema = "", strict } = format.jsonSchema ?? {};
  if (source === "client") checkFilled(schema, `${path}.json_schema.schema`);
  if (source === "client") checkJsonObject(schema, `${path}.json_schema.schema`);
  return present({ type, name: name || "response", description: presentText(description), schema, strict });
}

/** Writes the form of an answer. */
export function responseFormatToProto(format: ResponseFormat): ProtoResponseFormat {
  if (format.type !== "json_schema") return create(ResponseFormatSchema, { type: format.type });
  const { type, name, description = "", schema, strict } = format;
  return create(ResponseFormatSchema, { type, jsonSchema: { name, description, schema, strict } });
}

/** Reads upper bounds; absent means none, 0 means that nothing may be spent. */
export function budgetFromProto(budget: ProtoBudget, path = "budget", source: Source = "client"): Budget {
  const read = present({
    maxCostNanoUsd: countFromProto(budget.maxCostNanoUsd, `${path}.max_cost_nano_usd`),
    maxTotalTokens: countFromProto(budget.maxTotalTokens, `${path}.max_total_tokens`),
    maxDurationMs: countFromProto(budget.maxDurationMs, `${path}.max_duration_ms`),
  });
  if (source === "client") checkRange(read.maxDurationMs, 0, longestTimeMs, `${path}.max_duration_ms`);
  return read;
}

/** Writes upper bounds. */
export function budgetToProto(budget: Budget): ProtoBudget {
  return create(BudgetSchema, {
    maxCostNanoUsd: integerToProto(budget.maxCostNanoUsd),
    maxTotalTokens: integerToProto(budget.maxTotalTokens),
    maxDurationMs: integerToProto(budget.maxDurationMs),
  });
}

function thinkingFromProto(thinking: ProtoThinkingOptions, path: string): ThinkingOptions {
  return present({
    enabled: thinking.enabled,
    budgetTokens: countFromProto(thinking.budgetTokens, `${path}.budget_tokens`),
    effort: presentText(thinking.effort),
  });
}

function thinkingToProto(thinking: ThinkingOptions): ProtoThinkingOptions {
  return create(ThinkingOptionsSchema, {
    enabled: thinking.enabled,
    budgetTokens: integerToProto(thinking.budgetTokens),
    effort: thinking.effort ?? "",
  });
}

function statefulFromProto(stateful: ProtoStatefulOptions): StatefulOptions {
  return present({
    store: stateful.store,
    previousResponseId: presentText(stateful.previousResponseId),
    includeEncrypted: stateful.includeEncrypted,
  });
}

function statefulToProto(stateful: StatefulOptions): ProtoStatefulOptions {
  return create(StatefulOptionsSchema, {
    store: stateful.store,
    previousResponseId: stateful.previousResponseId ?? "",
    includeEncrypted: stateful.includeEncrypted,
  });
}
