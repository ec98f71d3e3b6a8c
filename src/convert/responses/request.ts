import { AgentError, invalidField } from "../../chat/error.ts";
import type { Message } from "../../chat/message.ts";
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
  readOptionalMap,
  readOptionalNumber,
  readOptionalObject,
  readOptionalText,
  readText,
  readWord,
} from "../json-field.ts";
import { present, presentText } from "../present.ts";
import { type AskedResponse, type KeptFields, metadataWithKept } from "./asked.ts";
import { messagesFromItems } from "./item.ts";
import { partsOfResponseId } from "./response-id.ts";

/** The session a request goes on with. */
export type ResponsesBinding =
  | { readonly type: "session"; readonly sessionId: string }
  | { readonly type: "response"; readonly responseId: string };

/** A request in the shape of the Responses API, read. */
export interface ResponsesRequest {
  readonly request: TurnRequest;
  readonly stream: boolean;
  readonly binding?: ResponsesBinding;
  /** The answer is to be there for later requests. */
  readonly isKept: boolean;
  /** What the answer tells of it. */
  readonly asked: AskedResponse;
}

/**
 * Reads a request in the shape of the Responses API (developers.openai.com/api/reference, "Create a model response");
 * `null` counts as absent. Session and idempotency key are empty: the shape has none.
 *
 * - `input`: see `messagesFromItems`. `instructions` become a system message before it. They are the turn's own: with
 *   OpenAI a later request does not have them, while here they stay in the history of a session that goes on.
 * - `model`, `temperature`, `top_p`, `max_output_tokens`, `parallel_tool_calls`, `metadata` and `text.format` are as they
 *   are called. Function tools are the client's to run. `tool_choice: allowed_tools` leaves out every other tool, the
 *   server's too.
 * - `reasoning.effort` is the effort. `reasoning.summary` asks for thinking that can be read, in whatever form there is.
 * - `store`: true, also when absent, keeps the answer here. It says nothing to the model's provider.
 * - `previous_response_id` and `conversation` bind a session; not both, and neither with `store: false`, since what
 *   happens in a session stays there.
 * - `include: ["reasoning.encrypted_content"]`, or `store: false`, gives reasoning an envelope to be sent back in.
 *
 * Refused, since the answer would be another: `background`, `prompt`, `max_tool_calls`, `top_logprobs` and including
 * logprobs, tools and choices other than functions; unknown words in `include`.
 *
 * Not read, because it only tunes or labels the call, or is the server's own business: `user`, `safety_identifier`,
 * `service_tier`, `prompt_cache_*`, `truncation` and `context_management` (histories are compacted when they grow too
 * long), `stream_options`, `text.verbosity`, `moderation`, `access_programs`, `image`, `reasoning.context` and `.mode`,
 * other words in `include`, and unknown fields.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `tools[0].name`; `not_found` for a
 *   `previous_response_id` that this server never gave.
 */
