import { AgentError } from "../chat/error.ts";
import { isPruned } from "../session/follow-log.ts";
import type { StreamLimits } from "../session/frame-batches.ts";
import { type BinderOptions, type BoundTurn, TurnBinder } from "./bind-turn.ts";
import { chatCompletionsApi } from "./chat-completions.ts";
import { type RestResponse, sseText, writeEventStream } from "./event-stream.ts";
import { HttpFault } from "./http-fault.ts";
import { messagesApi } from "./messages.ts";
import { hungUp, type RestRequest, readJsonBody } from "./read-body.ts";
import { responsesApi } from "./responses.ts";
import type { RestAnswer, RestApi, RestRoute } from "./rest-api.ts";
import { RouteTable } from "./route-table.ts";

export interface RestDoorOptions extends BinderOptions {
  /** Paths that need no turn. */
  readonly routes: readonly RestRoute[];
  /** Largest body, also once it is inflated. */
  readonly maxBodyBytes: number;
  readonly streamLimits: StreamLimits;
  /** When the head of a stream is sent at the latest, in milliseconds; default 10,000. */
  readonly headAfterMs?: number;
  /** How long one request may take in all, in milliseconds; default an hour. */
  readonly callTimeoutMs?: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly newId: (prefix: string) => string;
  readonly report: (level: "error", message: string, facts: Record<string, unknown>) => void;
}

/** An API of turns, or a route without one. */
type Target = { readonly api: RestApi; readonly name: string } | { readonly route: RestRoute };

const apis = [
  { path: "/v1/chat/completions", api: chatCompletionsApi, name: "completions" },
  { path: "/v1/responses", api: responsesApi, name: "responses" },
  { path: "/v1/messages", api: messagesApi, name: "messages" },
];

const defaultHeadAfterMs = 10_000;
const defaultCallTimeoutMs = 3_600_000;

/** Fields that vendors' clients send from web pages, in lower case. */
const takenFields =
  /^(?:accept|authorization|content-type|user-agent|api-key|x-api-key|x-session-id|x-request-id|idempotency-key|(?:anthropic|openai|x-stainless)-[a-z0-9-]+)$/;

/**
 * The APIs of vendors over plain HTTP: the same turns and sessions as the RPCs, asked for and told in each vendor's shapes,
 * errors included. What fails before an answer has begun has its own status, what fails later is the last event of its
 * stream. A caller that hangs up, and one whose time is over, ends a turn without a session; one in a session goes on.
 */
export class RestDoor {
  readonly prefix = "/v1/";
  readonly tokenFields = ["x-api-key", "api-key"];
  readonly methods = ["GET", "POST", "DELETE"];
  readonly exposedFields = [
    ...["x-request-id", "request-id", "x-session-id"],
    ...["retry-after", "retry-after-ms", "x-should-retry"],
  ];
  readonly #options: RestDoorOptions;
  readonly #routes: RouteTable<Target>;
  readonly #binder: TurnBinder;

