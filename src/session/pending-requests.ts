import { invalidField } from "../chat/error.ts";
import type { PendingRequest, RequestAnswer } from "../chat/log-event.ts";
import type { ToolResult } from "../chat/tool-result.ts";
import { decodeRequestAnswer } from "../convert/proto/event.ts";
import type { Store, StoredSession } from "../log/store.ts";
import { boundedResult, toolDecisions } from "./hand-over.ts";
import { logRecordFrom } from "./load-state.ts";
import type { OneOffTurn } from "./one-off-turn.ts";
import type { OneOffTurns } from "./one-off-turns.ts";
import { questionDecisions } from "./questions.ts";
import { requestHash } from "./request-hash.ts";
import { resolvedOtherwise, unknownRequest, unknownSession } from "./session-errors.ts";
import { answerEntry, answerKey } from "./session-worker.ts";
import { decodeSummary, type RequestReference } from "./summary.ts";
import type { Workers } from "./workers.ts";

/** A pending request with where it waits. */
export interface WaitingRequest {
  readonly request: PendingRequest;
  readonly sessionId: string;
  readonly turnId: string;
  /** In milliseconds since 1970. */
  readonly openedMs: number;
}

/** Where a list of pending requests goes on. */
export interface RequestPosition {
  /** Since when the session of the last request waits, in milliseconds since 1970. */
  readonly waitingSinceMs: number;
  readonly sessionId: string;
  readonly requestId: string;
}

export interface GivenAnswer {
  readonly requestId: string;
  readonly decision: string;
  readonly text: string;
  readonly toolResult?: ToolResult;
}

/** The decisions a request for approval takes. */
const approvalDecisions: readonly string[] = ["allow_once", "allow_session", "deny"];

const pageBytes = 6 * 1024 * 1024;
const historyPage = 1024;

/** A session in which something waits. */
interface Waiting {
  readonly sessionId: string;
  readonly waitingSinceMs: number;
  /** In the order they were opened. */
  readonly requests: readonly { readonly requestId: string; read(): Promise<WaitingRequest | undefined> }[];
}

/** What waits for people: lists it and brings their answers in. */
export class PendingRequests {
  readonly #store: Store;
  readonly #now: () => number;
  readonly #workers: Workers;
  readonly #oneOffs: OneOffTurns;

  constructor(store: Store, now: () => number, workers: Workers, oneOffs: OneOffTurns) {
    this.#store = store;
    this.#now = now;
    this.#workers = workers;
    this.#oneOffs = oneOffs;
  }

  /** As `Sessions.pendingRequests`. */
  async list(tenant: string, sessionId: string, after: RequestPosition | undefined, limit: number) {
    const page: WaitingRequest[] = [];
    let last = after;
    let bytes = 0;
    for await (const waiting of this.#waiting(tenant, sessionId, after)) {
      for (const reference of notBefore(waiting, after)) {
        if (page.length >= limit || bytes > pageBytes) return { requests: page, next: last };
        const found = await reference.read();
        if (found === undefined) continue; // answered meanwhile
        page.push(found);
        bytes += 2 * (found.request.arguments?.length ?? 0);
        last = {
          waitingSinceMs: waiting.waitingSinceMs,
          sessionId: waiting.sessionId,
          requestId: reference.requestId,
        };
      }
    }
    return { requests: page, next: undefined };
  }

