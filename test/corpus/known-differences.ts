import type { AgentErrorKind } from "../../src/chat/error.ts";

const ownIds = "call ids of its own";
const losesThinking = "that client loses thinking";
const losesText = "that client loses the text";

/**
 * Where recorded clients send back another answer than they got, and what makes theirs of ours. None of it is what the
 * model wrote. Some use the id of the item for that of the call; Mantle's calls have the same ids in each answer.
 */
export const knownDifferences: Readonly<Record<string, string>> = {
  "messages-anthropic-59d7a159": losesThinking,
  "messages-anthropic-8a1d7313": losesThinking,
  "messages-anthropic-d32507ae": losesThinking,
  "messages-anthropic-de9375ea": losesThinking,
  "messages-anthropic-8031cd2a": losesText,
  "messages-anthropic-c6f2507a": losesText,
  "messages-anthropic-1acb0f85": "that client loses thinking and citations",
  "messages-anthropic-3110ef52": "that client loses thinking and citations",
  "messages-anthropic-0e61139b": "that client puts white space before the calls",
  "messages-anthropic-8d5530b7": "the recorder hid the passwords in the calls",
  "chat-avian-b60ba415": "that client loses the text, or puts thinking into it",
  "chat-groq-5eb2da52": "that client loses the text, or puts thinking into it",
  "responses-azure-330cd4ac": "reasoning left out",
  "responses-openai-200b8531": "reasoning left out",
  "responses-bedrock-mantle-617f486f": ownIds,
  "responses-bedrock-mantle-7b2f80c9": ownIds,
  "responses-openai-1de45ab9": ownIds,
  "responses-openai-570e4233": ownIds,
  "responses-openai-982505eb": ownIds,
  "responses-openai-c090a4a0": ownIds,
  "responses-openai-793e786e": "arguments written anew",
  "responses-openai-7a3a1263": "arguments written anew",
  "responses-openai-b6124e53": "arguments written anew",
  "responses-openai-54598e86": "sources left out",
};

/** Errors whose kind somebody looked up, where the body alone leaves more than one. */
export const knownErrorKinds: Readonly<Record<string, AgentErrorKind>> = {
  "chat-groq-4f5f5738": "provider_rejected",
  "chat-groq-b75f859e": "provider_rejected",
  "chat-openrouter-19ec71a1": "provider_rejected",
  "chat-openrouter-6b455f68": "provider_unavailable",
  "chat-openrouter-bd16934d": "provider_unavailable",
  "chat-openrouter-e84f6342": "provider_unavailable",
  "chat-perplexity-74022e6e": "context_length",
  "responses-openai-501de15e": "rate_limited",
  "responses-openai-b9b8683a": "provider_protocol",
};
