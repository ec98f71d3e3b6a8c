import { AgentError, invalidField } from "../chat/error.ts";
import type { TurnRequest } from "../chat/request.ts";
import { maxMessages } from "./large-messages.ts";

const maxToolsLength = 400_000;
const maxNameLength = 256;

/**
 * Holds a request to the bounds of what the log can take: tools and options are part of the turn's first event, which has to
 * fit 1 MB together with the messages it shows.
 * @throws {AgentError} `resource_exhausted` for too many messages, `invalid_request` for what is too long; both name the field.
 */
export function checkRequestBounds({ tools, options, messages }: TurnRequest): void {
  checkMessageCount(messages.length, "messages");
  const parts = [
    { field: "tools", length: JSON.stringify(tools).length },
    ...Object.entries(options).map(([name, value]) => ({
      field: `options.${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`,
      length: JSON.stringify(value)?.length ?? 0,
    })),
  ];
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const [largest] = parts.toSorted((one, other) => other.length - one.length);
  if (length > maxToolsLength && largest !== undefined)
    throw invalidField(
      largest.field,
      `has ${largest.length} characters as JSON, and tools and options together ${length}; ${maxToolsLength} is the most`,
    );
  for (const [index, { name = "" }] of messages.entries()) {
    if (name.length > maxNameLength)
      throw invalidField(`messages[${index}].name`, `has ${name.length} characters; ${maxNameLength} is the most`);
  }
}

/** @throws {AgentError} `resource_exhausted` when one request brings too many messages. */
export function checkMessageCount(count: number, field: string): void {
  if (count <= maxMessages) return;
  const description = `has ${count} messages; ${maxMessages} is the most in one request`;
  throw new AgentError("resource_exhausted", `${field}: ${description}`, { fieldViolations: [{ field, description }] });
}
