import type { ChatEvent } from "../../src/chat/event.ts";
import type { FinishReason } from "../../src/chat/finish-reason.ts";
import type { Usage } from "../../src/chat/usage.ts";
import type { Exchange } from "./exchange.ts";
import type { Findings } from "./findings.ts";

interface FinishChecks {
  /** The tag before the word an answer ends with, as in `finish:stop`. */
  readonly tag: string;
  /** What that word means, from the words of the API's documentation. */
  reasonOf(word: string): FinishReason;
}

/** An answer ends once, with the word its tags name. */
export function checkFinish(
  { tags }: Exchange,
  events: readonly ChatEvent[],
  findings: Findings,
  { tag, reasonOf }: FinishChecks,
): void {
  const finishes = events.filter((event) => event.type === "finish");
  const [finish] = finishes;
  findings.same(finishes.length, 1, "ends of the answer");
  if (finish === undefined) return;
  const named = [...tags].filter((one) => one.startsWith(`${tag}:`)).map((one) => one.slice(tag.length + 1));
  // A tag writes what is no text as a program would: `finish:None`.
  const word = finish.rawFinishReason;
  if (named.length > 0 && word !== "") {
    findings.holds(named.includes(word), `it ends with ${word}, but its tags say ${named.join(", ")}`);
  }
  findings.same(finish.finishReason, reasonOf(word), `what ${word || "no word"} at the end means`);
}

/** Counts are there where they are told, and make sense beside each other. */
export function checkUsage({ tags }: Exchange, events: readonly ChatEvent[], findings: Findings): Usage | undefined {
  const usage = events.findLast((event) => event.type === "usage")?.usage;
  if (tags.has("no_usage")) findings.same(usage, undefined, "usage");
  findings.claim(tags, "reasoning_tokens", (usage?.reasoningTokens ?? 0) > 0, "reasoning token");
  findings.claim(tags, "cache_read", (usage?.cacheReadTokens ?? 0) > 0, "cached token");
  if (usage === undefined) return undefined;
  const { inputTokens = 0, outputTokens = 0, totalTokens, cacheReadTokens = 0, cacheCreationTokens = 0 } = usage;
  if (totalTokens !== undefined && usage.inputTokens !== undefined && usage.outputTokens !== undefined) {
    findings.same(totalTokens, inputTokens + outputTokens, "tokens in all, beside input and output");
  }
  if (cacheReadTokens + cacheCreationTokens > inputTokens) {
    findings.note(`of ${inputTokens} tokens read more are cached: ${cacheReadTokens} + ${cacheCreationTokens}`);
  }
  findings.holds((usage.reasoningTokens ?? 0) <= outputTokens, "more tokens are reasoning than were written");
  return usage;
}
