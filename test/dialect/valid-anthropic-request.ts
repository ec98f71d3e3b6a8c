import assert from "node:assert/strict";
import { arrayOf, isJsonObject, type JsonObject, objectOf, textOf } from "../../src/dialect/json.ts";

/** A request body that Anthropic would take, as far as its documentation and its error messages tell. */
export function validAnthropicRequest(bodyText: string): JsonObject {
  const body: unknown = JSON.parse(bodyText, (_, member: unknown) => {
    if (typeof member === "string") assert.ok(member.isWellFormed(), "no half of a surrogate pair");
    return member;
  });
  assert.ok(isJsonObject(body));
  const known =
    "model max_tokens system tools messages temperature top_p stop_sequences thinking tool_choice stream output_config";
  for (const field of Object.keys(body)) assert.ok(known.split(" ").includes(field), `the field ${field} is known`);
  assert.notEqual(textOf(body["model"]), "");
  assert.equal(body["stream"], true);
  const maxTokens = body["max_tokens"];
  assert.ok(typeof maxTokens === "number" && Number.isInteger(maxTokens) && maxTokens > 0, "max_tokens is there");
  checkSystem(body["system"]);
  checkTools(body);
  const messages = arrayOf(body["messages"]).map(objectOf);
  checkMessages(messages);
  checkThinking(body, messages, maxTokens);
  const marks = bodyText.match(/"cache_control":\{"type":"ephemeral"\}/g) ?? [];
  assert.ok(marks.length <= 4, `${marks.length} marks for the cache`);
  return body;
}

function checkSystem(system: unknown): void {
  if (system === undefined) return;
  const blocks = arrayOf(system).map(objectOf);
  assert.ok(blocks.length > 0);
  for (const block of blocks) {
    assert.equal(block["type"], "text");
    checkText(block);
  }
}

const word = /^[a-zA-Z0-9_-]{1,128}$/;

function checkTools(body: JsonObject): void {
  const { tools, tool_choice: choice } = body;
  if (tools === undefined) {
    assert.equal(choice, undefined, "no tool choice without tools");
    return;
  }
  const names = arrayOf(tools).map((tool) => textOf(objectOf(tool)["name"]));
  assert.ok(names.length > 0);
  assert.equal(new Set(names).size, names.length, "names of tools differ");
  for (const tool of arrayOf(tools).map(objectOf)) {
    assert.match(textOf(tool["name"]), word);
    assert.equal(objectOf(tool["input_schema"])["type"], "object");
  }
  if (choice === undefined) return;
  assert.ok(["auto", "any", "tool", "none"].includes(textOf(objectOf(choice)["type"])));
  assert.equal(objectOf(choice)["type"] === "tool", "name" in objectOf(choice));
  if (objectOf(choice)["type"] === "none") assert.ok(!("disable_parallel_tool_use" in objectOf(choice)));
}

function contentOf(message: JsonObject): JsonObject[] {
  return arrayOf(message["content"]).map(objectOf);
}

function checkMessages(messages: readonly JsonObject[]): void {
  assert.ok(messages.length > 0, "there is a message");
  const usedIds = new Set<string>();
  for (const [index, message] of messages.entries()) {
    assert.equal(message["role"], index % 2 === 0 ? "user" : "assistant", `message ${index} is of the other role`);
    const content = contentOf(message);
    assert.ok(content.length > 0, `message ${index} says something`);
    for (const block of content) checkBlock(block, textOf(message["role"]));
    const calls = content.filter(({ type }) => type === "tool_use").map((block) => textOf(block["id"]));
    for (const id of calls) {
      assert.ok(!usedIds.has(id), `the call id ${id} is used once`);
      usedIds.add(id);
    }
    const next = messages[index + 1];
    if (calls.length > 0) assert.ok(next, "calls are answered");
    const results = next === undefined ? [] : contentOf(next).filter(({ type }) => type === "tool_result");
    assert.deepEqual(
      results.map((block) => block["tool_use_id"]),
      message["role"] === "assistant" ? calls : [],
      "each call has its result in the next message, in their order",
    );
    if (message["role"] === "user") {
      const firstOther = content.findIndex(({ type }) => type !== "tool_result");
      const lastResult = content.findLastIndex(({ type }) => type === "tool_result");
      assert.ok(firstOther === -1 || lastResult < firstOther, "results come first");
      continue;
    }
    assert.ok(!isThinking(content.at(-1)), "an assistant message does not end in thinking");
    assert.ok(
      content.some((block) => !isThinking(block) && (block["type"] !== "text" || textOf(block["text"]).trim() !== "")),
      "an assistant message says something",
    );
  }
  const last = messages.at(-1);
  if (last?.["role"] !== "assistant") return;
  const words = textOf(contentOf(last).at(-1)?.["text"]);
  assert.equal(words, words.trimEnd(), "the last message does not end in white space");
}

