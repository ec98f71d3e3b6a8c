import { AgentError, invalidField } from "../../chat/error.ts";
import type {
  GenerateOptions,
  ResponseFormat,
  ThinkingOptions,
  ToolDefinition,
  TurnRequest,
} from "../../chat/request.ts";
import { checkDistinct, quoted } from "../content-check.ts";
import type { JsonObject } from "../json-field.ts";
import {
  isAbsent,
  readArray,
  readFilledText,
  readObject,
  readOptionalArray,
  readOptionalBoolean,
  readOptionalInteger,
  readOptionalNumber,
  readOptionalObject,
  readOptionalText,
  readWord,
} from "../json-field.ts";
import { present, presentList } from "../present.ts";
import type { Author } from "./content.ts";
import { messagesFromAnthropic, systemFromAnthropic } from "./content.ts";

/** A request in Anthropic's shape, read. */
export interface AnthropicRequest {
  readonly request: TurnRequest;
  readonly stream: boolean;
  /** Thinking is shown without its text (`thinking.display` is `omitted`). */
  readonly omitsThinking: boolean;
}

/**
 * Reads a request in Anthropic's shape (platform.claude.com/docs/en/api/messages/create); `null` counts as absent.
 *
 * - Read: `model` (absent means the server's default), `max_tokens`, `system`, `messages`, `tools` of one's own,
 *   `tool_choice`, `temperature`, `top_p`, `stop_sequences`, `thinking`, `output_config` (`effort`, `format`; also
 *   `output_format`, as earlier clients write it) and `stream`.
 * - Refused by name, because the answer would be another one: tools that the vendor defines or runs (this server has
 *   tools of its own), `mcp_servers`, `container`, `compaction`, `thread` and `fallbacks`.
 * - Not read, because it only tunes, labels or prices the call: `cache_control` (requests are marked for the cache
 *   anyway), `citations`, `metadata`, `service_tier`, `speed`, `inference_geo`, `diagnostics`, `billing_policy`,
 *   `fallback_credit_token`, `context_management` (the server sees to it that a conversation fits), `top_k`, which newer
 *   models do not take either, of tools `allowed_callers`, `defer_loading`, `eager_input_streaming` and `input_examples`,
 *   and unknown fields.
 *
 * JSON schemas and arguments become text again, so whole numbers in them beyond 2^53 are not what was sent.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `tools.0.name`.
 */
export function turnRequestFromAnthropic(params: unknown): AnthropicRequest {
  const fields = readObject(params, "request");
  return { ...readCounted(fields, true), stream: readOptionalBoolean(fields["stream"], "stream") ?? false };
}

/** As `turnRequestFromAnthropic`, for a request whose tokens are to be counted: `max_tokens` is not needed. */
export function countedRequestFromAnthropic(params: unknown): TurnRequest {
  return readCounted(readObject(params, "request"), false).request;
}

function readCounted(fields: JsonObject, isAnswered: boolean): Omit<AnthropicRequest, "stream"> {
  refuseOtherAnswers(fields);
  const model = readOptionalText(fields["model"], "model") ?? "";
  const maxTokens = readOptionalInteger(fields["max_tokens"], 1, "max_tokens");
  if (isAnswered && maxTokens === undefined) throw invalidField("max_tokens", "is missing; must be a number");
  const messages = readArray(fields["messages"], "messages").flatMap((message, index) =>
    messagesFromAnthropic(message, `messages.${index}`, authorOf(model)),
  );
  if (messages.length === 0) throw invalidField("messages", "is empty");
  const thinking = readOptionalObject(fields["thinking"], "thinking");
  return {
    request: {
      sessionId: "",
      messages: [...systemFromAnthropic(fields["system"]), ...messages],
      model,
      options: optionsFromAnthropic(fields, thinking, maxTokens),
      tools: toolsFromAnthropic(fields["tools"]),
      requestId: "",
    },
    omitsThinking: thinking?.["display"] === "omitted",
  };
}

/** A signature of the vendor is taken for that of the model that is asked, where that is one of the vendor's. */
function authorOf(model: string): Author {
  const [, name] = /^anthropic\/([^,]+)$/.exec(model) ?? [];
  return name === undefined ? {} : { provider: "anthropic", model: name };
}

const otherAnswers: Readonly<Record<string, string>> = {
  container: "asks for a container of the vendor's; this server runs its tools in its own workspace",
  compaction: "asks for a summary in place of an answer; the server makes room in a long conversation by itself",
  fallbacks: "asks for the vendor's own fallbacks; give model several names with commas between them",
};

const noThreads = "asks for a conversation that the vendor keeps; send the header x-session-id to go on with a session";

