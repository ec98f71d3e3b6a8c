import assert from "node:assert/strict";
import http from "node:http";
import type { TestContext } from "node:test";

export interface GithubCall {
  readonly method: string | undefined;
  readonly path: string | undefined;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: unknown;
}

/** An answer, or a function that gives it when it likes. */
export type GithubPlan =
  | { readonly status?: number; readonly json: unknown; readonly headers?: http.OutgoingHttpHeaders }
  | ((response: http.ServerResponse) => void);

export interface FakeGithub {
  readonly url: string;
  readonly calls: GithubCall[];
  /** Adds answers to those that are left. */
  plan(...plans: readonly GithubPlan[]): void;
  /** Waits for a call by its number, from 1. */
  called(number: number): Promise<void>;
  /** Waits until whoever made the latest call has hung up. */
  hungUp(): Promise<void>;
}

/** GitHub on loopback: gives the planned answers in their order; a call nobody planned fails the test. */
export async function startFakeGithub(context: TestContext): Promise<FakeGithub> {
  const plans: GithubPlan[] = [];
  const calls: GithubCall[] = [];
  const unplanned: string[] = [];
  const news = new EventTarget();
  let latest = Promise.withResolvers<void>();
  const server = http.createServer(async (request, response) => {
    const { method, url: path, headers } = request;
    const closed = Promise.withResolvers<void>();
    latest = closed;
    response.on("close", () => closed.resolve());
    let text = "";
    for await (const piece of request) text += piece;
    calls.push({ method, path, headers, body: text === "" ? undefined : JSON.parse(text) });
    const plan = plans.shift();
    if (plan === undefined) {
      unplanned.push(`${method} ${path}`);
      response.writeHead(418).end();
    } else if (typeof plan === "function") plan(response);
    else response.writeHead(plan.status ?? 200, plan.headers).end(JSON.stringify(plan.json));
    news.dispatchEvent(new Event("call"));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  context.after(() => {
    server.closeAllConnections();
    server.close();
    assert.deepEqual(unplanned, [], "calls that nobody planned");
    assert.equal(plans.length, 0, "answers that nobody asked for");
  });
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return {
    url: `http://127.0.0.1:${address.port}`,
    calls,
    plan: (...added) => void plans.push(...added),
    async called(number) {
      while (calls.length < number)
        await new Promise<void>((next) => news.addEventListener("call", () => next(), { once: true }));
    },
    hungUp: () => latest.promise,
  };
}