  constructor(options: RestDoorOptions) {
    this.#options = options;
    this.#binder = new TurnBinder(options);
    this.#routes = new RouteTable<Target>([
      ...apis.map(({ path, api, name }) => ({ method: "POST", path, target: { api, name } })),
      ...options.routes.map((route) => ({ method: route.method, path: route.path, target: { route } })),
    ]);
  }

  takesField(name: string): boolean {
    return takenFields.test(name);
  }

  async serve(request: RestRequest, response: RestResponse, withoutBody: (answer: () => void) => void): Promise<void> {
    const abort = new AbortController();
    response.on("close", () => abort.abort(hungUp()));
    const { callTimeoutMs = defaultCallTimeoutMs } = this.#options;
    const late = setTimeout(() => abort.abort(tookTooLong(callTimeoutMs)), callTimeoutMs);
    try {
      const [path = "", query = ""] = (request.url ?? "").split("?", 2);
      const { target, params } = this.#routes.find(request.method ?? "", path);
      const body = () => readJsonBody(request, this.#options.maxBodyBytes);
      if ("route" in target) {
        const { headers } = request;
        const { signal } = abort;
        const reply = await target.route.handle({ params, query: new URLSearchParams(query), headers, body, signal });
        const requestId = this.#options.newId("req");
        sendJson(
          response,
          reply.status ?? 200,
          { ...requestIdField(request, requestId), ...reply.headers },
          reply.body,
        );
        return;
      }
      await this.#answerTurn(request, response, target, await body(), abort.signal);
    } catch (error) {
      if (hasHungUp(abort.signal)) return;
      const send = () => this.#sendError(request, response, error, this.#options.newId("req"));
      // What is refused by its head has a body that nobody has read.
      if (error instanceof HttpFault) withoutBody(send);
      else send();
    } finally {
      clearTimeout(late);
    }
  }

  refuse(request: RestRequest, response: RestResponse, refused: { readonly status: number; readonly message: string }) {
    const { status, message } = refused;
    const headers: Record<string, string> = status === 401 ? { "www-authenticate": "Bearer" } : {};
    const error = new HttpFault(status, refusalReasons[status] ?? "REFUSED", message, headers);
    this.#sendError(request, response, error, this.#options.newId("req"));
  }

  async #answerTurn(
    request: RestRequest,
    response: RestResponse,
    { api, name }: { readonly api: RestApi; readonly name: string },
    body: unknown,
    signal: AbortSignal,
  ): Promise<void> {
    const { now, streamLimits, headAfterMs = defaultHeadAfterMs } = this.#options;
    const asked = readAsked(api, body, request);
    signal.throwIfAborted();
    const createdMs = now();
    const { turn, isKept } = await this.#binder.start(asked, request.headers, name);
    const { sessionId, turnId } = turn;
    const answer = asked.answer({ sessionId, turnId, createdMs, isKept });
    const headers = {
      ...requestIdField(request, turnId),
      ...(isKept ? { "x-session-id": sessionId } : {}),
    };
    try {
      if (asked.stream) {
        const options = { response, reading: turn, answer, signal, headers, headAfterMs, limits: streamLimits };
        if (!(await writeEventStream(options))) throw brokenOff(turnId);
        response.end("");
      } else {
        await readToEnd(turn, answer, signal);
        sendJson(response, 200, headers, answer.body());
      }
    } catch (error) {
      if (hasHungUp(signal)) return;
      if (!response.headersSent) {
        this.#sendError(request, response, error, turnId, headers);
        return;
      }
      response.end(answer.failure(this.#told(error, request)).map(sseText).join(""));
    }
  }

  #sendError(
    request: RestRequest,
    response: RestResponse,
    cause: unknown,
    requestId: string,
    more: Readonly<Record<string, string>> = {},
  ): void {
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    const error = this.#told(cause, request);
    const told = speaker(request).error(error);
    const fault = error instanceof HttpFault ? error : undefined;
    const { retryAfterMs } = error;
    const headers = {
      ...requestIdField(request, requestId),
      ...more,
      ...told.headers,
      ...(retryAfterMs === undefined
        ? {}
        : {
            "retry-after": String(Math.ceil(retryAfterMs / 1000)),
            "retry-after-ms": String(Math.ceil(retryAfterMs)),
          }),
      ...withoutHopFields(fault?.headers ?? {}, request),
    };
    sendJson(response, fault?.status ?? told.status, headers, told.body);
  }

  /** Faults of our own say nothing of what is inside. */
  #told(error: unknown, request: RestRequest): AgentError {
    if (error instanceof AgentError) return error;
    this.#options.report("error", "a request over HTTP failed", { path: request.url?.split("?", 1)[0], error });
    return new AgentError("internal", "the server failed in a way it has no name for; its log says more");
  }
}

/** Words for what the server itself refuses. */
const refusalReasons: Readonly<Record<number, string>> = {
  401: "INVALID_API_KEY",
  403: "PERMISSION_DENIED",
  431: "HEADERS_TOO_LARGE",
  503: "SHUTTING_DOWN",
};

function readAsked(api: RestApi, body: unknown, request: RestRequest) {
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new AgentError("invalid_request", "the body of the request is no JSON object", { reason: "INVALID_JSON" });
  return api.read(body, request.headers);
}

async function readToEnd({ read, turnId }: BoundTurn["turn"], answer: RestAnswer, signal: AbortSignal): Promise<void> {
  let hasEnded = false;
  for await (const batch of read(signal)) {
    if (isPruned(batch)) continue;
    for (const record of batch) {
      answer.push(record);
      hasEnded ||= record.event.type === "turn-finished";
    }
  }
  if (!hasEnded) throw brokenOff(turnId);
}

/** Rather than that its time is over. */
function hasHungUp({ aborted, reason }: AbortSignal): boolean {
  return aborted && reason instanceof AgentError && reason.kind === "cancelled";
}

function tookTooLong(callTimeoutMs: number): AgentError {
  return new AgentError("deadline", `the request took longer than ${callTimeoutMs} ms, the most one may take`);
}

function brokenOff(turnId: string): AgentError {
  return new AgentError("unavailable", `turn ${turnId} can't be followed to its end: its session is gone`);
}

/** Anthropic's clients call the id of a request otherwise (platform.claude.com/docs/en/api/errors, "Request id"). */
function requestIdField(request: RestRequest, requestId: string): Readonly<Record<string, string>> {
  return { [isForAnthropic(request) ? "request-id" : "x-request-id"]: requestId };
}

/** Who tells an error to a request that may have got nowhere. */
function speaker(request: RestRequest): RestApi {
  if (isForAnthropic(request)) return messagesApi;
  return /^\/v1\/(?:responses|conversations)(?:[/?]|$)/.test(request.url ?? "") ? responsesApi : chatCompletionsApi;
}

/** Whose shapes a request that got no further is answered in. */
function isForAnthropic(request: RestRequest): boolean {
  const path = request.url ?? "";
  if (/^\/v1\/messages(?:[/?]|$)/.test(path)) return true;
  return /^\/v1\/models(?:[/?]|$)/.test(path) && request.headers["anthropic-version"] !== undefined;
}

/** HTTP/2 has no fields about its connection. */
function withoutHopFields(
  { connection, ...headers }: Readonly<Record<string, string>>,
  request: RestRequest,
): Readonly<Record<string, string>> {
  return connection === undefined || request.httpVersionMajor >= 2 ? headers : { ...headers, connection };
}

function sendJson(
  response: RestResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
  body: unknown,
): void {
  response.writeHead(status, { ...headers, "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
