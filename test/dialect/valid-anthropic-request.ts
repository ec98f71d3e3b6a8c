import { arrayOf, type JsonObject, objectOf, textOf } from "../../src/dialect/json.ts";
import { addOnce, checkLeaves, demand, elementsAt, objectAt, onlyFields, textAt, wordAt } from "./request-check.ts";

const fields =
  "model max_tokens system tools messages temperature top_p top_k stop_sequences thinking tool_choice stream " +
  "output_config metadata service_tier container context_management mcp_servers cache_control";

/**
 * A request that Anthropic would take, as far as its documentation and its error messages tell
 * (platform.claude.com/docs/en/api/messages).
 * @throws a sentence with the path of what would be refused.
 */
export function checkAnthropicRequest(body: unknown): void {
  const request = objectAt(body, "request");
  onlyFields(request, fields, "request");
  // What tools are given and what providers wrote may hold anything.
  const opaque = /^request\.(?:tools\[\d+\]\.input_schema|output_config\.format|messages\[\d+\]\.content\[\d+\])\./;
  checkLeaves(request, "request", (path) => opaque.test(path));
  textAt(request["model"], "request.model");
  demand(request["stream"] === true, "request.stream", "only streams are asked for");
  const maxTokens = request["max_tokens"];
  const fits = typeof maxTokens === "number" && Number.isInteger(maxTokens) && maxTokens > 0;
  demand(fits, "request.max_tokens", "a whole number from 1 is wanted");
  checkSystem(request["system"]);
  checkTools(request);
  const messages = elementsAt(request["messages"], "request.messages").map(({ value }) => value);
  checkMessages(messages);
  checkThinking(request, messages, maxTokens);
  const marks = countMarks(request);
  demand(marks <= 4, "request", `${marks} marks for the cache; 4 are allowed`);
}

/**
 * As `checkAnthropicRequest`, of the text that is sent.
 * @returns the parsed request.
 */
export function validAnthropicRequest(bodyText: string): JsonObject {
  const body: unknown = JSON.parse(bodyText);
  checkAnthropicRequest(body);
  return objectAt(body, "request");
}

function countMarks(request: JsonObject): number {
  const marked = [request, ...arrayOf(request["tools"]).map(objectOf), ...arrayOf(request["system"]).map(objectOf)];
  for (const message of arrayOf(request["messages"])) {
    for (const block of arrayOf(objectOf(message)["content"])) marked.push(objectOf(block));
  }
  return marked.filter((one) => "cache_control" in one).length;
}

function checkSystem(system: unknown): void {
  if (system === undefined) return;
  for (const { value: block, path } of elementsAt(system, "request.system")) {
    wordAt(block["type"], ["text"], `${path}.type`);
    checkText(block, path);
  }
}

const word = /^[a-zA-Z0-9_-]{1,128}$/;

function wordTextAt(value: unknown, path: string): string {
  const text = textAt(value, path);
  demand(word.test(text), path, `${text} has characters that are refused, or too many`);
  return text;
}

function checkTools(request: JsonObject): void {
  const { tools, tool_choice: choice } = request;
  if (tools === undefined) {
    demand(choice === undefined, "request.tool_choice", "there are no tools to choose from");
    return;
  }
  const names = new Set<string>();
  for (const { value: tool, path } of elementsAt(tools, "request.tools")) {
    addOnce(names, wordTextAt(tool["name"], `${path}.name`), `${path}.name`);
    const schema = objectAt(tool["input_schema"], `${path}.input_schema`);
    wordAt(schema["type"], ["object"], `${path}.input_schema.type`);
  }
  if (choice === undefined) return;
  const chosen = objectAt(choice, "request.tool_choice");
  const type = wordAt(chosen["type"], ["auto", "any", "tool", "none"], "request.tool_choice.type");
  demand((type === "tool") === "name" in chosen, "request.tool_choice.name", "belongs to the type tool");
  const parallel = "disable_parallel_tool_use" in chosen;
  demand(type !== "none" || !parallel, "request.tool_choice", "none has no parallel calls to disable");
}

function contentOf(message: JsonObject): JsonObject[] {
  return arrayOf(message["content"]).map(objectOf);
}

function checkMessages(messages: readonly JsonObject[]): void {
  const usedIds = new Set<string>();
  for (const [index, message] of messages.entries()) {
    const path = `request.messages[${index}]`;
    const role = wordAt(message["role"], [index % 2 === 0 ? "user" : "assistant"], `${path}.role`);
    const content = elementsAt(message["content"], `${path}.content`).map(({ value, path: at }) => {
      checkBlock(value, role, at);
      return value;
    });
    const calls = content.filter(({ type }) => type === "tool_use").map((block) => textOf(block["id"]));
    for (const id of calls) addOnce(usedIds, id, path);
    const next = messages[index + 1];
    demand(calls.length === 0 || next !== undefined, path, `no results of ${calls.join(", ")}`);
    const results = contentOf(next ?? {}).filter(({ type }) => type === "tool_result");
    const answered = results.map((block) => textOf(block["tool_use_id"])).join(", ");
    const wanted = role === "assistant" ? calls.join(", ") : "";
    demand(
      answered === wanted,
      `request.messages[${index + 1}]`,
      `results of "${wanted}" wanted, not of "${answered}"`,
    );
    if (role === "user") {
      const firstOther = content.findIndex(({ type }) => type !== "tool_result");
      const lastResult = content.findLastIndex(({ type }) => type === "tool_result");
      demand(firstOther === -1 || lastResult < firstOther, path, "results come first");
      continue;
    }
    demand(!isThinking(content.at(-1)), path, "an assistant message does not end in thinking");
    const says = (block: JsonObject) =>
      !isThinking(block) && (block["type"] !== "text" || textOf(block["text"]).trim() !== "");
    demand(content.some(says), path, "an assistant message says something");
  }
  demand(
    messages[0] === undefined || !contentOf(messages[0]).some(({ type }) => type === "tool_result"),
    "request.messages[0]",
    "a result of no call",
  );
  const last = messages.at(-1);
  if (last?.["role"] !== "assistant") return;
  const words = textOf(contentOf(last).at(-1)?.["text"]);
  demand(words === words.trimEnd(), "request.messages", "the last one ends in white space");
}

