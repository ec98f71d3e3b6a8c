import { STATUS_CODES } from "node:http";
import { type ToolResult, toolFailure } from "../../chat/tool-result.ts";
import { boundedText } from "../bounded-text.ts";
import type { FunctionDefinition, FunctionProvider } from "../function-provider.ts";
import { RefusedUrl } from "../net/address-policy.ts";
import { FailedExchange, type GuardedClient, type GuardedResponse } from "../net/guarded-client.ts";
import { readBody } from "../net/readable-body.ts";
import { secretBlanker } from "./secrets.ts";
import { type Arguments, UnfitArgument, valueAt } from "./template.ts";

/** One request, made of the arguments of a call. */
export interface FunctionRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** A function that is one request to a service. */
export interface HttpFunction {
  readonly definition: FunctionDefinition;
  /** @throws {UnfitArgument} for an argument that cannot stand where it belongs. */
  requestFor(given: Arguments): FunctionRequest;
  /** JSON Pointer to the part of the answer that the model gets; absent for all of it. */
  readonly response?: string;
}

export interface HttpFunctionsOptions {
  readonly source: string;
  readonly client: GuardedClient;
  /** Texts that no result shows, whoever says them. */
  readonly secrets: readonly string[];
}

const errorBodyBytes = 16 * 1024;
const acceptHeader = "application/json, text/*;q=0.9, */*;q=0.5";

/** Calls functions that are requests. Redirects are followed for reading alone, and without headers of ours to other origins. */
export function httpFunctions(
  functions: () => readonly HttpFunction[],
  { source, client, secrets }: HttpFunctionsOptions,
): Pick<FunctionProvider, "source" | "list" | "call"> {
  const blank = secretBlanker(secrets);
  return {
    source,
    list: async () => functions().map(({ definition }) => definition),
    async call({ name, arguments: given }, { signal }) {
      const found = functions().find(({ definition }) => definition.name === name);
      if (found === undefined) return toolFailure(`${source} has no function "${name}" any more`);
      try {
        return await run(found, given, signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        if (error instanceof UnfitArgument) return toolFailure(blank(`${error.message}`));
        if (error instanceof RefusedUrl || error instanceof FailedExchange) return toolFailure(blank(error.message));
        throw new Error(`${name} failed`, { cause: error });
      }
    },
  };

  async function run({ definition, requestFor, response }: HttpFunction, given: Arguments, signal: AbortSignal) {
    const { method, url, headers, body } = requestFor(given);
    const answer = await client.send({
      method,
      url,
      headers: { accept: acceptHeader, "user-agent": "codeagent", ...headers },
      ...(body === undefined ? {} : { body }),
      signal,
      limits: { totalMs: definition.timeoutMs, idleMs: definition.timeoutMs },
    });
    return resultOf(answer, response);
  }

  async function resultOf(answer: GuardedResponse, pointer: string | undefined): Promise<ToolResult> {
    const { status } = answer;
    const { kind, contentType, text, bytes } = await readBody(answer);
    const metadata = { status: String(status), contentType };
    if (status < 200 || status > 299) {
      const words = STATUS_CODES[status] === undefined ? "" : ` ${STATUS_CODES[status]}`;
      const error = `the service answered ${status}${words}${retryNote(answer.headers["retry-after"])}`;
      return { success: false, output: boundedText(blank(text), errorBodyBytes).text, error, metadata };
    }
    if (kind === undefined) {
      const size = bytes === undefined ? "of unknown length" : `${bytes} bytes long`;
      const error = `the service answered with ${contentType === "" ? "no text" : contentType}, ${size}; only text is taken`;
      return { success: false, output: "", error: blank(error), metadata };
    }
    if (pointer === undefined) return { success: true, output: text === "" ? "[no content]" : blank(text), metadata };
    return { ...partOf(text, pointer), metadata };
  }

  function partOf(text: string, pointer: string): ToolResult {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return { success: false, output: boundedText(blank(text), errorBodyBytes).text, error: "the answer is not JSON" };
    }
    try {
      const part = valueAt(value, pointer);
      return { success: true, output: blank(typeof part === "string" ? part : JSON.stringify(part)) };
    } catch (error) {
      const why = error instanceof Error ? error.message : "it cannot be read";
      const output = boundedText(blank(text), errorBodyBytes).text;
      return { success: false, output, error: `the answer is not as it was expected: ${why}` };
    }
  }
}

function retryNote(header: string | undefined): string {
  if (header === undefined) return "";
  if (/^\d{1,9}$/.test(header)) return `; it may be asked again in ${Number(header)} s`;
  const timeMs = Date.parse(header);
  return Number.isNaN(timeMs) ? "" : `; it may be asked again at ${new Date(timeMs).toISOString()}`;
}
