import type { IncomingHttpHeaders } from "node:http";
import { AgentError, invalidField } from "../chat/error.ts";
import { requestIdFrom, sessionIdFrom } from "../chat/ids.ts";
import { messageText } from "../chat/message.ts";
import type { TurnRequest } from "../chat/request.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { partsOfResponseId } from "../convert/responses/response-id.ts";
import { checkRequestBounds } from "../session/request-bounds.ts";
import { plainConfig } from "../session/session-worker.ts";
import type { AdmittedTurn, Principal, Sessions } from "../session/sessions.ts";
import { shortLine } from "../session/short-line.ts";
import type { RestTurn } from "./rest-api.ts";

export interface BinderOptions {
  readonly sessions: Pick<Sessions, "startTurn" | "admit" | "create" | "fork" | "delete" | "knowsTurn" | "turnEnd">;
  readonly principal: Principal;
  /** Of the sessions that are made. */
  readonly workspace: string;
}

/** A turn that was admitted, and whether its session outlives it. */
export interface BoundTurn {
  readonly turn: AdmittedTurn;
  readonly isKept: boolean;
}

/**
 * Begins turns in the sessions they belong to: the one the header `x-session-id` names (made when it does not exist; the
 * messages are then the whole conversation, of which the session takes what is new), the one the body names, one after an
 * answer given before, a new one where the answer is kept, and none otherwise. `idempotency-key` is the request id: the same
 * request under it joins the turn it began, wherever that is.
 */
export class TurnBinder {
  readonly #options: BinderOptions;
  /** What goes on after an answer, by session: one at a time, or two would both take it for the last one. */
  readonly #following = new Map<string, Promise<unknown>>();

  constructor(options: BinderOptions) {
    this.#options = options;
  }

  /** @throws {AgentError} as `Sessions.startTurn`, and `not_found` for what the body names and there is not. */
  async start(asked: RestTurn, headers: IncomingHttpHeaders, apiName: string): Promise<BoundTurn> {
    const requestId = requestIdFrom(textOf(headers["idempotency-key"]), "Idempotency-Key");
    try {
      return await this.#start(asked, headers, apiName, requestId);
    } catch (error) {
      if (!hasReason(error, "REQUEST_ID_REUSED")) throw error;
      throw new AgentError(
        "already_exists",
        `Idempotency-Key: ${requestId} was used with another request; choose a new one, or send the request as it was`,
        { reason: "REQUEST_ID_REUSED", cause: error },
      );
    }
  }

