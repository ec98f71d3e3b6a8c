import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { create, toJson } from "@bufbuild/protobuf";
import { GenerateChunkSchema, GenerateRequestSchema, type Session } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { type CodeAgentClient, streamTurn } from "../../sdk/index.ts";
import { Approvals, personAt } from "./approvals.ts";
import { readStdin } from "./read-stdin.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openService } from "./service.ts";
import { onStopSignal } from "./stop-signals.ts";
import { jsonLine, oneLine, type Page, pageOn, whenWritable } from "./terminal.ts";
import { TurnPrinter } from "./turn-printer.ts";

export interface RunFlags extends ConnectionFlags {
  readonly session?: string;
  readonly json?: boolean;
  /** Approves what the agent asks for. */
  readonly yes?: boolean;
}

const promptLimitBytes = 8 * 1024 * 1024;
const titleCharacters = 80;

/**
 * Runs one turn and shows it. Ctrl-C cancels the turn; a second one ends the process without waiting for that. What has to
 * be approved is asked of the person at the terminal; where there is none it is denied, unless `--yes` says otherwise.
 * @param given the prompt, or `-` to read it from stdin
 * @returns the exit code: 0 when the turn came to its own end.
 * @throws {Error} one sentence, when the turn can't be begun or followed.
 */
export async function run(given: string, flags: RunFlags, taken: TakenEnvironment): Promise<number> {
  const prompt = given === "-" ? await readStdin("the prompt", promptLimitBytes) : given;
  if (prompt.trim() === "") throw new Error("the prompt is empty; say what is to be done");
  await using service = await openService(flags, taken);
  const { client } = service;
  const { sessionId, workspace } =
    flags.session === undefined
      ? await newSession(client, prompt, service.own ? undefined : flags.workspace)
      : await client.getSession({ sessionId: flags.session });
  const cancel = new Cancel(client, sessionId);
  const onStop = (again: boolean) => {
    if (again) void service.leave().finally(() => process.exit(1));
    else cancel.ask();
  };
  const restore = onStopSignal(onStop, "stop");
  process.stdout.on("error", () => cancel.ask());
  const page = pageOn(process.stdout);
  const approvals = new Approvals({
    client,
    page: flags.json === true ? undefined : page,
    askPerson: flags.json === true ? undefined : personAt(process.stdin, process.stdout, () => cancel.ask()),
    yes: flags.yes === true,
    complain: (message) => void process.stderr.write(`codeagent: ${taken.redactor.redact(message)}\n`),
  });
  // Another server works in a folder of its own, which need not be the one we are in.
  if (!service.own && flags.json !== true) page.write(`in ${workspace}, by ${service.url}\n`, "dim");
  let begun = false;
  try {
    const request = create(GenerateRequestSchema, {
      sessionId,
      messages: [{ role: "user", contentType: { case: "content", value: prompt } }],
      model: service.own ? "" : (flags.model ?? ""),
    });
    let finishReason = "";
    const printer = new TurnPrinter(page);
    for await (const chunk of streamTurn(client, request)) {
      begun = true;
      if (chunk.turnId !== "") cancel.turnIs(chunk.turnId);
      if (flags.json === true) page.write(jsonLine(toJson(GenerateChunkSchema, chunk)));
      else printer.add(chunk);
      if (chunk.event.case === "requestOpened" && chunk.event.value.request !== undefined)
        approvals.opened(chunk.event.value.request);
      else if (chunk.event.case === "notice" && chunk.event.value.code === "TASK_WAITS") approvals.taskWaits(sessionId);
      else if (chunk.event.case === "requestResolved") approvals.resolved(chunk.event.value.requestId);
      await whenWritable(process.stdout);
      if (chunk.event.case === "turnFinished") finishReason = chunk.event.value.finishReason;
    }
    if (flags.json !== true) sayHowToGoOn(page, sessionId);
    return ["error", "cancelled", ""].includes(finishReason) ? 1 : 0;
  } catch (error) {
    // A session made for a turn that was refused would only be in the way.
    if (!begun && flags.session === undefined) await client.deleteSession({ sessionId }).catch(() => undefined);
    throw error;
  } finally {
    await approvals.close();
    page.endLine();
    restore();
  }
}

/** Cancels a turn as soon as its id is known. */
class Cancel {
  readonly #client: CodeAgentClient;
  readonly #sessionId: string;
  #turnId = "";
  #asked = false;
  #sent = false;

  constructor(client: CodeAgentClient, sessionId: string) {
    this.#client = client;
    this.#sessionId = sessionId;
  }

  ask(): void {
    this.#asked = true;
    this.#send();
  }

  turnIs(turnId: string): void {
    this.#turnId = turnId;
    this.#send();
  }

  #send(): void {
    if (!this.#asked || this.#sent || this.#turnId === "") return;
    this.#sent = true;
    // If it fails, the turn goes on in sight; a second Ctrl-C still ends the process.
    this.#client
      .cancelTurn({ sessionId: this.#sessionId, turnId: this.#turnId, requestId: randomUUID() })
      .catch(() => undefined);
  }
}

async function newSession(client: CodeAgentClient, prompt: string, workspace: string | undefined): Promise<Session> {
  return client.createSession({
    title: oneLine(prompt, titleCharacters),
    workspace: workspace === undefined ? "" : resolve(workspace),
    requestId: randomUUID(),
  });
}

function sayHowToGoOn(page: Page, sessionId: string): void {
  page.endLine();
  page.write(`session ${sessionId}`, "dim");
  page.endLine();
}
