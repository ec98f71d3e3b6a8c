import { randomUUID } from "node:crypto";
import {
  type CallToolResult,
  CLIENT_CAPABILITIES_META_KEY,
  type InputRequiredResult,
  inputRequired,
  inputResponse,
  SdkError,
  SdkErrorCode,
  type ServerContext,
} from "@modelcontextprotocol/server";
import {
  Code,
  type CodeAgentClient,
  codeAgentErrorFrom,
  followSession,
  type ResumeOptions,
  streamTurn,
} from "../../sdk/index.ts";
import type { GenerateChunk, PendingRequest, TurnFinished } from "../../sdk/proto.ts";
import { oneLine } from "../cli/terminal.ts";
import { parsedObject } from "../convert/parsed-object.ts";
import { boundedText } from "../tool/bounded-text.ts";
import { type Answer, answerFrom, canAsk, formFor, isForPeople, nobodyToAsk } from "./ask-client.ts";
import { argumentsOf, BadArguments, failure, textIn } from "./tool-input.ts";
import { TurnLines } from "./turn-lines.ts";

export interface RunAgentOptions {
  readonly client: CodeAgentClient;
  /** How a lost connection to the server is got back. */
  readonly resume: ResumeOptions;
  /** Fires when the MCP server ends: what is then cut off is left to go on, and not cancelled. */
  readonly stopping: AbortSignal;
  /** What the client said at the beginning of the connection, where it did. */
  readonly capabilities: () => unknown;
}

export const runAgentSchema = {
  type: "object",
  properties: {
    prompt: { type: "string", minLength: 1, description: "What is to be done, or asked, in words." },
    session_id: { type: "string", minLength: 1, description: "Go on with this session; without it a new one begins." },
    model: {
      type: "string",
      minLength: 1,
      description: "The model to ask, as provider/model; without it the default.",
    },
    workspace: {
      type: "string",
      minLength: 1,
      description: "Folder that a new session works in; without it the server's own.",
    },
  },
  required: ["prompt"],
  additionalProperties: false,
} as const;

const count = { type: "integer", minimum: 0 } as const;

export const runAgentOutput = {
  type: "object",
  properties: {
    session_id: { type: "string" },
    turn_id: { type: "string" },
    finish_reason: { type: "string" },
    steps: { ...count, description: "Model calls." },
    usage: {
      type: "object",
      properties: { input_tokens: count, output_tokens: count, cost_nano_usd: { type: "integer" } },
    },
  },
  required: ["session_id", "turn_id", "finish_reason", "steps", "usage"],
} as const;

const answerBytes = 256 * 1024;
const titleCharacters = 80;
const answerKey = "answer";

/** A turn that waits for the client's user: what comes back with the answer. It holds nothing its holder may not ask for. */
interface WaitingTurn {
  readonly sessionId: string;
  readonly turnId: string;
  readonly requestId: string;
  readonly afterSeq: string;
  /** How often progress was told. */
  readonly told: number;
  readonly kind: string;
  readonly options: readonly string[];
}

/** A turn that is being read. */
interface Reading {
  readonly sessionId: string;
  readonly chunks: AsyncIterable<GenerateChunk>;
  /** Stops reading; the turn goes on. */
  leave(): Promise<unknown>;
  cancel(): Promise<unknown>;
}

/**
 * Runs a turn, or goes on with one whose question the client has answered. Where the turn asks its user something, the
 * result is a form for that client; the library sees to how it gets there and comes back with the answer. A client that has
 * no forms has its questions denied. A cancelled call cancels the turn; a client that is gone leaves it running.
 * @throws {BadArguments} and what the client of the service throws.
 */
