import { invalidField } from "../../chat/error.ts";
import type { GenerateOptions, ResponseFormat, ToolDefinition, TurnRequest } from "../../chat/request.ts";
import { checkDistinct } from "../content-check.ts";
import type { JsonObject } from "../json-field.ts";
import {
  isAbsent,
  readArray,
  readFilledText,
  readObject,
  readOptionalArray,
  readOptionalBoolean,
  readOptionalInteger,
  readOptionalMap,
  readOptionalNumber,
  readOptionalObject,
  readOptionalText,
  readWord,
} from "../json-field.ts";
import { present, presentText } from "../present.ts";
import type { ChatCompletionMessageParam } from "./message.ts";
import { messagesFromOpenAI } from "./message.ts";

export interface FunctionDefinition {
  name: string;
  description?: string;
  /** JSON Schema; absent means no arguments. */
  parameters?: Record<string, unknown>;
  strict?: boolean | null;
}

export interface FunctionTool {
  type: "function";
  function: FunctionDefinition;
}

export type ToolChoice = "none" | "auto" | "required" | { type: "function"; function: { name: string } };

export type ResponseFormatParam =
  | { type: "text" }
  | { type: "json_object" }
  | {
      type: "json_schema";
      json_schema: { name: string; description?: string; schema?: Record<string, unknown>; strict?: boolean | null };
    };

/** The part of OpenAI's request that this service reads. */
export interface ChatCompletionCreateParams {
  model: string;
  messages: ChatCompletionMessageParam[];
  tools?: FunctionTool[];
  tool_choice?: ToolChoice;
  parallel_tool_calls?: boolean;
  response_format?: ResponseFormatParam;
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  stop?: string | string[] | null;
  seed?: number | null;
  n?: number | null;
  reasoning_effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max" | null;
  metadata?: Record<string, string> | null;
  store?: boolean | null;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  /** The form of tools before `tools`. */
  functions?: Omit<FunctionDefinition, "strict">[];
  /** The form of the choice before `tool_choice`. */
  function_call?: "none" | "auto" | { name: string };
}

/** A request in OpenAI's shape, read. */
export interface OpenAIRequest {
  readonly request: TurnRequest;
  readonly stream: boolean;
  /** A stream ends with a chunk that has the usage. */
  readonly includeUsage: boolean;
}

/**
 * Reads a request in OpenAI's shape; `null` counts as absent. `max_completion_tokens` wins over `max_tokens`. Session and
 * idempotency key are empty: OpenAI's shape has none. JSON schemas become text again, so whole numbers in them beyond 2^53
 * are not what was sent.
 *
 * Refused, because the answer would have another shape: more than one choice (`n`), `logprobs`, spoken answers
 * (`modalities`, `audio`), custom tools. Not read, because it only tunes or labels the call: penalties, `logit_bias`,
 * `user`, `service_tier`, `prediction`, `verbosity`, caching, moderation and web search options, and unknown fields.
 * @param readMessage reads one message, which may be several of ours; by default those in OpenAI's shape only.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `tools[0].function.name`.
 */
export function turnRequestFromOpenAI(params: unknown, readMessage = messagesFromOpenAI): OpenAIRequest {
  const fields = readObject(params, "request");
  refuseOtherAnswers(fields);
  const tools = toolsFromOpenAI(fields);
  const streamOptions = readOptionalObject(fields["stream_options"], "stream_options");
  return {
    request: {
      sessionId: "",
      messages: readMessages(fields["messages"], readMessage),
      model: readOptionalText(fields["model"], "model") ?? "",
      options: optionsFromOpenAI(fields),
      tools,
      requestId: "",
    },
    stream: readOptionalBoolean(fields["stream"], "stream") ?? false,
    includeUsage: readOptionalBoolean(streamOptions?.["include_usage"], "stream_options.include_usage") ?? false,
  };
}

function refuseOtherAnswers(fields: JsonObject): void {
  const choices = readOptionalInteger(fields["n"], 0, "n") ?? 1;
  if (choices !== 1) throw invalidField("n", `is ${choices}; there is one answer to each request`);
  if (readOptionalBoolean(fields["logprobs"], "logprobs"))
    throw invalidField("logprobs", "is true; probabilities of tokens are not given");
  const modalities = readOptionalArray(fields["modalities"], "modalities");
  for (const [index, modality] of modalities.entries()) readWord(modality, ["text"], `modalities[${index}]`);
  if (!isAbsent(fields["audio"])) throw invalidField("audio", "asks for a spoken answer; answers are text");
}

function readMessages(messages: unknown, readMessage: typeof messagesFromOpenAI) {
  let functionCalls = 0;
  return readArray(messages, "messages").flatMap((message, index) => {
    const path = `messages[${index}]`;
    if (!isAbsent(readObject(message, path)["function_call"])) functionCalls += 1;
    return readMessage(message, path, functionCalls);
  });
}

