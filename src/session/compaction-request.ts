import { AgentError } from "../chat/error.ts";

/** What a command for a compaction asks for. */
export interface CompactionRequest {
  /** Idempotency key of the caller, or an id of the server's. */
  readonly requestId: string;
  /** The models of the session when it was asked for, as a turn names them. */
  readonly model: string;
  /** What to keep, in somebody's words; may be empty. */
  readonly instructions: string;
  /** Nothing is kept, and no model is asked. */
  readonly clears?: true;
}

/** The form the inbox keeps. */
export function encodeCompactionRequest(request: CompactionRequest): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(request));
}

/** @throws {AgentError} `data_loss` when the bytes are no such request. */
export function decodeCompactionRequest(bytes: Uint8Array): CompactionRequest {
  const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
  if (typeof value === "object" && value !== null) {
    const { requestId, model, instructions, clears } = value as Record<string, unknown>;
    if (typeof requestId === "string" && typeof model === "string" && typeof instructions === "string")
      return { requestId, model, instructions, ...(clears === true ? { clears } : {}) };
  }
  throw new AgentError("data_loss", "a request for a compaction can't be read");
}