export async function runAgent(
  given: unknown,
  context: ServerContext,
  options: RunAgentOptions,
): Promise<CallToolResult | InputRequiredResult> {
  const { client, resume } = options;
  const { signal } = context.mcpReq;
  const waiting = waitingFrom(context.mcpReq.requestState());
  const reading =
    waiting === undefined
      ? await beginTurn(client, argumentsOf("run_agent", runAgentSchema, given), resume)
      : await goOn(
          client,
          waiting,
          answerFrom(inputResponse(context.mcpReq.inputResponses, answerKey), waiting),
          resume,
        );
  const { sessionId } = reading;
  const stop = () => void (isCancelled(context, options) ? reading.cancel() : reading.leave()).catch(() => undefined);
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  let told = waiting?.told ?? 0;
  const lines = new TurnLines((message) => tell(context, ++told, message));
  const answer = new Map<number, string>();
  let turnId = waiting?.turnId ?? "";
  try {
    for await (const chunk of reading.chunks) {
      turnId ||= chunk.turnId;
      lines.add(chunk);
      const { event } = chunk;
      if (event.case === "stepStarted") answer.clear();
      if (event.case === "blockStop") {
        const block = event.value.block?.block;
        if (block?.case === "text") answer.set(event.value.index, block.value.text);
      }
      if (event.case === "turnFinished")
        return resultOf(event.value, [...answer.values()].join("\n\n"), sessionId, turnId);
      if (event.case !== "requestOpened" || event.value.request === undefined) continue;
      const { request } = event.value;
      if (!isForPeople(request) || !(await isOpen(client, request))) continue;
      if (!canAsk(capabilitiesOf(context, options))) {
        await respond(client, request, nobodyToAsk);
        continue;
      }
      cancelWhileAsking(client, { sessionId, turnId }, context, options);
      const { requestId, kind } = request;
      const state: WaitingTurn = {
        sessionId,
        turnId,
        requestId,
        afterSeq: `${chunk.seq}`,
        told,
        kind,
        options: request.options,
      };
      return inputRequired({ inputRequests: { [answerKey]: formFor(request) }, requestState: JSON.stringify(state) });
    }
    return failure(`the turn was left; get_session shows what becomes of session ${sessionId}`);
  } finally {
    signal.removeEventListener("abort", stop);
    lines.close();
    await reading.leave();
  }
}

async function beginTurn(
  client: CodeAgentClient,
  given: Readonly<Record<string, unknown>>,
  resume: ResumeOptions,
): Promise<Reading> {
  const prompt = textIn(given, "prompt");
  const named = textIn(given, "session_id");
  const model = textIn(given, "model");
  const workspace = textIn(given, "workspace");
  if (prompt.trim() === "") throw new BadArguments("the prompt is blank; say what is to be done");
  if (named !== "" && workspace !== "")
    throw new BadArguments("workspace is for new sessions; leave it out, or leave session_id out");
  const made =
    named === ""
      ? await client.createSession({
          title: oneLine(prompt, titleCharacters),
          workspace,
          model,
          requestId: randomUUID(),
        })
      : undefined;
  const sessionId = made?.sessionId ?? named;
  const messages = [{ role: "user", contentType: { case: "content" as const, value: prompt } }];
  const stream = streamTurn(client, { sessionId, messages, model: made === undefined ? model : "" }, resume);
  const discard = async () => {
    // A session made for a turn that was refused would only be in the way.
    if (made !== undefined) await client.deleteSession({ sessionId, requestId: randomUUID() }).catch(() => undefined);
  };
  return {
    sessionId,
    chunks: fromTheBeginning(stream, discard),
    leave: () => stream.return(),
    cancel: () => stream.abort(),
  };
}

async function* fromTheBeginning(
  chunks: AsyncIterable<GenerateChunk>,
  discard: () => Promise<void>,
): AsyncGenerator<GenerateChunk> {
  let begun = false;
  try {
    for await (const chunk of chunks) {
      begun = true;
      yield chunk;
    }
  } catch (error) {
    if (!begun) await discard();
    throw error;
  }
}

async function goOn(
  client: CodeAgentClient,
  waiting: WaitingTurn,
  answer: Answer,
  resume: ResumeOptions,
): Promise<Reading> {
  const { sessionId, turnId, afterSeq } = waiting;
  await respond(client, waiting, answer);
  const stream = followSession(client, { sessionId, afterSeq: BigInt(afterSeq) }, resume);
  return {
    sessionId,
    chunks: ofTurn(stream, turnId),
    leave: () => stream.return(),
    async cancel() {
      await client.cancelTurn({ sessionId, turnId, requestId: randomUUID() });
      await stream.return();
    },
  };
}

async function* ofTurn(chunks: AsyncIterable<GenerateChunk>, turnId: string): AsyncGenerator<GenerateChunk> {
  for await (const chunk of chunks) if (chunk.turnId === turnId) yield chunk;
}

/** Answers a request. That somebody else was first is no failure: the turn goes on with their answer. */
async function respond(
  client: CodeAgentClient,
  { sessionId, requestId }: Pick<PendingRequest, "sessionId" | "requestId">,
  answer: Answer,
): Promise<void> {
  try {
    await client.respondToRequest({ sessionId, responses: [{ requestId, ...answer }] });
  } catch (error) {
    const { code } = codeAgentErrorFrom(error);
    if (code !== Code.FailedPrecondition && code !== Code.NotFound) throw error;
  }
}

