import type { AddressPolicy } from "./address-policy.ts";
import { type ExchangeLimits, type GuardedResponse, guardedClient } from "./guarded-client.ts";

/** The part of `fetch` that libraries use which take one as a setting. */
export type FetchLike = (url: string | URL, init?: RequestInit) => Promise<Response>;

const statusesWithoutBody: ReadonlySet<number> = new Set([101, 103, 204, 205, 304]);

/**
 * A `fetch` that reaches what the policy permits and nothing else. Bodies stream; those sent are texts, bytes or
 * `URLSearchParams`. Silence and length are not limited unless `limits` does: streams of events last.
 * A response has to be read or cancelled. Fails like `fetch` with a `TypeError`, its cause a `RefusedUrl` or `FailedExchange`.
 */
export function guardedFetch(policy: AddressPolicy, limits: Partial<ExchangeLimits> = {}): FetchLike {
  const client = guardedClient(policy);
  return async (url, init = {}) => {
    const headers = new Headers(init.headers);
    const body = sentBody(init.body, headers);
    const signal = init.signal ?? new AbortController().signal;
    const method = (init.method ?? "GET").toUpperCase();
    try {
      const answer = await client.send({
        url,
        method,
        headers: Object.fromEntries(headers),
        signal,
        limits: { idleMs: 0, totalMs: 0, bodyBytes: 0, ...limits },
        ...(body === undefined ? {} : { body }),
        ...(init.redirect === "manual" || init.redirect === "error" ? { maxRedirects: 0 } : {}),
      });
      const isRedirect = answer.status >= 300 && answer.status < 400 && answer.headers["location"] !== undefined;
      if (init.redirect === "error" && isRedirect) {
        answer.close();
        throw new TypeError(`${answer.url.host} redirects, which was not wanted`);
      }
      const hasBody = method !== "HEAD" && !statusesWithoutBody.has(answer.status);
      if (!hasBody) answer.close();
      // The body is decompressed by now.
      const { "content-encoding": _, "content-length": __, ...shown } = answer.headers;
      const response = new Response(hasBody ? streamOf(answer) : null, { status: answer.status, headers: shown });
      Object.defineProperty(response, "url", { value: answer.url.href });
      return response;
    } catch (error) {
      if (signal.aborted || error instanceof TypeError) throw error;
      throw new TypeError(error instanceof Error ? error.message : "the request failed", { cause: error });
    }
  };
}

function sentBody(body: RequestInit["body"], headers: Headers): string | Uint8Array | undefined {
  if (body === undefined || body === null) return undefined;
  if (typeof body === "string") {
    if (!headers.has("content-type")) headers.set("content-type", "text/plain;charset=UTF-8");
    return body;
  }
  if (body instanceof URLSearchParams) {
    if (!headers.has("content-type")) headers.set("content-type", "application/x-www-form-urlencoded;charset=UTF-8");
    return body.toString();
  }
  if (body instanceof Uint8Array) return body;
  throw new TypeError("a body of text, bytes or URLSearchParams is wanted");
}

function streamOf({ body, close }: GuardedResponse): ReadableStream<Uint8Array> {
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = await body.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        // A body nobody has begun to read would not notice.
        close();
        await body.return();
      },
    },
    { highWaterMark: 0 },
  );
}
