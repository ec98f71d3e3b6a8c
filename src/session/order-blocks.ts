import { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { BlockDelta, LogEvent } from "../chat/log-event.ts";
import type { BlockOrigin, ContentBlock } from "../chat/message.ts";
import type { Blob } from "../log/store.ts";
import { separateLargeBlock } from "./large-blocks.ts";

/** A text block is closed at this size and goes on in a new one, so that no event grows without bound. */
const maxTextLength = 256 * 1024;
/** Largest block of another kind, in UTF-16 units: with all of them three bytes long it still fits an event of 1 MB. */
const maxBlockLength = 300 * 1024;

interface Builder {
  readonly key: number;
  readonly type: "text" | "thinking" | "reasoning" | "tool_use" | "whole";
  readonly id: string;
  readonly name: string;
  /** All of it. Only added to while it grows: to cut pieces from it would copy it each time. */
  text: string;
  /** The end of `text` that readers do not have yet. */
  unshown: string;
  signature: string;
  shownSignature: number;
  phase: string;
  whole: ContentBlock | undefined;
}

/**
 * Puts the blocks of one answer in order: turns what a dialect reads, where deltas of several tool calls may interleave,
 * into block-start, block-delta and block-stop events in which no two blocks do. A block that began while another is
 * open is held back until that one is complete.
 *
 * @param origin goes into blocks that only their author can read.
 * @param uniqueId gives a call id when the model gave none or one that is taken.
 */
export function orderBlocks(origin: BlockOrigin, uniqueId: (wanted: string) => string) {
  const builders: Builder[] = [];
  const byKey = new Map<number, Builder>();
  let open: { builder: Builder; index: number } | undefined;
  let nextIndex = 0;
  let blobs: Blob[] = [];

  const builderFor = (key: number, type: Builder["type"], id = "", name = ""): Builder => {
    const known = byKey.get(key);
    if (known !== undefined) return known;
    const builder = {
      key,
      type,
      id,
      name,
      text: "",
      unshown: "",
      signature: "",
      shownSignature: 0,
      phase: "",
      whole: undefined,
    };
    byKey.set(key, builder);
    builders.push(builder);
    return builder;
  };

  /** What is too large for an event is refused before anything of it is shown, so that the block can still be closed. */
  const checkLength = (builder: Builder, added: string): void => {
    const length = builder.text.length + builder.signature.length + added.length;
    if (builder.type === "text" || length <= maxBlockLength) return;
    throw new AgentError(
      "provider_protocol",
      `the model wrote a ${builder.type} block of ${length} characters; the limit is ${maxBlockLength}`,
    );
  };

  const addText = (builder: Builder, text: string): void => {
    checkLength(builder, text);
    builder.text += text;
    builder.unshown += text;
  };

  function take(event: ChatEvent): void {
    switch (event.type) {
      case "text-delta": {
        const builder = builderFor(event.index, "text");
        addText(builder, event.text);
        builder.phase = event.phase ?? builder.phase;
        return;
      }
      case "thinking-delta":
        addText(builderFor(event.index, "thinking"), event.text);
        return;
      case "signature-delta": {
        const builder = builderFor(event.index, "thinking");
        checkLength(builder, event.signature);
        builder.signature += event.signature;
        return;
      }
      case "reasoning-delta":
        addText(builderFor(event.index, "reasoning"), event.text);
        return;
      case "tool-call-start":
        if (!byKey.has(event.index)) builderFor(event.index, "tool_use", uniqueId(event.id), event.name);
        return;
      case "tool-call-delta":
        addText(builderFor(event.index, "tool_use"), event.argumentsText);
        return;
      case "block": {
        const { block, blob } = separateLargeBlock(withOrigin(event.block, origin));
        builderFor(event.index, "whole").whole = block;
        if (blob !== undefined) blobs.push(blob);
        return;
      }
      case "response":
      case "usage":
      case "finish":
        return;
      default:
        event satisfies never;
    }
  }

  function* show(finished: boolean): Generator<LogEvent> {
    for (;;) {
      const builder = open?.builder ?? builders[0];
      if (builder === undefined) return;
      if (open === undefined) {
        open = { builder, index: nextIndex++ };
        yield start(builder, open.index);
      }
      for (const delta of newDeltas(builder)) {
        const shownLength = builder.text.length - builder.unshown.length;
        if (builder.type === "text" && shownLength > maxTextLength) {
          yield {
            type: "block-stop",
            index: open.index,
            block: textBlock(builder.text.slice(0, shownLength), builder.phase),
          };
          builder.text = builder.unshown;
          open.index = nextIndex++;
          yield start(builder, open.index);
        }
        yield { type: "block-delta", index: open.index, delta };
        advance(builder, delta);
      }
      if (!finished && !(builders.length > 1 && isComplete(builder))) return;
      yield { type: "block-stop", index: open.index, block: finishedBlock(builder, origin) };
      builders.shift();
      open = undefined;
    }
  }

  return {
    /**
     * Reads the events of one upstream read; returns what readers may see of them.
     * @throws {AgentError} `provider_protocol` for a block too large for an event; `finish` then closes what is open.
     */
    push(events: readonly ChatEvent[]): LogEvent[] {
      for (const event of events) take(event);
      return [...show(false)];
    },
    /** Ends the answer: closes every block, also half-written ones. */
    finish(): LogEvent[] {
      return [...show(true)];
    },
    /** What blocks too large for an event hold; to be committed with the events that `push` and `finish` returned. */
    takeBlobs(): Blob[] {
      const taken = blobs;
      blobs = [];
      return taken;
    },
  };
}

/**
 * A block can be closed when nothing more of it can come. Text never resumes; a call's arguments may, until they are
 * whole; and of reasoning the form that goes back comes last.
 */
function isComplete(builder: Builder): boolean {
  if (builder.type === "reasoning") return builder.whole !== undefined;
  if (builder.type !== "tool_use") return true;
  if (!builder.text.trimEnd().endsWith("}")) return false;
  try {
    JSON.parse(builder.text);
    return true;
  } catch {
    return false;
  }
}

function start(builder: Builder, index: number): LogEvent {
  if (builder.type === "tool_use") {
    return { type: "block-start", index, blockType: "tool_use", id: builder.id, name: builder.name };
  }
  return {
    type: "block-start",
    index,
    blockType: builder.whole?.type ?? (builder.type === "whole" ? "unknown" : builder.type),
  };
}

function* newDeltas(builder: Builder): Generator<BlockDelta> {
  while (builder.unshown !== "") {
    const piece = beginning(builder.unshown, maxTextLength);
    switch (builder.type) {
      case "text":
        yield { type: "text", text: piece };
        break;
      case "thinking":
        yield { type: "thinking", thinking: piece };
        break;
      case "reasoning":
        yield { type: "reasoning", reasoning: piece };
        break;
      case "tool_use":
        yield { type: "input_json", inputJson: piece };
        break;
      case "whole":
        builder.unshown = "";
        break;
      default:
        builder.type satisfies never;
    }
  }
  if (builder.shownSignature < builder.signature.length) {
    yield { type: "signature", signature: builder.signature.slice(builder.shownSignature) };
  }
}

function advance(builder: Builder, delta: BlockDelta): void {
  switch (delta.type) {
    case "text":
      builder.unshown = builder.unshown.slice(delta.text.length);
      return;
    case "thinking":
      builder.unshown = builder.unshown.slice(delta.thinking.length);
      return;
    case "reasoning":
      builder.unshown = builder.unshown.slice(delta.reasoning.length);
      return;
    case "input_json":
      builder.unshown = builder.unshown.slice(delta.inputJson.length);
      return;
    case "signature":
      builder.shownSignature = builder.signature.length;
      return;
    default:
      delta satisfies never;
  }
}

/** At most `length` units, never ending between the halves of a surrogate pair. */
function beginning(text: string, length: number): string {
  if (text.length <= length) return text;
  const last = text.charCodeAt(length - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? length - 1 : length);
}

function textBlock(text: string, phase: string): ContentBlock {
  return phase === "" ? { type: "text", text } : { type: "text", text, phase };
}

/** What the dialect says of a block's origin goes before what is known of the whole answer's. */
function withOrigin(block: ContentBlock, origin: BlockOrigin): ContentBlock {
  switch (block.type) {
    case "thinking":
    case "redacted_thinking":
    case "reasoning":
    case "unknown":
      return { ...origin, ...block };
    case "text":
    case "tool_use":
    case "tool_result":
    case "image":
    case "file":
    case "audio":
      return block;
    default:
      return block satisfies never;
  }
}

function finishedBlock(builder: Builder, origin: BlockOrigin): ContentBlock {
  if (builder.whole !== undefined) return builder.whole;
  switch (builder.type) {
    case "text":
      return textBlock(builder.text, builder.phase);
    case "thinking":
      return {
        type: "thinking",
        thinking: builder.text,
        ...(builder.signature === "" ? {} : { signature: builder.signature }),
        ...origin,
      };
    case "reasoning":
      return { type: "reasoning", content: builder.text, summary: [], ...origin };
    case "tool_use":
      return { type: "tool_use", id: builder.id, name: builder.name, input: builder.text };
    case "whole":
      throw new Error("a whole block without content");
    default:
      throw new Error(builder.type satisfies never);
  }
}