/** Whether nobody has answered yet; what is read may be long past. */
async function isOpen(client: CodeAgentClient, { sessionId, requestId }: PendingRequest): Promise<boolean> {
  const { requests } = await client.listPendingRequests({ sessionId, pageSize: 1000 });
  return requests.some((request) => request.requestId === requestId);
}

/** While a form is shown no turn is read, so a cancelled call has to be heard of here. */
function cancelWhileAsking(
  client: CodeAgentClient,
  turn: { readonly sessionId: string; readonly turnId: string },
  context: ServerContext,
  options: RunAgentOptions,
): void {
  const onAbort = () => {
    if (!isCancelled(context, options)) return;
    client.cancelTurn({ ...turn, requestId: randomUUID() }).catch(() => undefined);
  };
  // A client of the newer protocol asks its user between two requests: there is nothing to cancel then.
  if (context.mcpReq.envelope === undefined) context.mcpReq.signal.addEventListener("abort", onAbort, { once: true });
}

/**
 * Whether a call that ends early was cancelled, rather than cut off. The newer protocol cancels a call over HTTP by closing
 * its stream (modelcontextprotocol.io, "Cancellation").
 */
function isCancelled({ mcpReq, http }: ServerContext, { stopping }: RunAgentOptions): boolean {
  if (stopping.aborted) return false;
  const reason: unknown = mcpReq.signal.reason;
  const isCutOff = reason instanceof SdkError && reason.code === SdkErrorCode.ConnectionClosed;
  return !isCutOff || (http !== undefined && mcpReq.envelope !== undefined);
}

function capabilitiesOf({ mcpReq }: ServerContext, { capabilities }: RunAgentOptions): unknown {
  const { envelope } = mcpReq;
  const inRequest = new Map(Object.entries(envelope ?? {}));
  return envelope === undefined ? capabilities() : inRequest.get(CLIENT_CAPABILITIES_META_KEY);
}

function tell({ mcpReq }: ServerContext, progress: number, message: string): void {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  // Whoever does not hear it any more does not miss it.
  mcpReq
    .notify({ method: "notifications/progress", params: { progressToken, progress, message } })
    .catch(() => undefined);
}

function resultOf(finished: TurnFinished, answer: string, sessionId: string, turnId: string): CallToolResult {
  const { finishReason, steps, usage, error } = finished;
  const used: Record<string, number> = {};
  if (usage?.inputTokens !== undefined) used["input_tokens"] = Number(usage.inputTokens);
  if (usage?.outputTokens !== undefined) used["output_tokens"] = Number(usage.outputTokens);
  if (usage?.costNanoUsd !== undefined) used["cost_nano_usd"] = Number(usage.costNanoUsd);
  const structuredContent = { session_id: sessionId, turn_id: turnId, finish_reason: finishReason, steps, usage: used };
  const isFailed = finishReason === "error" || finishReason === "cancelled";
  const said = isFailed ? `the turn ended: ${error?.message ?? finishReason}` : boundedText(answer, answerBytes).text;
  return {
    content: [
      { type: "text", text: said === "" ? `(no answer in words; the turn ended: ${finishReason})` : said },
      { type: "text", text: `session_id: ${sessionId}` },
    ],
    structuredContent,
    ...(isFailed ? { isError: true } : {}),
  };
}

/** @throws {BadArguments} for what this server can't have said. */
function waitingFrom(state: unknown): WaitingTurn | undefined {
  if (state === undefined) return undefined;
  const read = typeof state === "string" ? parsedObject(state) : undefined;
  const { sessionId, turnId, requestId, afterSeq, told, kind, options } = read ?? {};
  const isSeq = typeof afterSeq === "string" && /^\d{1,19}$/.test(afterSeq);
  if (!isText(sessionId) || !isText(turnId) || !isText(requestId) || !isSeq || !isText(kind))
    throw new BadArguments("requestState is not what this server gave; begin the call anew");
  return {
    sessionId,
    turnId,
    requestId,
    afterSeq,
    told: typeof told === "number" ? told : 0,
    kind,
    options: Array.isArray(options) ? options.filter(isText) : [],
  };
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length < 4096;
}
