import { isJsonObject, type JsonObject, parseJson } from "../../src/dialect/json.ts";
import { addOnce, checkLeaves, demand, elementsAt, objectAt, onlyFields, textAt, wordAt } from "./request-check.ts";

/** What the reference of "Create chat completion" lists, as far as it can be meant for an agent. */
const openaiFields =
  "model messages tools tool_choice parallel_tool_calls response_format temperature top_p max_tokens " +
  "max_completion_tokens stop seed stream stream_options reasoning_effort store metadata user n logprobs " +
  "top_logprobs presence_penalty frequency_penalty logit_bias modalities audio prediction service_tier verbosity " +
  "prompt_cache_key safety_identifier web_search_options";
/** What vendors of the same family read besides (DeepSeek, Moonshot and Z.ai; OpenRouter; Qwen; vLLM). */
const vendorFields = "thinking reasoning provider plugins enable_thinking thinking_budget chat_template_kwargs";

/**
 * A Chat Completions request that the strictest endpoints of the family would take
 * (developers.openai.com/api/reference, "Create chat completion"; arguments that are no JSON object are refused by
 * vLLM, github.com/vllm-project/vllm/issues/43995, and SGLang, github.com/sgl-project/sglang/pull/28035).
 * @throws a sentence with the path of what would be refused.
 */
export function checkOpenaiChatRequest(body: unknown): void {
  const request = objectAt(body, "request");
  onlyFields(request, `${openaiFields} ${vendorFields}`, "request");
  const schemas = /^request\.(?:tools\[\d+\]\.function\.parameters|response_format\.json_schema\.schema)\./;
  checkLeaves(request, "request", (path) => /^request\.messages\[\d+\]\.content$/.test(path) || schemas.test(path));
  textAt(request["model"], "request.model");
  demand(request["stream"] === true, "request.stream", "only streams are asked for");
  checkTools(request);
  checkOptions(request);
  checkMessages(request["messages"]);
}

const functionName = /^[a-zA-Z0-9_-]{1,64}$/;
/** OpenAI refuses others (github.com/jekalmin/extended_openai_conversation/issues/251); it was stricter once. */
const authorName = /^[^\s<|\\/>]{1,64}$/;

function checkTools(request: JsonObject): void {
  const { tools, tool_choice: choice } = request;
  if (tools === undefined) {
    demand(choice === undefined, "request.tool_choice", "there are no tools to choose from");
    demand(request["parallel_tool_calls"] === undefined, "request.parallel_tool_calls", "there are no tools");
    return;
  }
  const names = new Set<string>();
  for (const { value: tool, path } of elementsAt(tools, "request.tools")) {
    onlyFields(tool, "type function", path);
    wordAt(tool["type"], ["function"], `${path}.type`);
    const definition = objectAt(tool["function"], `${path}.function`);
    onlyFields(definition, "name description parameters strict", `${path}.function`);
    const name = textAt(definition["name"], `${path}.function.name`);
    demand(functionName.test(name), `${path}.function.name`, `${name} is no name of a function`);
    addOnce(names, name, `${path}.function.name`);
    const parameters = objectAt(definition["parameters"], `${path}.function.parameters`);
    wordAt(parameters["type"], ["object"], `${path}.function.parameters.type`);
    if ("description" in definition) textAt(definition["description"], `${path}.function.description`);
    if ("strict" in definition) demand(typeof definition["strict"] === "boolean", path, "strict is no boolean");
  }
  if (choice === undefined) return;
  if (typeof choice === "string") {
    wordAt(choice, ["auto", "none", "required"], "request.tool_choice");
    return;
  }
  const chosen = objectAt(choice, "request.tool_choice");
  wordAt(chosen["type"], ["function"], "request.tool_choice.type");
  const { name } = objectAt(chosen["function"], "request.tool_choice.function");
  wordAt(name, [...names], "request.tool_choice.function.name");
}

