import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { CodeAgentService } from "../gen/codeagent/v1/code_agent_pb.ts";

export type AgentClient = Client<typeof CodeAgentService>;

/** A gRPC client; each has a connection of its own. */
export function grpcClient(baseUrl: string): AgentClient {
  return createClient(CodeAgentService, createGrpcTransport({ baseUrl }));
}

/** The message every turn begins with. */
export const messages = [{ role: "user", contentType: { case: "content" as const, value: "hi" } }];

/** Streams a turn; yields the texts of its deltas. Fails when the turn does. */
export async function* streamTexts(client: AgentClient, model: string, sessionId = ""): AsyncGenerator<string> {
  for await (const { event } of client.streamGenerate({ model, messages, sessionId })) {
    if (event.case === "blockDelta" && event.value.delta.case === "text") yield event.value.delta.value;
    if (event.case === "turnFinished" && event.value.error !== undefined) throw new Error(event.value.error.message);
  }
}
