import type { ContentBlock, Message } from "../chat/message.ts";
import type { ChatRequest } from "../chat/request.ts";
import type { ProviderSpec } from "./provider-spec.ts";

/**
 * How we call ourselves at GitHub. Its API answers 400 to an editor or an integration it does not know, so these are
 * the names of a known one, as CopilotChat.nvim and LiteLLM send them too.
 */
export const copilotClientHeaders = {
  "editor-version": "vscode/1.107.0",
  "editor-plugin-version": "copilot-chat/0.35.0",
  "copilot-integration-id": "vscode-chat",
  "user-agent": "codeagent",
  "x-github-api-version": "2025-04-01",
} as const;

/**
 * GitHub Copilot. It is let in with a short-lived token (`createCopilotCredentials`), which also tells where its API is;
 * the address here is that of accounts for which it does not.
 */
export const copilot = {
  id: "copilot",
  displayName: "GitHub Copilot",
  dialect: "openai-chat",
  baseUrl: "https://api.githubcopilot.com",
  baseUrlEnv: "COPILOT_BASE_URL",
  keyRequired: true,
  headers: { ...copilotClientHeaders, "openai-intent": "conversation-agent" },
  headersFor: copilotHeaders,
  quirks: { thinkingField: "reasoning_text", thinkingReplay: "all" },
  features: ["streaming", "tools", "vision", "thinking", "reasoning"],
} as const satisfies ProviderSpec;

/**
 * The headers that depend on what is asked, as the fetcher of `microsoft/vscode-copilot-chat` sets them.
 *
 * - `x-initiator`: `user` for the call that answers a prompt, `agent` for those that go on with tool results. The plan's
 *   premium requests are counted by prompt (GitHub Docs, "Requests in GitHub Copilot"), so that a wrong word costs money
 * - `copilot-vision-request`: there is an image in the request; without it images are refused
 */
export function copilotHeaders({ messages }: ChatRequest): Readonly<Record<string, string>> {
  const last = messages.findLast(({ role }) => role !== "system" && role !== "developer");
  const prompted = last === undefined || isPrompt(last);
  const images = messages.some(({ blocks }) => blocks.some(holdsImage));
  return { "x-initiator": prompted ? "user" : "agent", ...(images ? { "copilot-vision-request": "true" } : {}) };
}

function isPrompt({ role, blocks }: Message): boolean {
  return role === "user" && !blocks.some(({ type }) => type === "tool_result");
}

function holdsImage(block: ContentBlock): boolean {
  if (block.type === "tool_result") return (block.parts ?? []).some(({ type }) => type === "image");
  return block.type === "image";
}