function checkOptions(request: JsonObject): void {
  const inRange = (field: string, from: number, to: number, whole: boolean) => {
    const value = request[field];
    if (value === undefined) return;
    const fits = typeof value === "number" && value >= from && value <= to && (!whole || Number.isInteger(value));
    demand(fits, `request.${field}`, `${JSON.stringify(value)} is not in its range`);
  };
  inRange("temperature", 0, 2, false);
  inRange("top_p", 0, 1, false);
  inRange("max_tokens", 1, Number.MAX_SAFE_INTEGER, true);
  inRange("max_completion_tokens", 1, Number.MAX_SAFE_INTEGER, true);
  inRange("seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, true);
  const both = "max_tokens" in request && "max_completion_tokens" in request;
  demand(!both, "request.max_tokens", "not beside max_completion_tokens");
  if ("stop" in request) {
    const stop = typeof request["stop"] === "string" ? [request["stop"]] : request["stop"];
    const fits = Array.isArray(stop) && stop.length > 0 && stop.every((one) => typeof one === "string" && one !== "");
    demand(fits, "request.stop", "texts are wanted");
  }
  if ("stream_options" in request) {
    const options = objectAt(request["stream_options"], "request.stream_options");
    onlyFields(options, "include_usage include_obfuscation", "request.stream_options");
  }
  if ("response_format" in request) {
    const format = objectAt(request["response_format"], "request.response_format");
    const type = wordAt(format["type"], ["text", "json_object", "json_schema"], "request.response_format.type");
    demand((type === "json_schema") === "json_schema" in format, "request.response_format", "a schema for json_schema");
    if (type === "json_schema") {
      const path = "request.response_format.json_schema";
      const schema = objectAt(format["json_schema"], path);
      onlyFields(schema, "name description schema strict", path);
      demand(functionName.test(textAt(schema["name"], `${path}.name`)), `${path}.name`, "is no name");
    }
  }
}

function checkMessages(value: unknown): void {
  const messages = elementsAt(value, "request.messages");
  const ids = new Set<string>();
  let owed: string[] = [];
  for (const { value: message, path } of messages) {
    const role = wordAt(message["role"], ["system", "developer", "user", "assistant", "tool"], `${path}.role`);
    const name = "name" in message ? textAt(message["name"], `${path}.name`) : "nobody";
    demand(authorName.test(name), `${path}.name`, `${JSON.stringify(name)} has characters that are refused`);
    if (role === "tool") {
      onlyFields(message, "role content tool_call_id name", path);
      const id = textAt(message["tool_call_id"], `${path}.tool_call_id`);
      const [next] = owed;
      demand(id === next, `${path}.tool_call_id`, next === undefined ? `${id} was not called` : `${next} comes first`);
      owed = owed.slice(1);
      if (typeof message["content"] !== "string") checkParts(message["content"], ["text"], `${path}.content`);
      continue;
    }
    demand(owed.length === 0, path, `a message of ${role} before the results of ${owed.join(", ")}`);
    if (role === "assistant") {
      owed = checkAssistant(message, path);
      for (const id of owed) addOnce(ids, id, path);
      continue;
    }
    onlyFields(message, "role content name", path);
    const parts = role === "user" ? ["text", "image_url", "input_audio", "file"] : ["text"];
    if (typeof message["content"] === "string") textAt(message["content"], `${path}.content`);
    else checkParts(message["content"], parts, `${path}.content`);
  }
  demand(owed.length === 0, "request.messages", `no results of ${owed.join(", ")}`);
}

/** @returns the ids of its calls. */
function checkAssistant(message: JsonObject, path: string): string[] {
  const known = "role content name tool_calls refusal audio".split(" ");
  for (const [name, value] of Object.entries(message)) {
    // What a model thought goes back in a field that each vendor names otherwise.
    const thinking = /^(?:reasoning|thinking)/.test(name) && (typeof value === "string" || Array.isArray(value));
    demand(known.includes(name) || thinking, `${path}.${name}`, "the API knows no such field");
  }
  const { content, tool_calls: calls } = message;
  demand("content" in message, `${path}.content`, "is missing");
  if (calls === undefined) {
    if (typeof content === "string") textAt(content, `${path}.content`);
    else checkParts(content, ["text", "refusal"], `${path}.content`);
    return [];
  }
  if (content !== null && typeof content !== "string") checkParts(content, ["text", "refusal"], `${path}.content`);
  return elementsAt(calls, `${path}.tool_calls`).map(({ value: call, path: at }) => {
    onlyFields(call, "id type function", at);
    wordAt(call["type"], ["function"], `${at}.type`);
    const called = objectAt(call["function"], `${at}.function`);
    onlyFields(called, "name arguments", `${at}.function`);
    const name = textAt(called["name"], `${at}.function.name`);
    demand(functionName.test(name), `${at}.function.name`, `${name} is no name of a function`);
    const argumentsText = textAt(called["arguments"], `${at}.function.arguments`);
    demand(isJsonObject(parseJson(argumentsText)), `${at}.function.arguments`, `${argumentsText} is no JSON object`);
    return textAt(call["id"], `${at}.id`);
  });
}

function checkParts(value: unknown, types: readonly string[], path: string): void {
  for (const { value: part, path: at } of elementsAt(value, path)) {
    const type = wordAt(part["type"], types, `${at}.type`);
    onlyFields(part, `type ${type}`, at);
    if (type === "text" || type === "refusal") {
      textAt(part[type], `${at}.${type}`);
      continue;
    }
    const inner = objectAt(part[type], `${at}.${type}`);
    if (type === "image_url") textAt(inner["url"], `${at}.image_url.url`);
    if (type === "input_audio") {
      textAt(inner["data"], `${at}.input_audio.data`);
      textAt(inner["format"], `${at}.input_audio.format`);
    }
    if (type === "file") demand("file_data" in inner || "file_id" in inner, `${at}.file`, "is empty");
  }
}
