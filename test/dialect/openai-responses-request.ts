import { arrayOf, isJsonObject, type JsonObject, parseJson, textOf } from "../../src/dialect/json.ts";
import { addOnce, checkLeaves, demand, elementsAt, objectAt, onlyFields, textAt, wordAt } from "./request-check.ts";

/** What the reference of "Create a model response" lists, as far as it can be meant for an agent. */
const fields =
  "model instructions input tools tool_choice parallel_tool_calls text temperature top_p max_output_tokens reasoning " +
  "include previous_response_id store stream stream_options metadata user truncation service_tier prompt_cache_key " +
  "safety_identifier max_tool_calls top_logprobs";

/**
 * A request as strict as the API is (developers.openai.com/api/reference, "Create a model response"), and as others that
 * speak it are: vLLM refuses arguments that are no JSON object (github.com/vllm-project/vllm/pull/48922).
 * @throws a sentence with the path of what would be refused.
 */
export function checkOpenaiResponsesRequest(body: unknown): void {
  const request = objectAt(body, "request");
  onlyFields(request, fields, "request");
  const opaque = /^request\.(?:tools\[\d+\]\.parameters|text\.format\.schema|input\[\d+\])\./;
  checkLeaves(request, "request", (path) => opaque.test(path));
  textAt(request["model"], "request.model");
  demand(request["stream"] === true, "request.stream", "only streams are asked for");
  demand(typeof request["store"] === "boolean", "request.store", "is to be said");
  for (const [name, value] of Object.entries(request)) {
    if (name === "input") continue;
    const isEmpty = value === "" || (Array.isArray(value) && value.length === 0);
    demand(!isEmpty, `request.${name}`, "is empty");
  }
  checkTools(request);
  checkInputItems(request);
}

/**
 * As `checkOpenaiResponsesRequest`, of the text that is sent.
 * @returns the parsed request.
 */
export function checkInput(bodyText: string): JsonObject {
  const body: unknown = JSON.parse(bodyText);
  checkOpenaiResponsesRequest(body);
  return objectAt(body, "request");
}

const functionName = /^[a-zA-Z0-9_-]{1,128}$/;

function checkTools(request: JsonObject): void {
  const { tools, tool_choice: choice } = request;
  if (tools === undefined) {
    demand(choice === undefined, "request.tool_choice", "there are no tools to choose from");
    return;
  }
  const names = new Set<string>();
  for (const { value: tool, path } of elementsAt(tools, "request.tools")) {
    wordAt(tool["type"], ["function"], `${path}.type`);
    onlyFields(tool, "type name description parameters strict", path);
    const name = textAt(tool["name"], `${path}.name`);
    demand(functionName.test(name), `${path}.name`, `${name} is no name of a function`);
    addOnce(names, name, `${path}.name`);
    wordAt(objectAt(tool["parameters"], `${path}.parameters`)["type"], ["object"], `${path}.parameters.type`);
  }
  if (choice === undefined) return;
  if (typeof choice === "string") wordAt(choice, ["auto", "none", "required"], "request.tool_choice");
  else {
    const chosen = objectAt(choice, "request.tool_choice");
    wordAt(chosen["type"], ["function"], "request.tool_choice.type");
    wordAt(chosen["name"], [...names], "request.tool_choice.name");
  }
}

function checkInputItems(request: JsonObject): void {
  const continues = textOf(request["previous_response_id"]) !== "";
  const stores = request["store"] === true;
  const open = new Set<string>();
  const called = new Set<string>();
  const answered = new Set<string>();
  demand(Array.isArray(request["input"]), "request.input", "an array is wanted");
  for (const [index, element] of request["input"].entries()) {
    const path = `request.input[${index}]`;
    const item = objectAt(element, path);
    const type = textAt(item["type"], `${path}.type`);
    switch (type) {
      case "message":
        checkMessage(item, path);
        break;
      case "function_call": {
        const callId = textAt(item["call_id"], `${path}.call_id`);
        const name = textAt(item["name"], `${path}.name`);
        demand(functionName.test(name), `${path}.name`, `${name} is no name of a function`);
        const argumentsText = textAt(item["arguments"], `${path}.arguments`);
        demand(isJsonObject(parseJson(argumentsText)), `${path}.arguments`, `${argumentsText} is no JSON object`);
        addOnce(called, callId, `${path}.call_id`);
        demand(!("id" in item), `${path}.id`, "the id of an item nobody stored");
        open.add(callId);
        break;
      }
      case "function_call_output": {
        const callId = textAt(item["call_id"], `${path}.call_id`);
        demand(open.delete(callId) || continues, `${path}.call_id`, `${callId} was not called`);
        addOnce(answered, callId, `${path}.call_id`);
        if (typeof item["output"] === "string") break;
        for (const part of elementsAt(item["output"], `${path}.output`)) checkPart(part.value, "user", part.path);
        break;
      }
      case "reasoning": {
        demand(Array.isArray(item["summary"]), `${path}.summary`, "an array is wanted");
        demand(!("status" in item), `${path}.status`, "is no input");
        demand(stores || !("id" in item), `${path}.id`, "the id of an item nobody stored");
        const readable = textOf(item["encrypted_content"]) !== "" || arrayOf(item["content"]).length > 0;
        demand(readable || (stores && textOf(item["id"]) !== ""), path, "reasoning nobody can read");
        break;
      }
      default:
      // Items of the provider's own tools go back as they came.
    }
    // Between a call and its result only more of the same answer may stand.
    const answering = type === "message" ? item["role"] === "assistant" : true;
    const waits = type !== "function_call_output" && open.size > 0;
    demand(!waits || answering, path, `a ${type} before the result of ${[...open].join(", ")}`);
  }
  demand(open.size === 0, "request.input", `no results of ${[...open].join(", ")}`);
}

function checkMessage(item: JsonObject, path: string): void {
  const role = wordAt(item["role"], ["user", "assistant", "system", "developer"], `${path}.role`);
  for (const part of elementsAt(item["content"], `${path}.content`)) checkPart(part.value, role, part.path);
  demand(role === "assistant" || !("phase" in item), `${path}.phase`, "only answers have phases");
  demand(!("id" in item), `${path}.id`, "the id of an item nobody stored");
}

function checkPart(part: JsonObject, role: string, path: string): void {
  const types = role === "assistant" ? ["output_text"] : ["input_text", "input_image", "input_file"];
  const type = wordAt(part["type"], types, `${path}.type`);
  if (type === "input_text" || type === "output_text") textAt(part["text"], `${path}.text`);
  if (type === "input_image") textAt(part["image_url"], `${path}.image_url`);
  if (type === "input_file") {
    const filled = textOf(part["file_data"]) !== "" || textOf(part["file_id"]) !== "";
    demand(filled, path, "a file without data");
  }
}