function refuseOtherAnswers(fields: JsonObject): void {
  // Under this reason the vendor's runner of tools goes on without a thread by itself (`ThreadState` of its package).
  if (!isAbsent(fields["thread"])) {
    const fieldViolations = [{ field: "thread", description: noThreads }];
    const reason = "THREAD_UNSUPPORTED_REQUEST";
    throw new AgentError("invalid_request", `thread: ${noThreads}`, { reason, fieldViolations });
  }
  for (const [name, why] of Object.entries(otherAnswers)) if (!isAbsent(fields[name])) throw invalidField(name, why);
  if (readOptionalArray(fields["mcp_servers"], "mcp_servers").length > 0)
    throw invalidField(
      "mcp_servers",
      "can't be given in a request; MCP servers are named in the server's configuration",
    );
}

function toolsFromAnthropic(tools: unknown): ToolDefinition[] {
  const read = readOptionalArray(tools, "tools").map((tool, index) => toolFromAnthropic(tool, `tools.${index}`));
  checkDistinct(
    read.map(({ name }) => name),
    (index) => `tools.${index}.name`,
  );
  return read;
}

function toolFromAnthropic(tool: unknown, path: string): ToolDefinition {
  const fields = readObject(tool, path);
  const type = readOptionalText(fields["type"], `${path}.type`) ?? "custom";
  if (type !== "custom") {
    throw invalidField(
      `${path}.type`,
      `is ${quoted(type)}; only tools of your own, with an input_schema, can be given: the server's tools, such as a shell and files, are there without being named`,
    );
  }
  return present({
    name: readFilledText(fields["name"], `${path}.name`),
    description: readOptionalText(fields["description"], `${path}.description`) ?? "",
    parameters: JSON.stringify(readObject(fields["input_schema"], `${path}.input_schema`)),
    strict: readOptionalBoolean(fields["strict"], `${path}.strict`) || undefined,
  });
}

function optionsFromAnthropic(
  fields: JsonObject,
  thinking: JsonObject | undefined,
  maxTokens: number | undefined,
): GenerateOptions {
  const outputConfig = readOptionalObject(fields["output_config"], "output_config");
  const format = outputConfig?.["format"];
  return present({
    temperature: readOptionalNumber(fields["temperature"], 0, 1, "temperature"),
    topP: readOptionalNumber(fields["top_p"], 0, 1, "top_p"),
    maxTokens,
    stop: presentList(
      readOptionalArray(fields["stop_sequences"], "stop_sequences").map((text, index) =>
        readFilledText(text, `stop_sequences.${index}`),
      ),
    ),
    ...toolChoiceFromAnthropic(fields["tool_choice"]),
    responseFormat: isAbsent(format)
      ? formatFromAnthropic(fields["output_format"], "output_format")
      : formatFromAnthropic(format, "output_config.format"),
    thinking: thinkingFromAnthropic(thinking, outputConfig, maxTokens),
  });
}

function toolChoiceFromAnthropic(choice: unknown): Pick<GenerateOptions, "toolChoice" | "parallelToolCalls"> {
  const fields = readOptionalObject(choice, "tool_choice");
  if (fields === undefined) return {};
  const type = readWord(fields["type"], ["auto", "any", "tool", "none"], "tool_choice.type");
  const path = "tool_choice.disable_parallel_tool_use";
  const isSerial = readOptionalBoolean(fields["disable_parallel_tool_use"], path);
  return present({
    toolChoice:
      type === "any" ? "required" : type === "tool" ? readFilledText(fields["name"], "tool_choice.name") : type,
    parallelToolCalls: isSerial === undefined ? undefined : !isSerial,
  });
}

function formatFromAnthropic(format: unknown, path: string): ResponseFormat | undefined {
  const fields = readOptionalObject(format, path);
  if (fields === undefined) return undefined;
  const type = readWord(fields["type"], ["json_schema"], `${path}.type`);
  return { type, name: "answer", schema: JSON.stringify(readObject(fields["schema"], `${path}.schema`)), strict: true };
}

const leastBudgetTokens = 1024;

/** `adaptive` and `between_tools` leave the amount to the model. */
function thinkingFromAnthropic(
  thinking: JsonObject | undefined,
  outputConfig: JsonObject | undefined,
  maxTokens: number | undefined,
): ThinkingOptions | undefined {
  const effort = isAbsent(outputConfig?.["effort"])
    ? undefined
    : readWord(outputConfig?.["effort"], ["low", "medium", "high", "xhigh", "max"], "output_config.effort");
  if (thinking === undefined) return effort === undefined ? undefined : { effort };
  const types = ["enabled", "disabled", "adaptive", "between_tools"] as const;
  const type = readWord(thinking["type"], types, "thinking.type");
  const path = "thinking.budget_tokens";
  const budgetTokens =
    type === "enabled" ? readOptionalInteger(thinking["budget_tokens"], leastBudgetTokens, path) : undefined;
  if (type === "enabled" && budgetTokens === undefined) throw invalidField(path, "is missing; must be a number");
  if (budgetTokens !== undefined && maxTokens !== undefined && budgetTokens >= maxTokens)
    throw invalidField(path, `is ${budgetTokens}, but must be below max_tokens, which is ${maxTokens}`);
  return present({ enabled: type !== "disabled", budgetTokens, effort });
}
