import type { Message, TextBlock } from "../chat/message.ts";
import type { ResponseFormat } from "../chat/request.ts";

/** An answer that has to be JSON. */
export type JsonFormat = Exclude<ResponseFormat, { readonly type: "text" }>;

/** Tells a model to answer with JSON, where its provider cannot hold it to that. */
export function schemaInstruction(format: JsonFormat): string {
  const alone =
    "Nothing may stand before or after it: no explanation, no headline, no code fence. Tools may be called first.";
  if (format.type === "json_object") return `Your answer must be one JSON object. ${alone}`;
  const about = format.description ? ` (${format.description})` : "";
  return (
    `Your answer must be one JSON value that is valid under the JSON Schema below, called ${format.name}${about}. ` +
    `${alone}\n\nJSON Schema:\n${format.schema.trim()}`
  );
}

/** Whether an answer under the format can only be an object, as JSON modes without a schema demand. */
export function isObjectFormat(format: JsonFormat, schema: unknown): boolean {
  if (format.type === "json_object") return true;
  return typeof schema === "object" && schema !== null && "type" in schema && schema.type === "object";
}

/**
 * Messages with an instruction at the end of the system prompt, which is all that stands before the first other message;
 * where there is none, the instruction is the system prompt.
 */
export function withInstruction(messages: readonly Message[], instruction: string): Message[] {
  const end = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  const count = end === -1 ? messages.length : end;
  const last = messages[count - 1];
  if (last === undefined) return [{ role: "system", blocks: [textBlock(instruction)] }, ...messages];
  const tail = last.blocks.at(-1);
  const blocks =
    tail?.type === "text"
      ? [...last.blocks.slice(0, -1), textBlock(`${tail.text}\n\n${instruction}`)]
      : [...last.blocks, textBlock(instruction)];
  return [...messages.slice(0, count - 1), { ...last, blocks }, ...messages.slice(count)];
}

function textBlock(text: string): TextBlock {
  return { type: "text", text };
}
