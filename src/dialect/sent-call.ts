import type { ToolDefinition } from "../chat/request.ts";
import { isJsonObject, parseJson } from "./json.ts";

/**
 * The arguments of a call as they go back: the model's own JSON text, byte for byte, where it is an object, and `{}` for
 * none. Arguments that are no JSON object, cut off or malformed, are wrapped as `{"malformed_arguments": "the text"}`, so
 * that the model sees what it wrote: vLLM, SGLang and llama.cpp parse the arguments of a history and refuse every later
 * request of the session otherwise (github.com/vllm-project/vllm/issues/48922, github.com/sgl-project/sglang/issues/28035).
 */
export function sentArguments(input: string): string {
  if (input.trim() === "") return "{}";
  return isJsonObject(parseJson(input)) ? input : JSON.stringify({ malformed_arguments: input.toWellFormed() });
}

/**
 * A name as the APIs take it: letters, digits, `_` and `-`, at most `maxLength` of them. Names that models make up may
 * hold more, and would have the whole history refused.
 * @param offered names of tools that stand in the same request; they go back as they are.
 */
export function sentName(name: string, maxLength: number, offered: readonly string[] = []): string {
  if (offered.includes(name)) return name;
  return name.replace(/[^a-zA-Z0-9_-]/g, "_").slice(0, maxLength) || "unnamed";
}

/** The names among those of the tools that `sentName` would change. */
export function unusualNames(tools: readonly ToolDefinition[], maxLength: number): readonly string[] {
  return tools.map(({ name }) => name).filter((name) => sentName(name, maxLength) !== name);
}
