import type {
  ContentBlock,
  GenerateChunk,
  ToolResult,
  TurnFinished,
  Usage,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { oneLine, type Page } from "./terminal.ts";

const argumentCharacters = 60;
const callCharacters = 160;

/**
 * Writes a turn as it goes: thinking dim, the answer plain, tool calls and their results in a line each, and how it ended.
 */
export class TurnPrinter {
  readonly #page: Page;
  readonly #now: () => number;
  readonly #startedMs: number;
  /** Blocks of the running answer that came in pieces. */
  readonly #shown = new Set<number>();
  /** The model asked last, with its provider. */
  #asked = "";

  /** @param now milliseconds of any clock that goes evenly */
  constructor(page: Page, now: () => number = () => performance.now()) {
    this.#page = page;
    this.#now = now;
    this.#startedMs = now();
  }

  /** Takes the next event of the turn. */
  add({ event }: GenerateChunk): void {
    switch (event.case) {
      case "stepStarted":
        this.#shown.clear();
        // A notice has told of another model that is asked.
        if (event.value.attempt > 1 && this.#asked === `${event.value.provider}/${event.value.model}`)
          this.#line("the answer broke off, asking again", "dim");
        this.#asked = `${event.value.provider}/${event.value.model}`;
        return;
      case "blockStart":
        this.#page.endLine();
        return;
      case "blockDelta": {
        const { delta, index } = event.value;
        if (delta.case === "text") this.#page.write(delta.value);
        else if (delta.case === "thinking" || delta.case === "reasoning") this.#page.write(delta.value, "dim");
        else return;
        this.#shown.add(index);
        return;
      }
      case "blockStop": {
        const { block, index } = event.value;
        if (block !== undefined && !this.#shown.has(index)) printBlock(this.#page, block);
        this.#page.endLine();
        return;
      }
      case "toolFinished":
        printResult(this.#page, event.value.name, event.value.result);
        return;
      case "toolOutput":
        this.#page.write(event.value.text, "dim");
        return;
      case "requestOpened":
        this.#line(`waits for an answer: ${event.value.request?.title ?? ""}`, "bold");
        return;
      case "requestResolved": {
        const { decision, author, text } = event.value;
        this.#line(`${decision}${author === "" ? "" : ` by ${author}`}${text === "" ? "" : `: ${text}`}`, "dim");
        return;
      }
      case "historyCompacted":
        this.#line(`${event.value.droppedMessages} old messages were replaced by a summary`, "dim");
        return;
      case "notice":
        this.#line(event.value.message, event.value.level === "warning" ? "red" : "dim");
        return;
      case "turnFinished":
        this.#finish(event.value);
        return;
      default:
        return;
    }
  }

  #finish({ finishReason, usage, error, steps }: TurnFinished): void {
    if (error !== undefined) this.#line(error.message, "red");
    const seconds = ((this.#now() - this.#startedMs) / 1000).toFixed(1);
    const calls = `${steps} model call${steps === 1 ? "" : "s"}`;
    this.#line(`${finishReason} · ${calls} · ${usageText(usage)} · ${seconds} s`, "dim");
  }

  #line(text: string, style: "dim" | "bold" | "red"): void {
    this.#page.endLine();
    this.#page.write(text, style);
    this.#page.endLine();
  }
}

/** Writes a whole block of a message. */
export function printBlock(page: Page, { block }: ContentBlock): void {
  page.endLine();
  switch (block.case) {
    case "text":
      page.write(block.value.text);
      break;
    case "thinking":
      page.write(block.value.thinking, "dim");
      break;
    case "reasoning":
      page.write(block.value.content || block.value.summary.join("\n"), "dim");
      break;
    case "redactedThinking":
      page.write("[thinking that only the provider can read]", "dim");
      break;
    case "toolUse":
      page.write(`→ ${oneLine(`${block.value.name} ${argumentsText(block.value.input)}`, callCharacters)}`, "cyan");
      break;
    case "toolResult": {
      const { content, isError } = block.value;
      page.write(`← ${isError ? oneLine(content, callCharacters) : sizeText(content)}`, isError ? "red" : "dim");
      break;
    }
    case "image":
    case "file":
    case "audio":
    case "unknown":
      page.write(`[${block.case}]`, "dim");
      break;
    default:
      break;
  }
  page.endLine();
}

/** What a turn used, for a person; what the provider did not say is not made up. */
export function usageText(usage: Usage | undefined): string {
  const { inputTokens, outputTokens, cacheReadTokens, reasoningTokens, costNanoUsd } = usage ?? {};
  if (inputTokens === undefined && outputTokens === undefined) return "usage unknown";
  const part = (tokens: bigint | undefined, what: string) => (tokens ? ` (${count(tokens)} ${what})` : "");
  const read = `${inputTokens === undefined ? "?" : count(inputTokens)} tokens in${part(cacheReadTokens, "from the cache")}`;
  const wrote = `${outputTokens === undefined ? "?" : count(outputTokens)} out${part(reasoningTokens, "thinking")}`;
  const cost = costNanoUsd === undefined ? "" : `, $${(Number(costNanoUsd) / 1e9).toFixed(4)}`;
  return `${usage?.partial === true ? "at least " : ""}${read}, ${wrote}${cost}`;
}

function printResult(page: Page, name: string, result: ToolResult | undefined): void {
  page.endLine();
  const time = `${result?.durationMs ?? 0n} ms`;
  if (result?.success === true) {
    page.write(`← ${name}: ${sizeText(result.output)}${result.truncated ? ", cut" : ""}, ${time}`, "dim");
  } else {
    const why = result?.error || result?.output || "failed";
    page.write(`← ${name}: ${oneLine(why, callCharacters)} (${time})`, "red");
  }
  page.endLine();
}

function sizeText(output: string): string {
  const lines = output === "" ? 0 : output.split("\n").length;
  return lines === 1 ? oneLine(output, callCharacters) : `${count(lines)} lines, ${count(output.length)} characters`;
}

/** JSON arguments as `key=value`; what is no JSON object as it is. */
function argumentsText(input: string): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(input);
  } catch {
    return input;
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return input;
  return Object.entries(parsed)
    .map(([key, value]) => `${key}=${oneLine(JSON.stringify(value), argumentCharacters)}`)
    .join(" ");
}

function count(value: number | bigint): string {
  return value.toLocaleString("en-US");
}