export function turnRequestFromResponses(params: unknown): ResponsesRequest {
  const fields = readObject(params, "request");
  refuseOtherAnswers(fields);
  const model = readOptionalText(fields["model"], "model") ?? "";
  const instructions = presentText(readOptionalText(fields["instructions"], "instructions") ?? "");
  const isKept = readOptionalBoolean(fields["store"], "store") ?? true;
  const binding = bindingFrom(fields);
  if (!isKept && binding !== undefined)
    throw invalidField(
      "store",
      `is false, but an answer that goes on after another is kept with it; leave out store, or ${binding.type === "session" ? "conversation" : "previous_response_id"} and send the whole conversation as input`,
    );
  const messages: Message[] = messagesFromInput(fields["input"], model);
  if (instructions !== undefined) messages.unshift({ role: "system", blocks: [{ type: "text", text: instructions }] });
  const allTools = toolsFrom(fields["tools"]);
  const choice = toolChoiceFrom(fields["tool_choice"], allTools);
  const tools = allTools.filter(({ name }) => choice.allowed?.includes(name) ?? true);
  const reasoning = readOptionalObject(fields["reasoning"], "reasoning");
  const text = readOptionalObject(fields["text"], "text");
  const metadata = readOptionalMap(fields["metadata"], "metadata");
  const kept: KeptFields = present({
    hasInstructions: instructions === undefined ? undefined : true,
    previousResponseId: binding?.type === "response" ? binding.responseId : undefined,
    conversationId: binding?.type === "session" ? binding.sessionId : undefined,
    seals: includesSealed(fields["include"]) || !isKept || undefined,
    isStored: isKept || undefined,
    summary: summaryFrom(reasoning),
    verbosity: presentText(readOptionalText(text?.["verbosity"], "text.verbosity") ?? ""),
  });
  const serverTools = choice.allowed?.filter((name) => !allTools.some((tool) => tool.name === name));
  const options: GenerateOptions = present({
    temperature: readOptionalNumber(fields["temperature"], 0, 2, "temperature"),
    topP: readOptionalNumber(fields["top_p"], 0, 1, "top_p"),
    maxTokens: readOptionalInteger(fields["max_output_tokens"], 1, "max_output_tokens"),
    toolChoice: choice.choice,
    allowedTools: serverTools?.length === 0 ? noTools : serverTools,
    parallelToolCalls: readOptionalBoolean(fields["parallel_tool_calls"], "parallel_tool_calls"),
    responseFormat: formatFrom(text?.["format"]),
    thinking: thinkingFrom(reasoning),
    metadata: isKept ? metadataWithKept(metadata, kept) : metadata,
  });
  return {
    request: { sessionId: "", messages, model, options, tools, requestId: "" },
    stream: readOptionalBoolean(fields["stream"], "stream") ?? false,
    ...(binding === undefined ? {} : { binding }),
    isKept,
    asked: present({ ...kept, instructions, options, tools }),
  };
}

/** An empty list would mean all; no function has this name. */
const noTools: readonly string[] = ["(none)"];

function refuseOtherAnswers(fields: JsonObject): void {
  if (readOptionalBoolean(fields["background"], "background"))
    throw invalidField("background", "is true; answers are given while the caller waits, stream them with stream");
  if (!isAbsent(fields["prompt"]))
    throw invalidField("prompt", "names a stored prompt, and there are none here; send instructions and input");
  if (!isAbsent(fields["max_tool_calls"])) throw invalidField("max_tool_calls", "can't be held here; leave it out");
  const probabilities = readOptionalInteger(fields["top_logprobs"], 0, "top_logprobs") ?? 0;
  if (probabilities > 0)
    throw invalidField("top_logprobs", `is ${probabilities}; probabilities of tokens are not given`);
}

function messagesFromInput(input: unknown, model: string): Message[] {
  if (isAbsent(input)) throw invalidField("input", "is missing; send a text or a list of items");
  const messages = messagesFromItems(input, model);
  if (messages.length === 0) throw invalidField("input", "says nothing; send a text or at least one item");
  return messages;
}

function bindingFrom(fields: JsonObject): ResponsesBinding | undefined {
  const { conversation } = fields;
  const responseId = readOptionalText(fields["previous_response_id"], "previous_response_id");
  if (responseId !== undefined && !isAbsent(conversation))
    throw invalidField("previous_response_id", "can't be there together with conversation; leave one of them out");
  if (responseId !== undefined) {
    if (partsOfResponseId(responseId) === undefined) throw unknownPrevious(responseId);
    return { type: "response", responseId };
  }
  if (isAbsent(conversation)) return undefined;
  const sessionId =
    typeof conversation === "string"
      ? readFilledText(conversation, "conversation")
      : readFilledText(readObject(conversation, "conversation")["id"], "conversation.id");
  return { type: "session", sessionId };
}

/** In the word of what OpenAI's service is seen to answer. */
function unknownPrevious(responseId: string): AgentError {
  const field = "previous_response_id";
  const description = `${quoted(responseId)} is the id of no response of this server`;
  return new AgentError("not_found", `${field}: ${description}`, {
    reason: "PREVIOUS_RESPONSE_NOT_FOUND",
    fieldViolations: [{ field, description }],
  });
}

const includable = [
  "reasoning.encrypted_content",
  "file_search_call.results",
  "web_search_call.results",
  "web_search_call.action.sources",
  "message.input_image.image_url",
  "computer_call_output.output.image_url",
  "code_interpreter_call.outputs",
] as const;