  async #start(asked: RestTurn, headers: IncomingHttpHeaders, apiName: string, requestId: string): Promise<BoundTurn> {
    const { sessions, principal } = this.#options;
    const request: TurnRequest = { ...asked.request, requestId };
    checkRequestBounds(request);
    const named = headers["x-session-id"];
    const { binding } = asked;
    if (named !== undefined) {
      if (binding !== undefined)
        throw invalidField("x-session-id", "names a session, and the body names one too; leave one of them out");
      if (asked.isKept === false)
        throw invalidField(
          "store",
          "is false, and x-session-id names a session, which keeps the answer; leave one out",
        );
      const sessionId = sessionIdFrom(textOf(named), "x-session-id");
      return { turn: await this.#startInNamed({ ...request, sessionId, wholeHistory: true }), isKept: true };
    }
    if (binding?.type === "session") {
      const sessionId = sessionIdFrom(binding.sessionId, "conversation");
      return { turn: await sessions.startTurn(principal, { ...request, sessionId }), isKept: true };
    }
    if (binding?.type === "response")
      return { turn: await this.#startAfter(request, binding.responseId), isKept: true };
    if (asked.isKept !== true) {
      // Its caller sees no request that waits, and knows no id to answer it by.
      const turn = await sessions.startTurn(principal, { ...request, isUnattended: true });
      return { turn, isKept: false };
    }
    const config: SessionConfig = {
      ...plainConfig(this.#options.workspace),
      title: titleOf(request) || apiName,
      metadata: { "codeagent.api": apiName },
    };
    const { sessionId } = await sessions.create(principal, config, "", requestId === "" ? "" : `rest:${requestId}`);
    return { turn: await this.#startInNew({ ...request, sessionId }), isKept: true };
  }

  /** In a session that was made for the turn, and is nobody's when the turn is refused. */
  async #startInNew(request: TurnRequest): Promise<AdmittedTurn> {
    const { sessions, principal } = this.#options;
    try {
      return await sessions.startTurn(principal, request);
    } catch (error) {
      // Under a request id others may have it too, and asking again finds it.
      if (request.requestId === "") await sessions.delete(principal, request.sessionId).catch(() => undefined);
      throw error;
    }
  }

  async #startInNamed(request: TurnRequest): Promise<AdmittedTurn> {
    const { sessions, principal, workspace } = this.#options;
    try {
      return await sessions.startTurn(principal, request);
    } catch (error) {
      if (!hasReason(error, "SESSION_NOT_FOUND")) throw error;
    }
    const { sessionId } = request;
    const config = plainConfig(workspace);
    // What is refused makes no session.
    await sessions.admit(request, config);
    try {
      // The same for all who come first at the same time: one makes it, the others find it made.
      await sessions.create(principal, config, sessionId, `rest-session:${sessionId}`);
    } catch (error) {
      if (!hasReason(error, "SESSION_EXISTS")) throw error;
    }
    return sessions.startTurn(principal, request);
  }

  /** In the session of the answer where nothing came after it, else in a fork of the session that ends with it. */
  async #startAfter(request: TurnRequest, responseId: string): Promise<AdmittedTurn> {
    const parts = partsOfResponseId(responseId);
    if (parts === undefined) throw noResponse(responseId);
    const { sessionId, turnId } = parts;
    const before = this.#following.get(sessionId);
    const following = (async () => {
      await before?.catch(() => undefined);
      return this.#follow(request, responseId, sessionId, turnId);
    })();
    this.#following.set(sessionId, following);
    try {
      return await following;
    } finally {
      if (this.#following.get(sessionId) === following) this.#following.delete(sessionId);
    }
  }

  async #follow(request: TurnRequest, responseId: string, sessionId: string, turnId: string): Promise<AdmittedTurn> {
    const { sessions, principal } = this.#options;
    const { requestId } = request;
    try {
      const isAdmitted = requestId !== "" && (await sessions.knowsTurn(principal, sessionId, requestId));
      const end = isAdmitted ? undefined : await sessions.turnEnd(principal, sessionId, turnId);
      if (end === undefined || end.isLast) return await sessions.startTurn(principal, { ...request, sessionId });
      const forked = { sessionId: "", title: "", requestId: requestId === "" ? "" : `rest-fork:${requestId}` };
      const fork = await sessions.fork(principal, sessionId, end.seq, forked);
      return await this.#startInNew({ ...request, sessionId: fork.sessionId });
    } catch (error) {
      if (hasReason(error, "SESSION_NOT_FOUND") || hasReason(error, "TURN_NOT_FOUND")) throw noResponse(responseId);
      throw error;
    }
  }
}

/** What the user asks first, in one line. */
function titleOf({ messages }: TurnRequest): string {
  const first = messages.find(({ role }) => role === "user");
  return first === undefined ? "" : shortLine(messageText(first));
}

function noResponse(responseId: string): AgentError {
  const description = `there is no response ${JSON.stringify(responseId.slice(0, 100))}`;
  return new AgentError("not_found", `previous_response_id: ${description}`, {
    reason: "PREVIOUS_RESPONSE_NOT_FOUND",
    fieldViolations: [{ field: "previous_response_id", description }],
  });
}

function hasReason(error: unknown, reason: string): boolean {
  return error instanceof AgentError && error.reason === reason;
}

/** A field that came twice is no id. */
function textOf(field: string | readonly string[] | undefined): string {
  return typeof field === "string" ? field : (field ?? []).join(", ");
}
