import http from "node:http";
import { AgentError } from "../../src/chat/error.ts";
import type { ChatEvent } from "../../src/chat/event.ts";
import { createProviderRegistry } from "../../src/provider/registry.ts";
import { joined, type Reading } from "../dialect/answer-reading.ts";
import type { Exchange } from "./exchange.ts";

export interface Answered extends Reading {
  /** How long the provider asked to wait before the next try, in milliseconds. */
  readonly retryAfterMs?: number;
}

/** Plays recorded exchanges back over loopback, to this service's own client. */
export interface Replay extends AsyncDisposable {
  ask(exchange: Exchange): Promise<Answered>;
}

/** Headers that say how the recorded connection went, not this one. */
const connectionHeaders = ["content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive"];

export async function startReplay(): Promise<Replay> {
  const playing = new Map<string, Exchange>();
  const server = http.createServer((request, response) => {
    request.resume();
    const exchange = playing.get((request.url ?? "").split("/")[1] ?? "");
    if (exchange === undefined) {
      response.writeHead(418).end("nobody plays this");
      return;
    }
    const headers = Object.fromEntries(
      Object.entries(exchange.headers).filter(
        ([name, value]) => !connectionHeaders.includes(name) && !/[^\t\x20-\x7e\x80-\xff]/.test(value),
      ),
    );
    response.writeHead(exchange.status, headers).end(exchange.stream ?? exchange.whole);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  let played = 0;

  return {
    async ask(exchange) {
      const place = `play-${++played}`;
      playing.set(place, exchange);
      let made = 0;
      const spec = { id: "test", dialect: exchange.api, keyRequired: false, features: [] } as const;
      const registry = createProviderRegistry({
        env: {},
        settings: { endpoints: [{ spec, settings: { baseUrl: `http://127.0.0.1:${port}/${place}/v1` } }] },
        delay: async () => undefined,
        random: () => 1,
        createToolCallId: () => `made-${++made}`,
      });
      const events: ChatEvent[] = [];
      try {
        const messages = [{ role: "user", blocks: [{ type: "text", text: "Go" }] }] as const;
        const request = { model: "", messages, tools: [], options: {} };
        const resolved = registry.resolve("test/m-1");
        const timeouts = { connectMs: 5000, idleMs: 10_000, totalMs: 60_000 };
        const { signal } = new AbortController();
        for await (const some of registry.streamChat(resolved, request, { signal, timeouts })) events.push(...some);
        return { events: joined(events) };
      } catch (error) {
        const retryAfterMs = error instanceof AgentError ? error.retryAfterMs : undefined;
        return { events: joined(events), error, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
      } finally {
        registry.close();
        playing.delete(place);
      }
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
