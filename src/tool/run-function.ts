import { AgentError } from "../chat/error.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { boundedText, harmlessText } from "./bounded-text.ts";
import { checkArguments } from "./check-arguments.ts";
import type { FunctionIndex, IndexedFunction } from "./function-index.ts";
import type { FunctionCall, FunctionContext } from "./function-provider.ts";
import { nearNames } from "./near-names.ts";

/** A call as the model made it. */
export interface RequestedCall {
  readonly name: string;
  /** JSON text; empty or blank means no arguments. */
  readonly argumentsText: string;
}

export interface RunLimits {
  /** How much of the output is kept, in bytes of UTF-8; default 256 KiB. */
  readonly outputLimitBytes?: number;
  /** How long a function that was told to stop may take to do so and to hand over what it has; default 3000. */
  readonly graceMs?: number;
}

const defaultTimeoutMs = 30_000;
const maxTimeoutMs = 600_000;
/** What works through turns of its own waits for people in them, and ends with the turn it was called in. */
const maxDelegatedMs = 24 * 3_600_000;
const errorLimitCharacters = 2048;
const namesShown = 60;

type Outcome =
  | { readonly kind: "result"; readonly result: ToolResult }
  | { readonly kind: "thrown"; readonly error: unknown }
  | { readonly kind: "abandoned" };

/**
 * Runs a function for a model. Whatever goes wrong (no such function, bad arguments, a fault in it, time up) is a failed
 * result the model can read; of a function stopped by its own time limit the output so far is kept. The result is bounded,
 * free of control characters and carries its duration.
 * @throws only the reason of `context.signal`, once the function has stopped or its grace is over.
 */
export async function runFunction(
  functions: FunctionIndex,
  call: RequestedCall,
  context: FunctionContext,
  limits: RunLimits = {},
): Promise<ToolResult> {
  context.signal.throwIfAborted();
  const startMs = performance.now();
  const found = functions.find(call.name);
  const result = found === undefined ? unknownFunction(functions, call.name) : await runFound(found);
  return { ...presentable(result, context, limits), durationMs: Math.round(performance.now() - startMs) };

  async function runFound(found: IndexedFunction): Promise<ToolResult> {
    const checked = checkArguments(found.definition, call.argumentsText);
    if (!checked.ok) return toolFailure(checked.error);
    return runInTime(found, { name: found.name, arguments: checked.arguments }, context, limits.graceMs ?? 3000);
  }
}

async function runInTime(
  { definition, provider }: IndexedFunction,
  call: FunctionCall,
  context: FunctionContext,
  graceMs: number,
): Promise<ToolResult> {
  const { signal } = context;
  const mostMs = definition.delegates === true ? maxDelegatedMs : maxTimeoutMs;
  const timeoutMs = definition.timeoutMs > 0 ? Math.min(definition.timeoutMs, mostMs) : defaultTimeoutMs;
  const stop = new AbortController();
  const onAbort = () => stop.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    stop.abort(new Error(`stopped after ${timeoutMs} ms`));
  }, timeoutMs);
  let listening = true;
  const ownContext: FunctionContext = {
    sessionId: context.sessionId,
    turnId: context.turnId,
    toolCallId: context.toolCallId,
    workspace: context.workspace,
    signal: stop.signal,
    ...(context.isHidden === undefined ? {} : { isHidden: context.isHidden }),
    ...(context.runTask === undefined ? {} : { runTask: context.runTask }),
    ...(context.callPlan === undefined ? {} : { callPlan: context.callPlan }),
    onOutput: (stream, text) => {
      if (listening) context.onOutput?.(stream, text);
    },
  };
  const graceOver = overAfterStop(stop.signal, graceMs);
  try {
    const running = Promise.resolve()
      .then(() => provider.call(call, ownContext))
      .then(
        (result): Outcome => ({ kind: "result", result }),
        (error: unknown): Outcome => ({ kind: "thrown", error }),
      );
    const outcome = await Promise.race([running, graceOver.promise]);
    signal.throwIfAborted();
    if (timedOut) return timeUp(call.name, timeoutMs, outcome);
    if (outcome.kind === "result") return outcome.result;
    return toolFailure(outcome.kind === "thrown" ? faultText(call.name, outcome.error) : `${call.name} did not end`);
  } finally {
    listening = false;
    clearTimeout(timer);
    graceOver.clear();
    signal.removeEventListener("abort", onAbort);
  }
}

/** A promise that is kept when the grace after a stop is over. */
function overAfterStop(stop: AbortSignal, graceMs: number): { promise: Promise<Outcome>; clear(): void } {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  let timer: NodeJS.Timeout | undefined;
  const onStop = () => {
    timer = setTimeout(() => resolve({ kind: "abandoned" }), graceMs);
  };
  stop.addEventListener("abort", onStop, { once: true });
  return {
    promise,
    clear() {
      clearTimeout(timer);
      stop.removeEventListener("abort", onStop);
    },
  };
}

function timeUp(name: string, timeoutMs: number, outcome: Outcome): ToolResult {
  const error = `${name} was stopped after ${timeoutMs} ms, the longest it may take`;
  return outcome.kind === "result" ? { ...outcome.result, success: false, error } : toolFailure(error);
}

function faultText(name: string, error: unknown): string {
  if (error instanceof AgentError) return error.message;
  const message = error instanceof Error ? error.message : typeof error === "string" ? error : "";
  return message === "" ? `${name} failed` : `${name} failed: ${message}`;
}

/** A result as a model and people may see it: bounded, without control characters and paths of the server. */
export function presentable(
  result: ToolResult,
  context: Pick<FunctionContext, "workspace">,
  limits: RunLimits,
): ToolResult {
  const output = boundedText(result.output, limits.outputLimitBytes ?? 256 * 1024);
  return {
    ...result,
    output: output.text,
    ...(result.error === undefined ? {} : { error: withoutServerPaths(result.error, context.workspace) }),
    ...(output.cutBytes > 0 ? { truncated: true } : {}),
  };
}

// A slash that begins a path of two names or more; one inside a URL or a relative path has a name before it.
const absolutePath = /(?:file:\/\/|(?<![\w.~:/-]))\/[^\s'"`:,;()<>/]+\/[^\s'"`:,;()<>]*/g;

function withoutServerPaths(text: string, workspace: string): string {
  const short = harmlessText(text.slice(0, errorLimitCharacters));
  const inside = workspace.length > 1 ? short.replaceAll(`${workspace}/`, "").replaceAll(workspace, ".") : short;
  return inside.replace(absolutePath, "<path>");
}

function unknownFunction(functions: FunctionIndex, wanted: string): ToolResult {
  const names = functions.definitions.map((definition) => definition.name);
  const asked = harmlessText(wanted.slice(0, 100));
  const similar = nearNames(names, asked);
  const hint = similar.length === 0 ? "" : ` Did you mean ${similar.join(" or ")}?`;
  const rest = names.length - namesShown;
  const listed = names.slice(0, namesShown).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
  return toolFailure(`there is no tool "${asked}".${hint} The tools are: ${listed === "" ? "none" : listed}.`);
}
