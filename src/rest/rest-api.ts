import type { IncomingHttpHeaders } from "node:http";
import type { AgentError } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import type { TurnRequest } from "../chat/request.ts";

/** One event of a stream of server-sent events. */
export interface SseFrame {
  /** Its name; absent for none. */
  readonly event?: string;
  /** One line. */
  readonly data: string;
}

/** An error as a vendor's clients know it. */
export interface RestError {
  readonly status: number;
  /** Becomes JSON. */
  readonly body: unknown;
  /** Besides `content-type` and `retry-after`, which the door sets. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** The session a request goes on with, as its body names it. */
export type RestBinding =
  | { readonly type: "session"; readonly sessionId: string }
  /** Of an answer given before; the turn goes on after it. */
  | { readonly type: "response"; readonly responseId: string };

/** One way of vendors' clients to ask for a turn over HTTP. Pure: the door reads bodies, runs turns and writes streams. */
export interface RestApi {
  /**
   * Reads what a client asks for.
   * @param body as parsed from JSON
   * @throws {AgentError} `invalid_request` with the path of the field as the vendor's clients write it.
   */
  read(body: unknown, headers: IncomingHttpHeaders): RestTurn;
  /** Says an error in the vendor's shape. */
  error(error: AgentError): RestError;
}

/** What a client asks for, read. */
export interface RestTurn {
  /** Session and idempotency key are the door's to fill in. */
  readonly request: TurnRequest;
  readonly stream: boolean;
  /** Absent where the body names no session. */
  readonly binding?: RestBinding;
  /** The answer is to be there for requests that name its id, so the turn needs a session. */
  readonly isKept?: boolean;
  /** Begins to tell a turn. */
  answer(turn: RestTurnFacts): RestAnswer;
}

/** What is known of a turn when it is admitted. */
export interface RestTurnFacts {
  readonly sessionId: string;
  readonly turnId: string;
  /** Milliseconds since 1970. */
  readonly createdMs: number;
  /** The turn's session outlives it. */
  readonly isKept: boolean;
}

/** Tells one turn, from its events: as a stream, and at its end as one body. */
export interface RestAnswer {
  /**
   * Takes the turn's next event and gives the frames it makes, often none. Where no stream was asked for nobody looks at
   * them, and none need be made.
   * @throws {AgentError} the turn's own error where it failed.
   */
  push(record: LogRecord): readonly SseFrame[];
  /** The whole answer, once the turn has finished; becomes JSON. */
  body(): unknown;
  /** What ends a stream that has begun and fails. */
  failure(error: AgentError): readonly SseFrame[];
  /** Shown while nothing happens; absent where the vendor sends none, and the door writes a comment. */
  readonly ping?: SseFrame;
}

/** A path that is answered without a turn, beside the APIs of turns. */
export interface RestRoute {
  readonly method: "GET" | "POST" | "DELETE";
  /** As in `/v1/conversations/{id}`: each name in braces takes one segment, `{name+}` at the end takes all that is left. */
  readonly path: string;
  /** What answers, as JSON. @throws {AgentError} told in the shape of the path's vendor. */
  handle(call: RestCall): Promise<RestReply>;
}

/** One request to a `RestRoute`. */
export interface RestCall {
  /** By the names of the path's braces, decoded. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The body as parsed from JSON; `undefined` where a POST or DELETE has none. @throws {AgentError} */
  body(): Promise<unknown>;
  /** Aborts when the caller hangs up. */
  readonly signal: AbortSignal;
}

export interface RestReply {
  /** Default 200. */
  readonly status?: number;
  /** Becomes JSON. */
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}