function includesSealed(include: unknown): boolean {
  const words = readOptionalArray(include, "include").map((word, index) => {
    if (word === "message.output_text.logprobs")
      throw invalidField(`include[${index}]`, `is ${quoted(word)}; probabilities of tokens are not given`);
    return readWord(word, includable, `include[${index}]`);
  });
  return words.includes("reasoning.encrypted_content");
}

function toolsFrom(tools: unknown): ToolDefinition[] {
  const read = readOptionalArray(tools, "tools").map((tool, index) => functionFrom(tool, `tools[${index}]`));
  checkDistinct(
    read.map(({ name }) => name),
    (index) => `tools[${index}].name`,
  );
  return read;
}

function functionFrom(tool: unknown, path: string): ToolDefinition {
  const fields = readObject(tool, path);
  const type = readText(fields["type"], `${path}.type`);
  if (type !== "function")
    throw invalidField(
      `${path}.type`,
      `is ${quoted(type)}; only function can be given: the server has tools of its own, which need not be asked for`,
    );
  const parameters = readOptionalObject(fields["parameters"], `${path}.parameters`);
  return present({
    name: readFilledText(fields["name"], `${path}.name`),
    description: readOptionalText(fields["description"], `${path}.description`) ?? "",
    parameters: parameters === undefined ? "" : JSON.stringify(parameters),
    strict: readOptionalBoolean(fields["strict"], `${path}.strict`) || undefined,
  });
}

/** What the model is to call, and the names of all tools it may; absent means any. */
interface ToolChoice {
  readonly choice?: string;
  readonly allowed?: readonly string[];
}

function toolChoiceFrom(choice: unknown, tools: readonly ToolDefinition[]): ToolChoice {
  if (isAbsent(choice)) return {};
  if (typeof choice === "string") return { choice: readWord(choice, ["none", "auto", "required"], "tool_choice") };
  const fields = readObject(choice, "tool_choice");
  const type = readWord(fields["type"], ["function", "allowed_tools"], "tool_choice.type");
  if (type === "function") return { choice: readFilledText(fields["name"], "tool_choice.name") };
  const allowed = readArray(fields["tools"], "tool_choice.tools").map((tool, index) => {
    const path = `tool_choice.tools[${index}]`;
    const toolFields = readObject(tool, path);
    readWord(toolFields["type"], ["function"], `${path}.type`);
    return readFilledText(toolFields["name"], `${path}.name`);
  });
  const mode = readWord(fields["mode"], ["auto", "required"], "tool_choice.mode");
  if (allowed.length === 0)
    throw invalidField(
      "tool_choice.tools",
      `is empty; name some of ${tools.map(({ name }) => name).join(", ") || "the server's tools"}, or choose none`,
    );
  return { choice: mode, allowed };
}

function formatFrom(format: unknown): ResponseFormat | undefined {
  if (isAbsent(format)) return undefined;
  const path = "text.format";
  const fields = readObject(format, path);
  const type = readWord(fields["type"], ["text", "json_object", "json_schema"], `${path}.type`);
  if (type !== "json_schema") return { type };
  return present({
    type,
    name: readFilledText(fields["name"], `${path}.name`),
    description: presentText(readOptionalText(fields["description"], `${path}.description`) ?? ""),
    schema: JSON.stringify(readObject(fields["schema"], `${path}.schema`)),
    strict: readOptionalBoolean(fields["strict"], `${path}.strict`),
  });
}

/** `generate_summary` is the word of before. */
function summaryFrom(reasoning: JsonObject | undefined): string | undefined {
  const words = ["auto", "concise", "detailed"] as const;
  const { summary, generate_summary: before } = reasoning ?? {};
  if (!isAbsent(summary)) return readWord(summary, words, "reasoning.summary");
  return isAbsent(before) ? undefined : readWord(before, words, "reasoning.generate_summary");
}

function thinkingFrom(reasoning: JsonObject | undefined): ThinkingOptions | undefined {
  const effort = presentText(readOptionalText(reasoning?.["effort"], "reasoning.effort") ?? "");
  const isShown = summaryFrom(reasoning) !== undefined && effort !== "none";
  if (effort === undefined && !isShown) return undefined;
  return present({ enabled: isShown || undefined, effort });
}
