import { parseJson } from "../../src/dialect/json.ts";
import { checkOpenaiResponsesRequest } from "./openai-responses-request.ts";
import { demand } from "./request-check.ts";
import { checkAnthropicRequest } from "./valid-anthropic-request.ts";
import { checkOpenaiChatRequest } from "./valid-openai-chat-request.ts";

const checks: readonly [end: string, check: (body: unknown) => void][] = [
  ["/chat/completions", checkOpenaiChatRequest],
  ["/messages", checkAnthropicRequest],
  ["/responses", checkOpenaiResponsesRequest],
];

/**
 * Checks a body by the path it was sent to; other paths take anything.
 * @throws a sentence with the path of what the API there would refuse.
 */
export function checkRequest(url: string, bodyText: string): void {
  const { pathname } = new URL(url, "http://upstream.invalid");
  const body = parseJson(bodyText);
  for (const [end, check] of checks) {
    if (!pathname.endsWith(end)) continue;
    demand(body !== undefined, "request", "the body is no JSON");
    check(body);
  }
}
