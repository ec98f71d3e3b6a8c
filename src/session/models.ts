import type { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { Feature } from "../chat/feature.ts";
import type { Message } from "../chat/message.ts";
import type { ChatRequest, TurnRequest } from "../chat/request.ts";
import type { Usage } from "../chat/usage.ts";

/** The models as a session sees them; `provider` stands behind it. */
export interface Models {
  /**
   * Finds the models of a name like `provider/model`, or of a list of such names with commas between: the first is asked,
   * and the next one when it cannot answer.
   * @throws {AgentError} `not_found` for an unknown provider, `failed_precondition` when one isn't configured,
   *   `invalid_request` for a list with empty entries.
   */
  find(names: string): readonly [Model, ...Model[]];
}

export interface Model {
  /** Id of the provider. */
  readonly provider: string;
  /** The model's own name. */
  readonly model: string;
  /** Wire family. */
  readonly dialect: string;
  /** What it can be asked for. */
  readonly features: readonly Feature[];
  /** Why it cannot be asked now, after it failed again and again, and when it can; undefined when it can. */
  refusal(): AgentError | undefined;
  /** Whether a message holds reasoning that this model is not shown because another one wrote it. */
  withholds(message: Message): boolean;
  /**
   * Refuses what it cannot be asked at all: content of new messages that it cannot read, options it has no form for.
   * @throws {AgentError} `invalid_request` that names the field.
   */
  check(request: Pick<TurnRequest, "messages" | "tools" | "options">): void;
  /** How many tokens it reads and writes at most in one call, where that is known. Never fails. */
  contextWindow(): Promise<number | undefined>;
  /** Whether it is known what the model costs. Never fails. */
  hasPrice(): Promise<boolean>;
  /** The usage of one call with what it costs, where that is known. Never fails. */
  priced(usage: Usage): Promise<Usage>;
  /**
   * Asks the model and streams its answer, the events of one upstream read at a time. Leaving early closes the request.
   * @param signal aborts the request; the generator then throws the signal's reason.
   * @param hasOthers another model can be asked, so that a provider that wants to be waited for is not
   */
  stream(request: ChatRequest, signal: AbortSignal, hasOthers: boolean): AsyncIterable<readonly ChatEvent[]>;
}

/** The models of a turn, the one that was asked last first, since that one can read its own reasoning. */
export function inOrder(
  models: readonly [Model, ...Model[]],
  asked: Pick<Model, "provider" | "model"> | undefined,
): readonly Model[] {
  const last = models.findIndex(({ provider, model }) => provider === asked?.provider && model === asked.model);
  return last <= 0 ? models : [...models.slice(last), ...models.slice(0, last)];
}

/** As `GenerateRequest.model` names it. */
export function fullName({ provider, model }: Pick<Model, "provider" | "model">): string {
  return `${provider}/${model}`;
}
