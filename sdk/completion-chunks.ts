import { Code } from "@connectrpc/connect";
import {
  type CompletionChunksOptions,
  completionChunks as chunksOfTurn,
} from "../src/convert/openai/completion-chunks.ts";
import { CodeAgentError } from "./error.ts";

/** As in `src/convert`; what its `push` throws for an answer begun anew is a CodeAgentError, `ANSWER_BEGUN_ANEW`. */
export function completionChunks(options: CompletionChunksOptions) {
  return chunksOfTurn(options, begunAnew);
}

function begunAnew(message: string): CodeAgentError {
  return new CodeAgentError(message, Code.Aborted, { reason: "ANSWER_BEGUN_ANEW", detail: { retryable: true } });
}
