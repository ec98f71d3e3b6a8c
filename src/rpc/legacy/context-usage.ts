import { create } from "@bufbuild/protobuf";
import { type ContextUsage, ContextUsageSchema } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import type { Message } from "../../chat/message.ts";
import { estimateTokens } from "../../session/compact-history.ts";
import type { Sessions } from "../../session/sessions.ts";
import { theCaller } from "../caller.ts";

const pageSize = 1000;

/**
 * How large the history of a session is now, in tokens as they are estimated for compaction: `completion_tokens` are in
 * messages that models wrote, `prompt_tokens` in all others.
 * @throws {AgentError} `not_found`.
 */
export async function contextUsageOf(sessions: Sessions, sessionId: string): Promise<ContextUsage> {
  let messageCount = 0;
  let completionTokens = 0;
  let promptTokens = 0;
  for (;;) {
    const { messages, more } = await sessions.messages(theCaller, sessionId, messageCount, pageSize);
    const isAnswer = ({ role }: Message) => role === "assistant";
    completionTokens += estimateTokens(messages.filter(isAnswer));
    promptTokens += estimateTokens(messages.filter((message) => !isAnswer(message)));
    messageCount += messages.length;
    if (!more || messages.length === 0) break;
  }
  const totalTokens = promptTokens + completionTokens;
  return create(ContextUsageSchema, { messageCount, completionTokens, promptTokens, totalTokens });
}