function toolsFromOpenAI(fields: JsonObject): ToolDefinition[] {
  const tools = readOptionalArray(fields["tools"], "tools").map((tool, index) => {
    const path = `tools[${index}]`;
    const toolFields = readObject(tool, path);
    readWord(toolFields["type"], ["function"], `${path}.type`);
    return { path: `${path}.function`, tool: functionFromOpenAI(toolFields["function"], `${path}.function`) };
  });
  const functions = readOptionalArray(fields["functions"], "functions").map((tool, index) => {
    const path = `functions[${index}]`;
    return { path, tool: functionFromOpenAI(tool, path) };
  });
  const all = [...tools, ...functions];
  checkDistinct(
    all.map(({ tool }) => tool.name),
    (index) => `${all[index]?.path}.name`,
  );
  return all.map(({ tool }) => tool);
}

function functionFromOpenAI(definition: unknown, path: string): ToolDefinition {
  const fields = readObject(definition, path);
  const parameters = readOptionalObject(fields["parameters"], `${path}.parameters`);
  return present({
    name: readFilledText(fields["name"], `${path}.name`),
    description: readOptionalText(fields["description"], `${path}.description`) ?? "",
    parameters: parameters === undefined ? "" : JSON.stringify(parameters),
    strict: readOptionalBoolean(fields["strict"], `${path}.strict`) || undefined,
  });
}

function optionsFromOpenAI(fields: JsonObject): GenerateOptions {
  const effort = presentText(readOptionalText(fields["reasoning_effort"], "reasoning_effort") ?? "");
  const store = readOptionalBoolean(fields["store"], "store");
  return present({
    temperature: readOptionalNumber(fields["temperature"], 0, 2, "temperature"),
    topP: readOptionalNumber(fields["top_p"], 0, 1, "top_p"),
    maxTokens:
      readOptionalInteger(fields["max_completion_tokens"], 0, "max_completion_tokens") ??
      readOptionalInteger(fields["max_tokens"], 0, "max_tokens"),
    stop: stopFromOpenAI(fields["stop"]),
    seed: readOptionalInteger(fields["seed"], Number.MIN_SAFE_INTEGER, "seed"),
    toolChoice: toolChoiceFromOpenAI(fields),
    parallelToolCalls: readOptionalBoolean(fields["parallel_tool_calls"], "parallel_tool_calls"),
    responseFormat: responseFormatFromOpenAI(fields["response_format"]),
    thinking: effort === undefined ? undefined : { effort },
    stateful: store === undefined ? undefined : { store },
    metadata: readOptionalMap(fields["metadata"], "metadata"),
  });
}

function stopFromOpenAI(stop: unknown): readonly string[] | undefined {
  if (isAbsent(stop)) return undefined;
  if (!Array.isArray(stop)) return [readFilledText(stop, "stop")];
  const texts = stop.map((text, index) => readFilledText(text, `stop[${index}]`));
  return texts.length === 0 ? undefined : texts;
}

function toolChoiceFromOpenAI(fields: JsonObject): string | undefined {
  const choice = fields["tool_choice"];
  if (isAbsent(choice)) return functionChoiceFromOpenAI(fields["function_call"]);
  if (typeof choice === "string") {
    // "any" is Mistral's word (docs.mistral.ai/capabilities/function_calling).
    const word = readWord(choice, ["none", "auto", "required", "any"], "tool_choice");
    return word === "any" ? "required" : word;
  }
  const choiceFields = readObject(choice, "tool_choice");
  readWord(choiceFields["type"], ["function"], "tool_choice.type");
  const called = readObject(choiceFields["function"], "tool_choice.function");
  return readFilledText(called["name"], "tool_choice.function.name");
}

function functionChoiceFromOpenAI(choice: unknown): string | undefined {
  if (isAbsent(choice)) return undefined;
  if (typeof choice === "string") return readWord(choice, ["none", "auto"], "function_call");
  return readFilledText(readObject(choice, "function_call")["name"], "function_call.name");
}

function responseFormatFromOpenAI(format: unknown): ResponseFormat | undefined {
  if (isAbsent(format)) return undefined;
  const fields = readObject(format, "response_format");
  const type = readWord(fields["type"], ["text", "json_object", "json_schema"], "response_format.type");
  if (type !== "json_schema") return { type };
  const path = "response_format.json_schema";
  const schema = readObject(fields["json_schema"], path);
  return present({
    type,
    name: readFilledText(schema["name"], `${path}.name`),
    description: presentText(readOptionalText(schema["description"], `${path}.description`) ?? ""),
    schema: JSON.stringify(readObject(schema["schema"], `${path}.schema`)),
    strict: readOptionalBoolean(schema["strict"], `${path}.strict`),
  });
}
