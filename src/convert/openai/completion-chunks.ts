import type { LogEvent } from "../../chat/log-event.ts";
import {
  type ChatCompletionChunk,
  type ChatCompletionDelta,
  type ChunkOptions,
  chunksFromLogEvents,
  holdsText,
  type ToolCallDelta,
} from "./event.ts";
import { turnDetails } from "./turn-details.ts";

const saysOtherwise =
  "the model was asked anew in the middle of its answer and says something else now; what was shown is void, ask again or read the session";

/** One text the reader puts together, and how much of it a repetition has gone through. */
interface Track {
  shown: string;
  repeated: number;
}

export interface CompletionChunksOptions extends Omit<ChunkOptions, "details"> {
  /** A session keeps what the turn did, so that the client need not; default is that none does. */
  readonly isKept?: boolean;
}

/**
 * Turns the events of a turn into OpenAI's chunks, and sees to it that a reader who just puts them together is right also
 * when part of the turn comes again (a new attempt at a step, a log told anew): what was shown is not shown again.
 * What chunks have no form for comes at the end (`turnDetails`), of what the turn came to only.
 * @param begunAnew makes the error for an answer that says something else the second time
 */
export function completionChunks(given: CompletionChunksOptions, begunAnew: (message: string) => Error) {
  const gathered = given.isKept === true ? undefined : turnDetails({ ...given, streams: true });
  const options: ChunkOptions = { ...given, details: () => gathered?.details() };
  const shown = new Map<string, Track>();
  let stepBegin = new Map<string, number>();
  let model = options.model;
  let roleShown = false;
  let anewInStep = false;
  let holds = false;
  let convert = chunksFromLogEvents(options);

  const track = (key: string): Track => {
    const known = shown.get(key);
    if (known !== undefined) return known;
    const begun = { shown: "", repeated: 0 };
    shown.set(key, begun);
    return begun;
  };
  /** Goes back in every track, as far as what comes again does. */
  const rewind = (to: ReadonlyMap<string, number>) => {
    for (const [key, one] of shown) one.repeated = to.get(key) ?? 0;
    convert = chunksFromLogEvents({ ...options, model, holdsText: holds });
  };
  /** What was shown has to be what the turn came to. */
  const checkRepeated = () => {
    for (const one of shown.values()) if (one.repeated < one.shown.length) throw begunAnew(saysOtherwise);
  };
  /** What of a piece the reader does not have yet. */
  const fresh = (key: string, piece: string): string => {
    const one = track(key);
    const repeated = one.shown.slice(one.repeated, one.repeated + piece.length);
    if (!piece.startsWith(repeated)) throw begunAnew(saysOtherwise);
    const rest = piece.slice(repeated.length);
    one.shown += rest;
    one.repeated += piece.length;
    return rest;
  };
  const freshCall = (call: ToolCallDelta): ToolCallDelta | undefined => {
    const key = `call ${call.index}`;
    const named = call.id === undefined ? "" : fresh(`${key} id`, JSON.stringify([call.id, call.function?.name]));
    const args = fresh(`${key} arguments`, call.function?.arguments ?? "");
    if (named !== "") return call;
    return args === "" ? undefined : { index: call.index, function: { arguments: args } };
  };
  const freshDelta = (delta: ChatCompletionDelta): ChatCompletionDelta | undefined => {
    const { role, content, reasoning_content: reasoning, tool_calls: calls } = delta;
    if (delta.reasoning_details !== undefined) return delta;
    if (role !== undefined) {
      if (roleShown) return undefined;
      roleShown = true;
      return delta;
    }
    const text = content === undefined ? "" : fresh("content", content);
    const thinking = reasoning === undefined ? "" : fresh("reasoning", reasoning);
    const tools = (calls ?? []).map(freshCall).filter((call) => call !== undefined);
    const left: ChatCompletionDelta = {
      ...(text === "" ? {} : { content: text }),
      ...(thinking === "" ? {} : { reasoning_content: thinking }),
      ...(tools.length === 0 ? {} : { tool_calls: tools }),
    };
    return Object.keys(left).length === 0 ? undefined : left;
  };
  const freshChunk = (chunk: ChatCompletionChunk): ChatCompletionChunk[] => {
    const [choice] = chunk.choices;
    if (choice === undefined || choice.finish_reason !== null) return [chunk];
    const delta = freshDelta(choice.delta);
    return delta === undefined ? [] : [{ ...chunk, choices: [{ ...choice, delta }] }];
  };

  return {
    /** What follows tells the turn from its beginning. */
    restart(): void {
      rewind(new Map());
      gathered?.restart();
    },
    /**
     * The chunks an event makes, often none.
     * @throws {AgentError} the error the turn failed with.
     * @throws what `begunAnew` makes.
     */
    push(event: LogEvent): ChatCompletionChunk[] {
      gathered?.push(event);
      if (event.type === "turn-started") {
        model = event.model || model;
        holds = holdsText(event);
      }
      if (event.type === "step-started") {
        if (event.attempt > 1) rewind(stepBegin);
        else if (anewInStep) checkRepeated();
        anewInStep = event.attempt > 1;
        stepBegin = new Map([...shown].map(([key, one]) => [key, one.repeated]));
      }
      const chunks = convert(event).flatMap(freshChunk);
      if (event.type === "turn-finished" && event.finishReason !== "cancelled") checkRepeated();
      return chunks;
    },
  };
}
