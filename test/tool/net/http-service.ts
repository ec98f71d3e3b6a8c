import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export interface SeenRequest {
  readonly method: string;
  /** Path and query as they came over the wire. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

export type Answer = (request: SeenRequest, response: ServerResponse) => void;

/** An HTTP service on loopback that notes what it is asked; ended with the test. */
export async function startService(
  context: Pick<TestContext, "after">,
  answer: Answer,
  tls?: { readonly cert: string; readonly key: string },
) {
  const seen: SeenRequest[] = [];
  const handle = async (incoming: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { method = "", url = "", headers } = incoming;
    const request = { method, target: url, headers, body: Buffer.concat(chunks).toString() };
    seen.push(request);
    answer(request, response);
  };
  const onRequest = (incoming: IncomingMessage, response: ServerResponse) =>
    void handle(incoming, response).catch(() => response.destroy());
  const server = tls === undefined ? createServer(onRequest) : createTlsServer(tls, onRequest);
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, host: `127.0.0.1:${port}`, url: `${tls === undefined ? "http" : "https"}://127.0.0.1:${port}`, seen };
}

/** Answers with JSON. */
export function json(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}