  /** As `Sessions.respond`. */
  async answer(
    { tenant, name }: { readonly tenant: string; readonly name: string },
    sessionId: string,
    given: readonly GivenAnswer[],
  ): Promise<readonly RequestAnswer[]> {
    const answers = given.map(({ text, toolResult, ...rest }) => ({
      ...rest,
      author: name,
      ...(text === "" ? {} : { text }),
      ...(toolResult === undefined ? {} : { toolResult: boundedResult(toolResult, "") }),
    }));
    for (const [index, answer] of answers.entries()) checkAnswer(answer, index, "unknown");
    const oneOff = this.#oneOffs.get(tenant, sessionId);
    if (oneOff !== undefined) return answerOneOff(oneOff, answers, this.#now());
    const stored = await this.#stored(tenant, sessionId);
    const { requests, currentTurnId } = decodeSummary(stored.summary);
    const open = new Map(requests.map((reference) => [reference.requestId, reference]));
    for (const [index, answer] of answers.entries()) {
      const request = open.get(answer.requestId);
      if (request !== undefined) checkAnswer(answer, index, kindOf(request));
    }
    const before = new Map<string, RequestAnswer>();
    for (const { requestId } of answers) {
      if (open.has(requestId)) continue;
      const found = await this.#answerInLog(sessionId, requestId);
      if (found === undefined) throw unknownRequest(requestId, sessionId);
      before.set(requestId, found);
    }
    const settled: RequestAnswer[] = [];
    for (const answer of answers) {
      const { requestId } = answer;
      const isOver = isExpired(open.get(requestId), this.#now());
      const mine = isOver ? { requestId, decision: "expired", author: "" } : answer;
      const first = before.get(requestId) ?? (await this.#send(tenant, sessionId, currentTurnId, mine));
      settled.push(first);
    }
    this.#workers.wake(sessionId);
    return sameAs(answers, settled);
  }

  /** Sends an answer, and gives the one that was first. */
  async #send(tenant: string, sessionId: string, turnId: string, answer: RequestAnswer): Promise<RequestAnswer> {
    const sent = await this.#store.send(answerEntry(sessionId, tenant, turnId, answer, this.#now()));
    if (sent === undefined) throw unknownSession(sessionId);
    if (sent === "full" || sent.inserted) return answer;
    const waiting = await this.#store.readCommand(sessionId, answerKey(answer.requestId));
    if (waiting !== undefined) return decodeRequestAnswer(waiting.body);
    const taken = await this.#answerInLog(sessionId, answer.requestId);
    if (taken === undefined) throw unknownRequest(answer.requestId, sessionId);
    return taken;
  }

  /** What became of a request, from the log; for the rare case that somebody answers again. */
  async #answerInLog(sessionId: string, requestId: string): Promise<RequestAnswer | undefined> {
    let cursor = 0;
    for (;;) {
      const page = await this.#store.readHistory(sessionId, cursor, historyPage);
      for (const stored of page) {
        const { event } = logRecordFrom(stored);
        if (event.type !== "request-resolved" || event.requestId !== requestId) continue;
        const { type: _, ...answer } = event;
        return answer;
      }
      const last = page.at(-1);
      if (last === undefined || page.length < historyPage) return undefined;
      cursor = last.seq;
    }
  }

  async *#waiting(tenant: string, sessionId: string, after: RequestPosition | undefined): AsyncGenerator<Waiting> {
    if (sessionId !== "") {
      const oneOff = this.#oneOffs.get(tenant, sessionId);
      if (oneOff !== undefined) {
        yield* waitingOneOffs([oneOff]);
        return;
      }
      const { summary } = await this.#stored(tenant, sessionId);
      yield this.#waitingIn(sessionId, after?.waitingSinceMs ?? 0, decodeSummary(summary).requests);
      return;
    }
    const oneOffs = waitingOneOffs(this.#oneOffs.list(tenant));
    let position: SessionPlace | undefined = after;
    const begun = after === undefined ? undefined : await this.#store.readSession(tenant, after.sessionId);
    if (after !== undefined && begun !== undefined)
      yield this.#waitingIn(after.sessionId, after.waitingSinceMs, decodeSummary(begun.summary).requests);
    for (;;) {
      const page = await this.#store.listWaiting(tenant, position, sessionsAtATime);
      for (const { summary, waitingSinceMs, sessionId: id } of page) {
        if (id === begun?.sessionId) continue; // its oldest request was answered meanwhile
        while (oneOffs[0] !== undefined && isBefore(oneOffs[0], { waitingSinceMs, sessionId: id }))
          yield* oneOffs.splice(0, 1);
        yield this.#waitingIn(id, waitingSinceMs, decodeSummary(summary).requests);
      }
      position = page.at(-1);
      if (position === undefined || page.length < sessionsAtATime) break;
    }
    yield* oneOffs;
  }

  #waitingIn(sessionId: string, waitingSinceMs: number, requests: readonly RequestReference[]): Waiting {
    const read = async ({ requestId, seq }: RequestReference): Promise<WaitingRequest | undefined> => {
      const [stored] = await this.#store.readEvents(sessionId, seq - 1, 1, pageBytes);
      if (stored === undefined) return undefined;
      const { event, turnId, timeMs } = logRecordFrom(stored);
      if (event.type !== "request-opened" || event.request.requestId !== requestId) return undefined;
      return { request: event.request, sessionId, turnId, openedMs: timeMs };
    };
    return {
      sessionId,
      waitingSinceMs,
      requests: requests
        .filter((reference) => !isExpired(reference, this.#now()))
        .map((reference) => ({ requestId: reference.requestId, read: () => read(reference) })),
    };
  }

  async #stored(tenant: string, sessionId: string): Promise<StoredSession> {
    const stored = await this.#store.readSession(tenant, sessionId);
    if (stored === undefined) throw unknownSession(sessionId);
    return stored;
  }
}

const sessionsAtATime = 100;

type AnswerableKind = "approval" | "question" | "tool" | "unknown";

const decisionsOf: Readonly<Record<AnswerableKind, readonly string[]>> = {
  approval: approvalDecisions,
  question: questionDecisions,
  tool: toolDecisions,
  unknown: [...approvalDecisions, "answer"],
};

function kindOf({ isQuestion, isTool }: Pick<RequestReference, "isQuestion" | "isTool">): AnswerableKind {
  return isTool === true ? "tool" : isQuestion === true ? "question" : "approval";
}

/** @param kind of the request; `unknown` where it is not known yet, or not waiting any more */
function checkAnswer(
  { decision, text = "", toolResult }: Pick<RequestAnswer, "decision" | "text" | "toolResult">,
  index: number,
  kind: AnswerableKind,
): void {
  const known = decisionsOf[kind];
  if (!known.includes(decision)) {
    const said = decision === "" ? "empty" : decision === "answer" ? "answer" : JSON.stringify(decision.slice(0, 40));
    const hint =
      decision === "answer"
        ? ", which is for questions; to an approval say one of: "
        : kind === "question"
          ? "; to a question say one of: "
          : kind === "tool"
            ? "; to a call that a client runs say one of: "
            : "; say one of: ";
    throw invalidField(`responses[${index}].decision`, `is ${said}${hint}${known.join(", ")}`);
  }
  const field = (name: string) => `responses[${index}].${name}`;
  if (decision === "answer" && kind === "tool" && toolResult === undefined)
    throw invalidField(field("tool_result"), "is missing; give the result of the call, or deny it");
  if (decision === "answer" && kind !== "tool" && text.trim() === "" && toolResult === undefined)
    throw invalidField(field("text"), "is empty; say the answer, or deny the question");
  const mayHaveResult = decision === "answer" && (kind === "tool" || kind === "unknown");
  if (toolResult !== undefined && !mayHaveResult)
    throw invalidField(field("tool_result"), "is for tools that the client runs; leave it out");
}

function answerOneOff(turn: OneOffTurn, answers: readonly RequestAnswer[], nowMs: number): readonly RequestAnswer[] {
  const open = new Map(turn.requests.map(({ request }) => [request.requestId, request]));
  for (const { requestId } of answers)
    if (!open.has(requestId) && turn.answerTo(requestId) === undefined) throw unknownRequest(requestId, turn.sessionId);
  for (const [index, answer] of answers.entries()) {
    const request = open.get(answer.requestId);
    if (request !== undefined) {
      const { kind } = request;
      checkAnswer(
        answer,
        index,
        kindOf({
          ...(kind === "question" ? { isQuestion: true } : {}),
          ...(kind === "client_tool" ? { isTool: true } : {}),
        }),
      );
    }
  }
  const settled = answers.map((answer) => {
    const { requestId } = answer;
    const isOver = isExpired(open.get(requestId), nowMs);
    return turn.answer(isOver ? { requestId, decision: "expired", author: "" } : answer);
  });
  return sameAs(answers, settled);
}

/** @throws {AgentError} `failed_precondition` for the first answer that says something else than the one that stays. */
function sameAs(answers: readonly RequestAnswer[], settled: readonly RequestAnswer[]): readonly RequestAnswer[] {
  for (const [index, first] of settled.entries()) {
    const { decision, text, toolResult } = answers[index] ?? first;
    const isSame =
      requestHash({ decision, text, toolResult }) ===
      requestHash({ decision: first.decision, text: first.text, toolResult: first.toolResult });
    if (!isSame) throw resolvedOtherwise(first);
  }
  return settled;
}

function isExpired(request: { readonly expireTimeMs?: number } | undefined, nowMs: number): boolean {
  return request?.expireTimeMs !== undefined && request.expireTimeMs <= nowMs;
}

function waitingOneOffs(turns: readonly OneOffTurn[]): Waiting[] {
  return turns
    .map(({ sessionId, turnId, requests }) => ({
      sessionId,
      waitingSinceMs: Math.min(...requests.map(({ openedMs }) => openedMs)),
      requests: requests.map(({ request, openedMs }) => ({
        requestId: request.requestId,
        read: async () => ({ request, sessionId, turnId, openedMs }),
      })),
    }))
    .filter(({ requests }) => requests.length > 0)
    .toSorted((left, right) => (isBefore(left, right) ? -1 : 1));
}

interface SessionPlace {
  readonly waitingSinceMs: number;
  readonly sessionId: string;
}

function isBefore(left: SessionPlace, right: SessionPlace): boolean {
  if (left.waitingSinceMs !== right.waitingSinceMs) return left.waitingSinceMs < right.waitingSinceMs;
  return left.sessionId < right.sessionId;
}

/** What of a session follows a position. */
function notBefore(waiting: Waiting, after: RequestPosition | undefined): Waiting["requests"] {
  if (after === undefined || isBefore(after, waiting)) return waiting.requests;
  if (after.sessionId !== waiting.sessionId) return [];
  const index = waiting.requests.findIndex(({ requestId }) => requestId === after.requestId);
  return waiting.requests.slice(index + 1);
}
