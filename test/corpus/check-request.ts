import { AgentError } from "../../src/chat/error.ts";
import type { ChatRequest } from "../../src/chat/request.ts";
import { turnRequestFromOpenAI } from "../../src/convert/openai/request.ts";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { arrayOf, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { checkInput } from "../dialect/openai-responses-request.ts";
import { validAnthropicRequest } from "../dialect/valid-anthropic-request.ts";
import { checkOpenaiChatRequest } from "../dialect/valid-openai-chat-request.ts";
import type { Exchange } from "./exchange.ts";
import type { Findings } from "./findings.ts";

export const allApis: readonly DialectId[] = ["anthropic-messages", "openai-chat", "openai-responses"];

/**
 * Throws what an API would refuse in a request.
 * @param bodyText JSON that this service wrote.
 */
export function validRequest(api: DialectId, bodyText: string): void {
  switch (api) {
    case "anthropic-messages":
      validAnthropicRequest(bodyText);
      return;
    case "openai-chat":
      checkOpenaiChatRequest(parseJson(bodyText));
      return;
    case "openai-responses":
      checkInput(bodyText);
      return;
    default:
      api satisfies never;
  }
}

/**
 * A request in OpenAI's shape that a real client sent is one this service takes too, or refuses by name; what it then
 * sends on says the same and is valid for every API.
 */
export function checkRequest(exchange: Exchange, findings: Findings): void {
  if (exchange.api !== "openai-chat" || exchange.status >= 400) return;
  const sent = objectOf(exchange.request);
  if (arrayOf(sent["messages"]).length === 0) return;
  let read: ReturnType<typeof turnRequestFromOpenAI>["request"];
  try {
    read = turnRequestFromOpenAI(sent).request;
  } catch (error) {
    if (!(error instanceof AgentError)) findings.fail(`its request threw what is no AgentError: ${String(error)}`);
    else if (!wontBeTaken.test(error.message)) findings.note(`its request is refused: ${error.message}`);
    return;
  }
  const { messages, tools, options } = read;
  for (const api of allApis) {
    findings.attempt(`its request, sent to ${api}`, () => {
      const { responseFormat: _, ...rest } = options;
      const request = { model: "m-1", messages: validHistory(messages), tools, options: rest };
      const body = encodeOrRefuse(api, request);
      if (body === undefined) return;
      validRequest(api, body);
      if (api === "openai-chat")
        findings.same(factsOf(objectOf(parseJson(body))), factsOf(sent), "its request, sent on");
    });
  }
}

/** The request as JSON text; undefined where it asks for what an API does not have, and is refused by name. */
function encodeOrRefuse(api: DialectId, request: ChatRequest): string | undefined {
  try {
    return dialects[api].encode(request, defaultQuirks, "other");
  } catch (error) {
    if (error instanceof AgentError && error.kind === "invalid_request") return undefined;
    throw error;
  }
}

/** What the service refuses on purpose: its answers would have another shape. */
const wontBeTaken = /^(n|logprobs|modalities|audio|tools\[\d+\]\.type|functions?)\b/;

/** What a request says, however it is written: the calls, their results and the words of the users. */
function factsOf(request: Readonly<Record<string, unknown>>): unknown {
  const messages = arrayOf(request["messages"]).map(objectOf);
  const words = (content: unknown): string =>
    typeof content === "string"
      ? content
      : arrayOf(content)
          .map((part) => textOf(objectOf(part)["text"]))
          .join("");
  return {
    calls: messages.flatMap((message) =>
      arrayOf(message["tool_calls"]).map((call) => [
        objectOf(call)["id"],
        objectOf(objectOf(call)["function"])["name"],
      ]),
    ),
    results: messages
      .filter(({ role }) => role === "tool")
      .map((message) => [message["tool_call_id"], words(message["content"])]),
    asked: messages
      .filter(({ role }) => role === "user")
      .map(({ content }) => words(content))
      .join(""),
  };
}
