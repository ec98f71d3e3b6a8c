import type { GenerateOptions, ModelOptions } from "../chat/request.ts";

/**
 * A turn's options as they are for one of its model calls. A forced tool is forced once: forced at every step, the turn
 * could never end. A response to go on from is from the second step on the one of the step before; where that is not
 * kept, or not known, the history goes along instead.
 *
 * @param step counts from 1.
 * @param lastResponseId the provider's id of the step before; empty where it is not known.
 * @param isAsked whether the model is the one that the options mean, or that answered before: only it knows the response
 *   to go on from.
 */
export function modelOptions(
  turnOptions: GenerateOptions,
  step: number,
  lastResponseId: string,
  isAsked: boolean,
): ModelOptions {
  const {
    maxSteps: _steps,
    budget: _budget,
    allowedTools: _tools,
    timeoutMs: _timeout,
    metadata: _metadata,
    strategy: _strategy,
    profile: _profile,
    ...options
  } = turnOptions;
  if (step === 1) return isAsked ? options : withoutResponse(options);
  const forced = options.toolChoice !== undefined && options.toolChoice !== "auto" && options.toolChoice !== "none";
  const once = forced ? { ...options, toolChoice: "auto" } : options;
  if (options.stateful?.previousResponseId === undefined) return once;
  const goesOn = options.stateful.store !== false && lastResponseId !== "" && isAsked;
  return goesOn
    ? { ...once, stateful: { ...options.stateful, previousResponseId: lastResponseId } }
    : withoutResponse(once);
}

function withoutResponse(options: ModelOptions): ModelOptions {
  if (options.stateful?.previousResponseId === undefined) return options;
  const { previousResponseId: _, ...stateful } = options.stateful;
  return { ...options, stateful };
}
