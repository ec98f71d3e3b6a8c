import { createInterface } from "node:readline/promises";
import type { PendingRequest } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { CodeAgentClient } from "../../sdk/index.ts";
import { askForm } from "./plan-form.ts";
import { type Page, shownWhole } from "./terminal.ts";

/** Asks the person at the terminal. @throws the reason of the signal. */
export type AskPerson = (question: string, signal: AbortSignal) => Promise<string>;

export interface ApprovalsOptions {
  readonly client: Pick<CodeAgentClient, "respondToRequest" | "listPendingRequests" | "getSession">;
  /** Where what is asked is shown in full; absent where a program reads. */
  readonly page: Page | undefined;
  /** Absent where nobody is there to be asked. */
  readonly askPerson: AskPerson | undefined;
  /** Allows everything without asking; questions are then left unanswered. */
  readonly yes: boolean;
  /** Takes what went wrong with an answer, as a sentence. */
  readonly complain: (message: string) => void;
}

const nobodyThere =
  "nobody is there to be asked: codeagent run has no terminal; with --yes it approves, and the session's permissions can allow it";

const nobodyToAnswer =
  "nobody is there to answer: codeagent run has no terminal, or was told to ask nothing; go on with what you know";

const tasksAtMost = 1000;

/** Answers what a turn asks while it is shown: one question after the other, as long as it waits. */
export class Approvals {
  readonly #options: ApprovalsOptions;
  readonly #open = new Map<string, AbortController>();
  #last: Promise<void> = Promise.resolve();
  #searches: Promise<void> = Promise.resolve();

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

  /** Waits until what was opened so far has been asked for. */
  async settled(): Promise<void> {
    await this.#last;
  }

  /** A task that a session handed over waits for an answer: it is asked for here too. */
  taskWaits(sessionId: string): void {
    this.#searches = this.#searches
      .then(async () => {
        for (const request of await this.#requestsOfTasks(sessionId))
          if (!this.#open.has(request.requestId)) this.opened(request);
      })
      .catch((error: unknown) => this.#options.complain(error instanceof Error ? error.message : String(error)));
  }

  async #requestsOfTasks(sessionId: string): Promise<readonly PendingRequest[]> {
    const { client } = this.#options;
    const { requests } = await client.listPendingRequests({ pageSize: tasksAtMost });
    const found: PendingRequest[] = [];
    for (const request of requests) {
      if (request.sessionId === sessionId || this.#open.has(request.requestId)) continue;
      // A one-off turn has no session, and is nobody's task here.
      const session = await client.getSession({ sessionId: request.sessionId }).catch(() => undefined);
      if (session?.metadata["parent_session_id"] === sessionId) found.push(request);
    }
    return found;
  }

  /** A request was answered, here or elsewhere. */
  resolved(requestId: string): void {
    this.#open.get(requestId)?.abort();
    this.#open.delete(requestId);
  }

  /** Asks nothing more. */
  async close(): Promise<void> {
    await this.#searches;
    for (const requestId of [...this.#open.keys()]) this.resolved(requestId);
    await this.#last;
  }

  async #answer(request: PendingRequest, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (request.kind === "client_tool") return; // for the client that runs such calls
    const { requestId, sessionId } = request;
    const isQuestion = request.kind === "question";
    const answer = isQuestion ? await this.#ask(request, signal) : await this.#decide(request, signal);
    await this.#options.client.respondToRequest({ sessionId, responses: [{ requestId, ...answer }] }, { signal });
  }

  async #ask(request: PendingRequest, signal: AbortSignal): Promise<{ decision: string; text?: string }> {
    const { yes, askPerson, page } = this.#options;
    if (yes || askPerson === undefined) return { decision: "deny", text: nobodyToAnswer };
    const { schema, prompt } = parsed(request.arguments);
    if (request.toolName === "user_input" && typeof schema === "string" && page !== undefined) {
      const form = { prompt: typeof prompt === "string" ? prompt : request.title, schema };
      return { decision: "answer", text: await askForm(form, askPerson, page, signal) };
    }
    const { options } = request;
    const several = isMultiple(request);
    for (const line of questionText(request).split(/\r?\n/)) {
      page?.endLine();
      page?.write(shownWhole(line), "bold");
    }
    page?.endLine();
    for (const [index, option] of options.entries()) {
      page?.write(`${index + 1}. ${shownWhole(option)}`);
      page?.endLine();
    }
    const numbers = options.length === 0 ? "" : several ? "numbers with commas between, or " : "a number, or ";
    const said = (await askPerson(`your answer (${numbers}words; nothing = no answer): `, signal)).trim();
    if (said === "") return { decision: "deny" };
    return { decision: "answer", text: chosen(said, options, several) };
  }

  async #decide(request: PendingRequest, signal: AbortSignal): Promise<{ decision: string; text?: string }> {
    const { yes, askPerson, page } = this.#options;
    if (yes) return { decision: "allow_once" };
    if (askPerson === undefined) return { decision: "deny", text: nobodyThere };
    page?.endLine();
    for (const line of callLines(request)) {
      page?.write(shownWhole(line), "bold");
      page?.endLine();
    }
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

/** The call in full: on one line, or where it has texts of several lines with each of these on a line of its own, marked. */
function callLines({ toolName, arguments: given }: PendingRequest): readonly string[] {
  const entries = Object.entries(parsed(given));
  const hasLines = (value: unknown): value is string => typeof value === "string" && /\n./s.test(value);
  if (!entries.some(([, value]) => hasLines(value))) return [`${toolName} ${given}`];
  const shown = entries.flatMap(([name, value]) =>
    hasLines(value)
      ? [`  ${name}:`, ...value.split("\n").map((line) => `  │ ${line}`)]
      : [`  ${name}: ${JSON.stringify(value)}`],
  );
  return [toolName, ...shown];
}

/** The question in full; of a request that does not hold it the line that stands for it. */
function questionText({ arguments: given, title }: PendingRequest): string {
  const { question } = parsed(given);
  return typeof question === "string" ? question : title;
}

function isMultiple({ arguments: given }: PendingRequest): boolean {
  return parsed(given)["multiple"] === true;
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

/** The options whose numbers were said, a line each; other words as they are. */
function chosen(said: string, options: readonly string[], several: boolean): string {
  const numbers = several ? said.split(",") : [said];
  const named = numbers.map((number) => options[/^\s*\d+\s*$/.test(number) ? Number(number) - 1 : -1]);
  return named.every((option) => option !== undefined) ? named.join("\n") : said;
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
