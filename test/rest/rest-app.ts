import type { TestContext } from "node:test";
import OpenAI from "openai";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";

/** The service, and OpenAI's own client for it, which does not try again by itself. */
export async function startRestApp(context: Pick<TestContext, "after">, options: TestAppOptions = {}) {
  const started = await startTestApp(context, options);
  const { url } = started.app;
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0, timeout: 8000 });
  return { ...started, url, openai };
}

/** A POST of JSON, as any client can send it. */
export function post(url: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(8000),
  });
}

/** The `data` of each event of a stream. */
export function dataOf(text: string): string[] {
  return text
    .split("\n\n")
    .flatMap((event) => event.split("\n"))
    .filter((line) => line.startsWith("data: "))
    .map((line) => line.slice("data: ".length));
}