function isThinking(block: JsonObject | undefined): boolean {
  return block?.["type"] === "thinking" || block?.["type"] === "redacted_thinking";
}

function checkText(block: JsonObject, path: string): void {
  demand(textOf(block["text"]).trim() !== "", `${path}.text`, "text of nothing but white space");
}

function checkBlock(block: JsonObject, role: string, path: string): void {
  const type = textAt(block["type"], `${path}.type`);
  demand(!("cache_control" in block) || !isThinking(block), path, "thinking has no mark for the cache");
  const author = ["text", "image", "document", "tool_result"].includes(type) ? "user" : "assistant";
  demand(type === "text" || role === author, `${path}.type`, `${type} in a message of ${role}`);
  switch (type) {
    case "text":
      if (role === "user") checkText(block, path);
      else textAt(block["text"], `${path}.text`);
      return;
    case "thinking":
      demand(typeof block["thinking"] === "string", `${path}.thinking`, "a text is wanted");
      textAt(block["signature"], `${path}.signature`);
      return;
    case "redacted_thinking":
      demand(typeof block["data"] === "string", `${path}.data`, "a text is wanted");
      return;
    case "tool_use":
      demand(/^[a-zA-Z0-9_-]+$/.test(textOf(block["id"])), `${path}.id`, "is refused");
      wordTextAt(block["name"], `${path}.name`);
      objectAt(block["input"], `${path}.input`);
      return;
    case "tool_result":
      checkResult(block, path);
      return;
    case "image":
    case "document":
      checkSource(type, objectAt(block["source"], `${path}.source`), `${path}.source`);
      return;
    default:
    // What the provider's own tools left goes back as it came.
  }
}

function checkResult({ content, is_error: isError }: JsonObject, path: string): void {
  const says = typeof content === "string" && content.trim() !== "";
  demand(isError !== true || says, `${path}.content`, "an error says what");
  if (content === undefined || typeof content === "string") return;
  for (const { value: part, path: at } of elementsAt(content, `${path}.content`)) {
    wordAt(part["type"], ["text", "image", "document"], `${at}.type`);
    checkBlock(part, "user", at);
  }
}

function checkSource(type: string, source: JsonObject, path: string): void {
  switch (wordAt(source["type"], ["base64", "url", "text", "file"], `${path}.type`)) {
    case "base64": {
      const known = type === "image" ? /^image\/(jpeg|png|gif|webp)$/ : /^application\/pdf$/;
      demand(known.test(textOf(source["media_type"])), `${path}.media_type`, "is refused");
      demand(typeof source["data"] === "string", `${path}.data`, "a text is wanted");
      return;
    }
    case "url":
      demand(/^https:/i.test(textOf(source["url"])), `${path}.url`, "an https: URL is wanted");
      return;
    case "text":
      wordAt(source["media_type"], ["text/plain"], `${path}.media_type`);
      return;
    case "file":
      textAt(source["file_id"], `${path}.file_id`);
  }
}

function checkThinking(request: JsonObject, messages: readonly JsonObject[], maxTokens: number): void {
  if (request["thinking"] === undefined) return;
  const thinking = objectAt(request["thinking"], "request.thinking");
  const type = wordAt(thinking["type"], ["enabled", "adaptive", "disabled"], "request.thinking.type");
  const budget = thinking["budget_tokens"];
  demand((budget !== undefined) === (type === "enabled"), "request.thinking.budget_tokens", "goes with enabled");
  if (type !== "enabled") return;
  const choice = objectOf(request["tool_choice"])["type"] ?? "auto";
  demand(choice === "auto" || choice === "none", "request.tool_choice", "no forced tool beside a thinking budget");
  const fits = typeof budget === "number" && budget >= 1024 && budget < maxTokens;
  demand(fits, "request.thinking.budget_tokens", "from 1024 to less than max_tokens");
  let position = messages.length - 1;
  while (position > 1 && contentOf(messages[position] ?? {})[0]?.["type"] === "tool_result") position -= 2;
  const turn = messages[position + 1];
  const begins = turn === undefined || isThinking(contentOf(turn)[0]);
  demand(begins, `request.messages[${position + 1}]`, "a turn of tool calls that thinks begins so");
}
