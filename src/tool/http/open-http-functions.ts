import { readFile } from "node:fs/promises";
import type { FunctionProvider } from "../function-provider.ts";
import type { AddressPolicy } from "../net/address-policy.ts";
import { type GuardedClient, guardedClient } from "../net/guarded-client.ts";
import { readBody } from "../net/readable-body.ts";
import { configuredFunction, headersWithSecrets } from "./configured-function.ts";
import { type HttpFunction, httpFunctions } from "./http-functions.ts";
import type { HttpSection, OpenApiSection } from "./http-section.ts";
import { type OpenApiFunctions, openApiFunctions } from "./openapi.ts";

export interface OpenHttpOptions {
  readonly policy: AddressPolicy;
  /** Where the secrets of headers are found. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly report: (level: "info" | "warn", message: string, facts?: Record<string, unknown>) => void;
  /** How long the start waits for documents that are fetched, in milliseconds; default 2000. */
  readonly startWaitMs?: number;
  /** First wait after a document could not be had, in milliseconds; doubles up to 64 times; default 1000. */
  readonly retryMs?: number;
}

const maxDocumentBytes = 16 * 1024 * 1024;
const fetchLimitMs = 30_000;
const diagnosticsShown = 20;

/**
 * Opens the functions that the configuration names, one provider for each entry. A document that cannot be fetched is asked
 * for again until it comes; `watch` tells then. The caller closes the providers.
 * @throws {Error} one sentence for the operator: a secret that is missing, a file that is none.
 */
export async function openHttpFunctions(
  sections: readonly HttpSection[],
  options: OpenHttpOptions,
): Promise<FunctionProvider[]> {
  const client = guardedClient(options.policy);
  const opened = await Promise.allSettled(
    sections.map(async (section) =>
      section.kind === "openapi" ? openDocument(section, client, options) : openFunction(section, client, options),
    ),
  );
  const providers = opened.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const failed = opened.find((one) => one.status === "rejected");
  if (failed === undefined) return providers;
  await Promise.all(providers.map((provider) => provider.close()));
  throw failed.reason;
}

function openFunction(
  section: Extract<HttpSection, { kind: "function" }>,
  client: GuardedClient,
  { policy, env }: OpenHttpOptions,
): FunctionProvider {
  const { headers, secrets } = headersWithSecrets(section.headers, env, section.place);
  checked(policy, section.origin, `${section.place}.url`);
  const functions = [configuredFunction(section, headers)];
  return {
    ...httpFunctions(() => functions, { source: `http:${section.name}`, client, secrets }),
    close: async () => {},
  };
}

async function openDocument(
  section: OpenApiSection,
  client: GuardedClient,
  { policy, env, report, startWaitMs = 2000, retryMs = 1000 }: OpenHttpOptions,
): Promise<FunctionProvider> {
  const source = `http:${section.name}`;
  const { headers, secrets } = headersWithSecrets(section.headers, env, section.place);
  if (section.baseUrl !== undefined) checked(policy, section.baseUrl, `${section.place}.base_url`);
  const isFetched = /^https?:/i.test(section.document);
  let functions: readonly HttpFunction[] = [];
  const listeners = new Set<() => void>();
  const closing = new AbortController();

  const take = (text: string, documentUrl: URL | undefined) => {
    const { include, timeoutMs, baseUrl } = section;
    const found: OpenApiFunctions = openApiFunctions(text, {
      source,
      include,
      headers,
      timeoutMs,
      ...(baseUrl === undefined ? {} : { baseUrl }),
      ...(documentUrl === undefined ? {} : { documentUrl }),
    });
    functions = found.functions;
    for (const message of found.diagnostics.slice(0, diagnosticsShown)) report("warn", `${source}: ${message}`);
    const more = found.diagnostics.length - diagnosticsShown;
    if (more > 0) report("warn", `${source}: and ${more} more parts of the document that can't be used`);
    for (const listener of listeners) listener();
  };

  /** Asks until there is an answer. A document that can be had but not used is not asked for again. */
  const fetchUntilThere = async (url: URL) => {
    for (let wait = retryMs; ; wait = Math.min(wait * 2, retryMs * 64)) {
      let text: string;
      try {
        text = await fetchDocument(client, url, closing.signal);
      } catch (error) {
        if (closing.signal.aborted) return;
        const why = error instanceof Error ? error.message : String(error);
        report("warn", `${source}: the document cannot be had (${why}); it is asked for again in ${wait} ms`);
        if (!(await waited(wait, closing.signal))) return;
        continue;
      }
      try {
        take(text, url);
      } catch (error) {
        report(
          "warn",
          `${source}: no functions come from the document: ${error instanceof Error ? error.message : String(error)}`,
        );
      }
      return;
    }
  };

  let coming: Promise<void> | undefined;
  if (isFetched) {
    coming = fetchUntilThere(checked(policy, section.document, `${section.place}.openapi`));
    const here = new AbortController();
    await Promise.race([coming, waited(startWaitMs, AbortSignal.any([here.signal, closing.signal]))]);
    here.abort();
  } else {
    const place = `${section.place}.openapi: ${section.document}`;
    const text = await readFile(section.document, "utf8").catch((cause: unknown) => {
      throw new Error(`${place} can't be read`, { cause });
    });
    try {
      take(text, undefined);
    } catch (cause) {
      throw new Error(`${place}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    }
  }
  return {
    ...httpFunctions(() => functions, { source, client, secrets }),
    watch(onChange) {
      listeners.add(onChange);
      return () => void listeners.delete(onChange);
    },
    async close() {
      closing.abort(new Error("closed"));
      listeners.clear();
      await coming;
    },
  };
}

/** No header of ours goes with it: a document is read by anybody or given as a file. */
async function fetchDocument(client: GuardedClient, url: URL, signal: AbortSignal): Promise<string> {
  const answer = await client.send({
    url,
    headers: { accept: "application/json, application/yaml, text/*;q=0.9, */*;q=0.5", "user-agent": "codeagent" },
    signal,
    limits: { totalMs: fetchLimitMs, bodyBytes: maxDocumentBytes },
  });
  const { status, url: asked } = answer;
  const body = await readBody(answer);
  if (status !== 200) throw new Error(`${asked.host} answered ${status}`);
  if (asked.origin !== url.origin) throw new Error(`${url.host} redirects to ${asked.host}; name that`);
  if (body.kind === undefined) throw new Error(`${asked.host} answered with ${body.contentType}, which is no text`);
  return body.text;
}

/** @throws {Error} with the place of the setting before the policy's words. */
function checked(policy: AddressPolicy, url: string, place: string): URL {
  try {
    return policy.checkUrl(url);
  } catch (cause) {
    throw new Error(`${place}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** @returns false when the wait was ended. */
async function waited(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, milliseconds);
  const onAbort = () => resolve();
  signal.addEventListener("abort", onAbort, { once: true });
  await promise;
  clearTimeout(timer);
  signal.removeEventListener("abort", onAbort);
  return !signal.aborted;
}
