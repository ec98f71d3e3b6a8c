import { createInterface } from "node:readline/promises";
import type { PendingRequest } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { CodeAgentClient } from "../../sdk/index.ts";
import { type Page, shownWhole } from "./terminal.ts";

/** Asks the person at the terminal. @throws the reason of the signal. */
export type AskPerson = (question: string, signal: AbortSignal) => Promise<string>;

export interface ApprovalsOptions {
  readonly client: Pick<CodeAgentClient, "respondToRequest">;
  /** Where what is asked is shown in full; absent where a program reads. */
  readonly page: Page | undefined;
  /** Absent where nobody is there to be asked. */
  readonly askPerson: AskPerson | undefined;
  /** Allows everything without asking. */
  readonly yes: boolean;
  /** Takes what went wrong with an answer, as a sentence. */
  readonly complain: (message: string) => void;
}

const nobodyThere =
  "nobody is there to be asked: codeagent run has no terminal; with --yes it approves, and the session's permissions can allow it";

/** Answers what a turn asks while it is shown: one question after the other, as long as it waits. */
export class Approvals {
  readonly #options: ApprovalsOptions;
  readonly #open = new Map<string, AbortController>();
  #last: Promise<void> = Promise.resolve();

  constructor(options: ApprovalsOptions) {
    this.#options = options;
  }

  /** A request was opened. */
  opened(request: PendingRequest): void {
    const stop = new AbortController();
    this.#open.set(request.requestId, stop);
    this.#last = this.#last
      .then(() => this.#answer(request, stop.signal))
      .catch((error: unknown) => {
        if (!stop.signal.aborted) this.#options.complain(error instanceof Error ? error.message : String(error));
      });
  }

  /** A request was answered, here or elsewhere. */
  resolved(requestId: string): void {
    this.#open.get(requestId)?.abort();
    this.#open.delete(requestId);
  }

  /** Asks nothing more. */
  async close(): Promise<void> {
    for (const requestId of [...this.#open.keys()]) this.resolved(requestId);
    await this.#last;
  }

  async #answer(request: PendingRequest, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { requestId, sessionId } = request;
    const answer = await this.#decide(request, signal);
    await this.#options.client.respondToRequest({ sessionId, responses: [{ requestId, ...answer }] }, { signal });
  }

  async #decide(request: PendingRequest, signal: AbortSignal): Promise<{ decision: string; text?: string }> {
    const { yes, askPerson, page } = this.#options;
    if (yes) return { decision: "allow_once" };
    if (askPerson === undefined) return { decision: "deny", text: nobodyThere };
    page?.endLine();
    page?.write(`${request.toolName} ${shownWhole(request.arguments)}`, "bold");
    page?.endLine();
    page?.write(request.explanation, "dim");
    page?.endLine();
    for (;;) {
      const said = (
        await askPerson("run it? y = yes, n = no, a = always in this session, or say why not: ", signal)
      ).trim();
      switch (said.toLowerCase()) {
        case "y":
        case "yes":
          return { decision: "allow_once" };
        case "a":
        case "always":
          return { decision: "allow_session" };
        case "n":
        case "no":
          return { decision: "deny" };
        case "":
          continue;
        default:
          return { decision: "deny", text: said };
      }
    }
  }
}

/** The person at this terminal; `undefined` where there is none. */
export function personAt(
  input: NodeJS.ReadStream,
  output: NodeJS.WriteStream,
  onInterrupt: () => void,
): AskPerson | undefined {
  if (!input.isTTY || !output.isTTY) return undefined;
  return async (question, signal) => {
    const line = createInterface({ input, output });
    line.on("SIGINT", onInterrupt);
    const gone = new AbortController();
    line.once("close", () => gone.abort(new Error("the terminal was closed")));
    try {
      return await line.question(question, { signal: AbortSignal.any([signal, gone.signal]) });
    } finally {
      line.close();
    }
  };
}
