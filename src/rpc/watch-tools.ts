import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type WatchToolsResponse, WatchToolsResponseSchema } from "../../gen/codeagent/v1/tool_service_pb.ts";
import {
  type FunctionSet,
  type FunctionSetChange,
  type FunctionSets,
  functionSetChange,
} from "../tool/function-sets.ts";

interface WatchOptions {
  /** The last generation that the reader has seen. */
  readonly afterGeneration: number | undefined;
  readonly silenceMs: number;
  readonly signal: AbortSignal;
}

/**
 * The generations of a workspace's tools, first the one that holds now, unless it is `afterGeneration`; `keep_alive` after
 * each `silenceMs` without one. Changes that come while a frame is taken are told as one. Ends with the signal, without
 * an error.
 */
export async function* watchTools(
  functions: FunctionSets,
  workspace: string,
  { afterGeneration, silenceMs, signal }: WatchOptions,
): AsyncGenerator<WatchToolsResponse> {
  let news: "change" | "silence" | undefined;
  let wake: (() => void) | undefined;
  const tell = (what: "change" | "silence") => {
    if (news !== "change") news = what;
    wake?.();
  };
  const stopWatching = functions.watch(workspace, () => tell("change"));
  const timer = setTimeout(() => tell("silence"), silenceMs);
  const onAbort = () => wake?.();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    let told = await functions.current(workspace);
    if (told.generation !== afterGeneration) yield generationFrame(told, firstSight(told));
    while (!signal.aborted) {
      if (news === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
        continue;
      }
      const what = news;
      news = undefined;
      timer.refresh();
      if (what === "silence") {
        yield create(WatchToolsResponseSchema, { event: { case: "keepAlive", value: {} } });
        continue;
      }
      const set = await functions.current(workspace);
      if (set.digest === told.digest) continue;
      yield generationFrame(set, functionSetChange(told, set));
      told = set;
    }
  } finally {
    clearTimeout(timer);
    stopWatching();
    signal.removeEventListener("abort", onAbort);
  }
}

function firstSight(set: FunctionSet): FunctionSetChange {
  return { added: set.definitions.map(({ name }) => name), removed: [], changed: [] };
}

function generationFrame(set: FunctionSet, { added, removed, changed }: FunctionSetChange): WatchToolsResponse {
  return create(WatchToolsResponseSchema, {
    event: {
      case: "generation",
      value: {
        generation: BigInt(set.generation),
        time: timestampFromMs(set.timeMs),
        toolCount: set.definitions.length,
        added: [...added],
        removed: [...removed],
        changed: [...changed],
      },
    },
  });
}
