import type { ChatEvent } from "../chat/event.ts";
import type { ChatRequest } from "../chat/request.ts";

/** The models as a session sees them; `provider` stands behind it. */
export interface Models {
  /**
   * Finds the model of a name like `provider/model`.
   * @throws {AgentError} `not_found` for an unknown provider, `failed_precondition` when it isn't configured.
   */
  find(name: string): Model;
}

export interface Model {
  /** Id of the provider. */
  readonly provider: string;
  /** The model's own name. */
  readonly model: string;
  /** Wire family. */
  readonly dialect: string;
  /**
   * Asks the model and streams its answer, the events of one upstream read at a time. Leaving early closes the request.
   * @param signal aborts the request; the generator then throws the signal's reason.
   */
  stream(request: ChatRequest, signal: AbortSignal): AsyncIterable<readonly ChatEvent[]>;
}
