import http from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import type { ChatEvent } from "../../src/chat/event.ts";
import { createProviderRegistry, type ProviderRegistryOptions } from "../../src/provider/registry.ts";
import type { UpstreamTimeouts } from "../../src/provider/stream-chat.ts";
import { checkRequest } from "../dialect/check-request.ts";

export type Answer = (request: http.IncomingMessage, response: http.ServerResponse, body: string) => void;

export interface Upstream {
  readonly url: string;
  readonly requests: { readonly url: string; readonly headers: http.IncomingHttpHeaders; readonly body: string }[];
  /** How many connections were made. */
  connections(): number;
}

export interface UpstreamOptions {
  /** Requests are not checked: the test sends what no API would take, for the reason given. */
  readonly takesAnything?: string;
}

/**
 * A provider on loopback that gives the answers in their order. One request too many is answered with 418, and one that
 * the API would refuse with a 400 that says why.
 */
export async function startUpstream(
  context: TestContext,
  answers: readonly Answer[],
  options: UpstreamOptions = {},
): Promise<Upstream> {
  const requests: Upstream["requests"] = [];
  let connections = 0;
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const answer = answers[requests.length];
    requests.push({ url: request.url ?? "", headers: request.headers, body });
    try {
      if (options.takesAnything === undefined) checkRequest(request.url ?? "", body);
    } catch (error) {
      response.writeHead(400).end(JSON.stringify({ error: { message: String(error) } }));
      return;
    }
    if (answer !== undefined) answer(request, response, body);
    else response.writeHead(418).end(`nobody planned request ${requests.length}`);
  });
  server.on("connection", () => connections++);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/v1`, requests, connections: () => connections };
}

export const key = "sk-very-secret-key";
export const eventStream = { "content-type": "text/event-stream" };

export function chunk(delta: object, finishReason: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finishReason }];
  return `data: ${JSON.stringify({ id: "chat-1", model: "m-1", choices })}\n\n`;
}

export const helloText = `${chunk({ content: "Hel" })}${chunk({ content: "lo" })}${chunk({}, "stop")}data: [DONE]\n\n`;
export const hello: Answer = (_, response) => response.writeHead(200, eventStream).end(helloText);

export function jsonAnswer(status: number, value: unknown, headers: http.OutgoingHttpHeaders = {}): Answer {
  return (_, response) =>
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
}

export interface Asked {
  readonly events: ChatEvent[];
  readonly error: unknown;
  /** How long it waited between tries, in milliseconds. */
  readonly waits: number[];
}

export interface AskOptions extends Partial<ProviderRegistryOptions> {
  /** By default one of the provider `forward`; another one needs its own `env`. */
  readonly model?: string;
  readonly signal?: AbortSignal;
  readonly timeouts?: Partial<UpstreamTimeouts>;
  readonly onEvents?: (events: readonly ChatEvent[]) => void;
}

/** Asks the provider at the URL for an answer to `hi`. */
export async function ask(baseUrl: string, options: AskOptions = {}): Promise<Asked> {
  const waits: number[] = [];
  const registry = createProviderRegistry({
    env: { FORWARD_BASE_URL: baseUrl, FORWARD_API_KEY: key },
    delay: async (delayMs) => {
      waits.push(delayMs);
    },
    random: () => 1,
    now: () => Date.UTC(2026, 0, 1),
    ...options,
  });
  const events: ChatEvent[] = [];
  try {
    const request = {
      model: "",
      messages: [{ role: "user", blocks: [{ type: "text", text: "hi" }] }],
      tools: [],
      options: {},
    } as const;
    const signal = options.signal ?? new AbortController().signal;
    const timeouts = options.timeouts ?? {};
    for await (const some of registry.streamChat(registry.resolve(options.model ?? "forward/some/model"), request, {
      signal,
      timeouts,
    })) {
      events.push(...some);
      options.onEvents?.(some);
    }
    return { events, error: undefined, waits };
  } catch (error) {
    return { events, error, waits };
  } finally {
    registry.close();
  }
}

export function agentError(value: unknown): AgentError {
  if (value instanceof AgentError) return value;
  throw new Error(`expected an AgentError, got ${String(value)}`, { cause: value });
}

export function textOfEvents(events: readonly ChatEvent[]): string {
  return events.map((event) => (event.type === "text-delta" ? event.text : "")).join("");
}
