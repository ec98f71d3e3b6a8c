import type { LogEvent } from "../../chat/log-event.ts";
import { messageText } from "../../chat/message.ts";
import type { GenerateOptions, ToolDefinition } from "../../chat/request.ts";
import { parsedObject } from "../parsed-object.ts";
import { present } from "../present.ts";

/** What a response tells of its request, and what it is told by. */
export interface AskedResponse extends KeptFields {
  readonly instructions?: string;
  readonly options: GenerateOptions;
  readonly tools: readonly ToolDefinition[];
}

/** What of a request is nowhere in the turn it became, and is kept beside it. */
export interface KeptFields {
  /** The turn's first message is `instructions`. */
  readonly hasInstructions?: boolean;
  readonly previousResponseId?: string;
  readonly conversationId?: string;
  /** Reasoning carries our envelope. */
  readonly seals?: boolean;
  /** The answer can be asked for by its id. */
  readonly isStored?: boolean;
  readonly summary?: string;
  readonly verbosity?: string;
}

/** The key of a turn's metadata that holds `KeptFields`, as JSON. */
const keptKey = "codeagent.responses";

/** The metadata of a turn with what is to be kept of its request. */
export function metadataWithKept(
  metadata: Readonly<Record<string, string>> | undefined,
  kept: KeptFields,
): Readonly<Record<string, string>> {
  return { ...metadata, [keptKey]: JSON.stringify(kept) };
}

/** The metadata the client gave. */
export function ownMetadata(options: GenerateOptions): Record<string, string> {
  const { [keptKey]: _, ...metadata } = options.metadata ?? {};
  return metadata;
}

/** What was asked for, from the turn it became; of a turn that was asked for otherwise, as far as it is known. */
export function askedFromTurn(started: Extract<LogEvent, { type: "turn-started" }>): AskedResponse {
  const kept = keptFrom(started.options.metadata?.[keptKey]);
  const first = kept.hasInstructions === true ? started.messages[0] : undefined;
  return present({
    ...kept,
    instructions: first === undefined ? undefined : messageText(first),
    options: started.options,
    tools: started.tools,
  });
}

function keptFrom(json: string | undefined): KeptFields {
  const fields = parsedObject(json ?? "") ?? {};
  const text = (value: unknown) => (typeof value === "string" ? value : undefined);
  const truth = (value: unknown) => (value === true ? true : undefined);
  return present({
    hasInstructions: truth(fields["hasInstructions"]),
    previousResponseId: text(fields["previousResponseId"]),
    conversationId: text(fields["conversationId"]),
    seals: truth(fields["seals"]),
    isStored: truth(fields["isStored"]) ?? (json === undefined ? true : undefined),
    summary: text(fields["summary"]),
    verbosity: text(fields["verbosity"]),
  });
}
