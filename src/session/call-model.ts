import { AgentError, CutAnswerError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { LogEvent } from "../chat/log-event.ts";
import type { ContentBlock, Message } from "../chat/message.ts";
import type { ChatRequest, ToolDefinition } from "../chat/request.ts";
import type { Usage } from "../chat/usage.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { withoutUnseen } from "./admission.ts";
import { compactTooLong } from "./compaction.ts";
import { modelOptions } from "./model-options.ts";
import { fullName, inOrder, type Model } from "./models.ts";
import { orderBlocks } from "./order-blocks.ts";
import { FencedError } from "./owned-log.ts";
import { profileOf } from "./profile.ts";
import { finishReasonOf, type RunningSession, record, StoppedError } from "./run-turn.ts";
import type { TurnState } from "./state.ts";
import { mayCall, strategyPrompt, withStrategy } from "./strategy.ts";
import { validHistory } from "./valid-history.ts";

/** Events that may wait for their commit before the model is read no further. */
const maxWaitingEvents = 1024;

/**
 * One step of a turn: asks the model and records what it says, as it says it. An answer that is cut after nothing but
 * text and thinking was shown is asked for once more, as a new attempt; where the turn has other models and this one is
 * not to be had, the next one is asked, as a new attempt too. Any other answer that breaks off is recorded as far as it
 * came, with a `step-finished` that says so.
 * @throws what broke the answer off.
 */
export async function callModel(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { step, attempt }: { readonly step: number; readonly attempt: number },
  signal: AbortSignal,
): Promise<void> {
  const lastResponseId = turn.answer?.responseId ?? "";
  const call = { session, turn, functions, step, signal };
  const named = session.environment.models.find(turn.model);
  const models = inOrder(named, turn.asked);
  // The model that the options mean, or whose answer the turn goes on from.
  const own = step === 1 ? named[0] : models[0];
  let mayAskAgain = session.environment.limits.retryCutAnswers;
  let nextAttempt = attempt;
  let unanswered: AgentError | undefined;
  let voidedUsage: Usage | undefined;
  throwIfNoneCanBeAsked(models);
  for (const [index, model] of models.entries()) {
    const hasOthers = index < models.length - 1;
    const refusal = model.refusal();
    if (refusal !== undefined && (hasOthers || unanswered !== undefined)) {
      unanswered ??= refusal;
      continue;
    }
    if (index > 0 && unanswered !== undefined) tellOfFallback(call, model, unanswered);
    for (;;) {
      // An answer that the provider keeps has the whole history before it.
      const responseId = turn.compactedStep === step ? "" : lastResponseId;
      const asking = { lastResponseId: responseId, isOwn: model === own, model, attempt: nextAttempt };
      const outcome = await askModel({ ...call, ...asking, voidedUsage, mayAskAgain, hasOthers });
      if (outcome === "finished") return;
      nextAttempt++;
      voidedUsage = outcome === "compacted" ? undefined : outcome.usage;
      if (outcome === "compacted") continue;
      if (outcome.next === "another") {
        unanswered = outcome.error;
        break;
      }
      mayAskAgain = false;
    }
  }
  if (unanswered !== undefined) throw unanswered;
}

/** An attempt that the next one voids. */
interface Voided {
  readonly next: "again" | "another";
  readonly error: AgentError;
  /** What it used, where the provider said so. */
  readonly usage: Usage | undefined;
}

/** With every model left alone for a while, the one that may be asked soonest says when. */
function throwIfNoneCanBeAsked(models: readonly Model[]): void {
  const refusals = models.flatMap((model) => model.refusal() ?? []);
  if (refusals.length < models.length) return;
  const [soonest] = refusals.toSorted((one, other) => (one.retryAfterMs ?? 0) - (other.retryAfterMs ?? 0));
  if (soonest !== undefined) throw soonest;
}

interface ModelCall {
  readonly session: RunningSession;
  readonly turn: TurnState;
  readonly functions: FunctionIndex;
  readonly model: Model;
  readonly step: number;
  readonly attempt: number;
  /** The provider's id of the answer before this one in the turn. */
  readonly lastResponseId: string;
  /** The model is the one whose answer that was, or that the turn's options mean. */
  readonly isOwn: boolean;
  /** What the attempt used that this one voids. */
  readonly voidedUsage: Usage | undefined;
  /** Whether a cut answer may be left as it is, for another attempt to void it. */
  readonly mayAskAgain: boolean;
  /** Whether another model may be asked when this one is not to be had. */
  readonly hasOthers: boolean;
  readonly signal: AbortSignal;
}

function tellOfFallback({ session, turn }: Pick<ModelCall, "session" | "turn">, model: Model, why: AgentError): void {
  record(session, turn.turnId, {
    type: "notice",
    level: "warning",
    code: "MODEL_FALLBACK",
    message: `${fullName(model)} is asked instead: ${why.message}`,
  });
}

/**
 * @returns `compacted` for an answer to be asked for again over a shorter history, else what has to be asked for again.
 */
async function askModel(call: ModelCall): Promise<"finished" | "compacted" | Voided> {
  const { session, turn, model, step, attempt, signal } = call;
  const { provider, dialect } = model;
  const lastAsked = session.state.asked;
  record(session, turn.turnId, {
    type: "step-started",
    step,
    attempt,
    model: model.model,
    provider,
    ...(call.voidedUsage === undefined ? {} : { voidedUsage: call.voidedUsage }),
  });
  const order = orderBlocks({ provider, model: model.model, dialect }, uniqueCallIds(session));
  let finish: Finish = { finishReason: "stop", rawFinishReason: "" };
  let usage: Usage | undefined;
  let responseId: string | undefined;
  let upstreamRequestId: string | undefined;
  const shown = new Set<ContentBlock["type"]>();
  const show = (events: readonly LogEvent[]) => {
    for (const event of events) {
      if (event.type === "block-start") shown.add(event.blockType);
      record(session, turn.turnId, event);
    }
    session.writer.attach({ blobs: order.takeBlobs() });
  };
  const finishStep = async () => {
    const priced = usage === undefined ? undefined : await model.priced(usage);
    record(session, turn.turnId, {
      type: "step-finished",
      step,
      attempt,
      ...finish,
      ...(priced === undefined ? {} : { usage: priced }),
      ...(responseId === undefined ? {} : { responseId }),
      ...(upstreamRequestId === undefined ? {} : { upstreamRequestId }),
    });
  };
  try {
    const history = validHistory(await session.withContent(session.state.messages));
    const messages = withoutUnseen(history, model.features);
    if (fullName(model) !== (lastAsked === undefined ? "" : fullName(lastAsked)))
      tellWhatIsWithheld(call, history, messages);
    const request: ChatRequest = {
      model: model.model,
      messages: withSystemPrompt(messages, session, turn),
      ...withStrategy(
        turn,
        model.features.includes("tools") ? offeredTools(turn, call.functions) : [],
        modelOptions(turn.options, step, call.lastResponseId, call.isOwn),
      ),
    };
    for await (const events of model.stream(request, signal, call.hasOthers)) {
      for (const event of events) {
        if (event.type === "usage") usage = event.usage;
        else if (event.type === "finish") {
          const { type: _, ...said } = event;
          finish = said;
        } else if (event.type === "response") {
          responseId = event.id ?? responseId;
          upstreamRequestId = event.upstreamRequestId ?? upstreamRequestId;
        }
      }
      show(order.push(events));
      if (session.writer.waiting > maxWaitingEvents) await session.writer.flushed();
    }
    show(order.finish());
    await finishStep();
    return "finished";
  } catch (error) {
    if (error instanceof FencedError || error instanceof StoppedError) throw error;
    if (error instanceof AgentError && isRepeatable(shown)) {
      const next = nextAsked(call, error);
      if (next !== undefined) return { next, error, usage: usage && (await model.priced(usage)) };
      if (error.kind === "context_length" && (await compactTooLong(session, turn, model, signal))) return "compacted";
    }
    show(order.finish());
    const reason = finishReasonOf(error);
    finish = { finishReason: reason === "budget" ? "cancelled" : reason, rawFinishReason: "" };
    await finishStep();
    throw error;
  }
}

/** Who is asked again for an answer that has not come; undefined for nobody. */
function nextAsked({ mayAskAgain, hasOthers }: ModelCall, error: AgentError): Voided["next"] | undefined {
  if (mayAskAgain && error instanceof CutAnswerError) return "again";
  return hasOthers && (error.kind === "provider_unavailable" || error.kind === "rate_limited") ? "another" : undefined;
}

/** What was shown can be said again by another attempt: no call has been named. */
function isRepeatable(shown: ReadonlySet<ContentBlock["type"]>): boolean {
  const repeatable: readonly ContentBlock["type"][] = ["text", "thinking", "redacted_thinking", "reasoning"];
  return [...shown].every((type) => repeatable.includes(type));
}

/** Says, when the session asks another model than before, what of the history that model is not shown. */
function tellWhatIsWithheld(
  { session, turn, model }: ModelCall,
  history: readonly Message[],
  sent: readonly Message[],
): void {
  const tell = (code: string, message: string) =>
    record(session, turn.turnId, { type: "notice", level: "info", code, message });
  const foreign = history.filter((message) => model.withholds(message)).length;
  if (foreign > 0) {
    const messages = foreign === 1 ? "1 message" : `${foreign} messages`;
    tell(
      "REASONING_WITHHELD",
      `reasoning in ${messages} was written by another model and is not sent to ${fullName(model)}; its author gets it again`,
    );
  }
  const unseen = sent.filter((message, index) => message !== history[index]).length;
  if (unseen > 0) {
    const messages = unseen === 1 ? "1 message" : `${unseen} messages`;
    tell(
      "CONTENT_WITHHELD",
      `images, sound or files in ${messages} are left out, since ${fullName(model)} can't read them`,
    );
  }
}

type Finish = Omit<Extract<ChatEvent, { type: "finish" }>, "type">;

/** Gives a call its own id where the model gave none, or one that the session has seen. */
function uniqueCallIds({ state, environment }: RunningSession): (wanted: string) => string {
  const used = new Set<string>();
  for (const message of state.messages) {
    for (const block of message.blocks) if (block.type === "tool_use") used.add(block.id);
  }
  return (wanted) => {
    const id = wanted === "" || used.has(wanted) ? environment.newId("call") : wanted;
    used.add(id);
    return id;
  };
}

function withSystemPrompt(
  messages: readonly Message[],
  { config, environment }: RunningSession,
  turn: TurnState,
): readonly Message[] {
  const hasOwn = messages.some((message) => message.role === "system" || message.role === "developer");
  const own = profileOf(environment.profiles, turn.options)?.systemPrompt || config.systemPrompt;
  const whole = own !== "" ? own : hasOwn ? "" : environment.systemPrompt;
  const prompt = [whole, strategyPrompt(turn)].filter((part) => part !== "").join("\n\n");
  return prompt === "" ? messages : [{ role: "system", blocks: [{ type: "text", text: prompt }] }, ...messages];
}

function offeredTools(turn: TurnState, functions: FunctionIndex): ToolDefinition[] {
  const clients = new Set(turn.clientTools.map((tool) => tool.name));
  const ours = functions.definitions.filter(({ name }) => !clients.has(name) && mayCall(turn, name));
  return [...turn.clientTools, ...ours];
}
