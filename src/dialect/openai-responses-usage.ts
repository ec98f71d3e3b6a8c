import type { Usage } from "../chat/usage.ts";
import { isJsonObject } from "./json.ts";
import { usageFromOpenaiChat } from "./openai-chat-usage.ts";

/** Usage in the shape of the Responses API; undefined where it tells no count. Its counts are Chat's under other names. */
export function usageFromOpenaiResponses(value: unknown): Usage | undefined {
  if (!isJsonObject(value)) return undefined;
  return usageFromOpenaiChat({
    ...value,
    prompt_tokens: value["input_tokens"],
    prompt_tokens_details: value["input_tokens_details"],
    completion_tokens: value["output_tokens"],
    completion_tokens_details: value["output_tokens_details"],
  });
}