function isThinking(block: JsonObject | undefined): boolean {
  return block?.["type"] === "thinking" || block?.["type"] === "redacted_thinking";
}

function checkText(block: JsonObject): void {
  assert.notEqual(textOf(block["text"]).trim(), "", "no text is empty");
}

function checkBlock(block: JsonObject, role: string): void {
  const type = textOf(block["type"]);
  assert.notEqual(type, "");
  if ("cache_control" in block) assert.ok(!isThinking(block), "thinking has no mark for the cache");
  switch (type) {
    case "text":
      if (role === "user") checkText(block);
      else assert.notEqual(textOf(block["text"]), "", "no text is empty");
      return;
    case "thinking":
      assert.equal(role, "assistant");
      assert.equal(typeof block["thinking"], "string");
      assert.notEqual(textOf(block["signature"]), "", "thinking is signed");
      return;
    case "redacted_thinking":
      assert.equal(role, "assistant");
      assert.equal(typeof block["data"], "string");
      return;
    case "tool_use":
      assert.equal(role, "assistant");
      assert.match(textOf(block["id"]), /^[a-zA-Z0-9_-]+$/);
      assert.match(textOf(block["name"]), word);
      assert.ok(isJsonObject(block["input"]), "the input is an object");
      return;
    case "tool_result":
      assert.equal(role, "user");
      checkResult(block);
      return;
    case "image":
    case "document":
      assert.equal(role, "user");
      checkSource(type, objectOf(block["source"]));
      return;
    default:
      assert.equal(role, "assistant", `only the assistant says ${type}`);
  }
}

function checkResult({ content, is_error: isError }: JsonObject): void {
  if (isError === true) assert.ok(typeof content === "string" && content.trim() !== "", "an error says what");
  if (content === undefined || typeof content === "string") return;
  const parts = arrayOf(content).map(objectOf);
  assert.ok(parts.length > 0);
  for (const part of parts) {
    assert.ok(["text", "image", "document"].includes(textOf(part["type"])));
    checkBlock(part, "user");
  }
}

function checkSource(type: string, source: JsonObject): void {
  switch (source["type"]) {
    case "base64":
      assert.ok(
        (type === "image" ? /^image\/(jpeg|png|gif|webp)$/ : /^application\/pdf$/).test(textOf(source["media_type"])),
      );
      assert.equal(typeof source["data"], "string");
      return;
    case "url":
      assert.match(textOf(source["url"]), /^https:/i);
      return;
    case "text":
      assert.equal(source["media_type"], "text/plain");
      return;
    case "file":
      assert.notEqual(textOf(source["file_id"]), "");
      return;
    default:
      assert.fail(`a source of type ${JSON.stringify(source["type"])}`);
  }
}

function checkThinking(body: JsonObject, messages: readonly JsonObject[], maxTokens: number): void {
  if (body["thinking"] === undefined) return;
  const { type, budget_tokens: budget } = objectOf(body["thinking"]);
  assert.ok(type === "enabled" || type === "adaptive" || type === "disabled");
  assert.equal(budget !== undefined, type === "enabled");
  if (type !== "enabled") return;
  const choice = objectOf(body["tool_choice"])["type"] ?? "auto";
  assert.ok(choice === "auto" || choice === "none", "no forced tool beside a thinking budget");
  assert.ok(typeof budget === "number" && budget >= 1024 && budget < maxTokens, "the budget fits");
  let position = messages.length - 1;
  while (position > 1 && contentOf(messages[position] ?? {})[0]?.["type"] === "tool_result") position -= 2;
  const turn = messages[position + 1];
  if (turn !== undefined) assert.ok(isThinking(contentOf(turn)[0]), "a turn of tool calls that thinks begins so");
}
