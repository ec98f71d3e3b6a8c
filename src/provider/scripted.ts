import { createHash } from "node:crypto";
import { parse } from "yaml";
import { AgentError } from "../chat/error.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "../dialect/json.ts";
import type { HttpRequest, SendHttp } from "./http-request.ts";
import type { ProviderSpec } from "./provider-spec.ts";

/** Answers from a script instead of a model: for demos and tests. Its answers call their model `scripted`. */
export const scripted = {
  id: "scripted",
  displayName: "A script",
  dialect: "openai-chat",
  baseUrl: "http://scripted.invalid/v1",
  keyRequired: false,
  features: ["streaming", "tools", "vision", "audio", "files", "thinking", "reasoning", "json_mode"],
} as const satisfies ProviderSpec;

/**
 * One answer of a script. A script is a YAML list of them; the first whose `when` fits the request answers it, as often
 * as it is asked, so a request that is repeated after a crash gets the same answer.
 *
 * ```yaml
 * - when: { role: user, text: list the files }   # all of it must fit; without `when` every request fits
 *   thinking: I should look.
 *   text: Let me look.
 *   tool_calls: [{ name: list_files, arguments: { pattern: "*.ts" } }]
 * - when: { tool: list_files, text: { regex: "\\.ts$" } }
 *   text: There are TypeScript files.
 *   usage: { prompt_tokens: 20, completion_tokens: 5 }
 * ```
 */
interface ScriptedTurn {
  readonly when: {
    /** Role of the last message, as on the wire. */
    readonly role?: string;
    /** Text of the last message: a plain string has to occur in it. */
    readonly text?: { readonly equals?: string; readonly contains?: string; readonly regex?: RegExp };
    /** Name of the function whose call the last message answers. */
    readonly tool?: string;
    /** The model part of `scripted/model`. */
    readonly model?: string;
    /** Which model call since the last user message, from 1. */
    readonly nth?: number;
  };
  readonly thinking: string;
  readonly text: string;
  /** How often `text` is said; default 1. */
  readonly repeat: number;
  /** `arguments` is an object or raw text, which may be no JSON. Ids are made from the request where they are missing. */
  readonly toolCalls: readonly { readonly name: string; readonly arguments: string; readonly id?: string }[];
  /** As Chat Completions tells it; absent means the answer has no usage. */
  readonly usage?: JsonObject;
  /** Default `tool_calls` or `stop`. */
  readonly finishReason?: string;
  /** Characters per delta; default 20. */
  readonly chunk: number;
  /** Wait before the first delta, in milliseconds. */
  readonly firstDelayMs: number;
  /** Wait between deltas, in milliseconds; with 0 the answer comes in one piece. */
  readonly delayMs: number;
  /** Answers with this HTTP error instead. `retry_after` is in seconds. */
  readonly error?: {
    readonly status: number;
    readonly message: string;
    readonly type: string;
    readonly retryAfter?: number;
  };
  /** Breaks the connection after so many deltas. */
  readonly cutAfter?: number;
  /** Answers only the first request that fits; for failures that a second try gets past. */
  readonly once: boolean;
}

/**
 * A transport that answers from a script, with the bytes a Chat Completions endpoint would send.
 * @param scriptText YAML; see {@link ScriptedTurn}.
 * @param delay waits; fails when its signal is aborted.
 * @throws {AgentError} `invalid_request` for a script that cannot be read, naming the turn and the key.
 */
export function createScriptedSender(
  scriptText: string,
  delay: (delayMs: number, signal: AbortSignal) => Promise<void>,
): SendHttp {
  const turns = parseScript(scriptText);
  const used = new Set<ScriptedTurn>();
  return async (request) => {
    request.signal.throwIfAborted();
    const asked = readRequest(request);
    const turn = turns.find((candidate) => !used.has(candidate) && fits(candidate, asked));
    if (turn === undefined) return jsonResponse(400, {}, errorBody(unplanned(asked, turns), "invalid_request_error"));
    if (turn.once) used.add(turn);
    if (turn.error !== undefined) {
      const { status, message, type, retryAfter } = turn.error;
      const headers: Record<string, string> = retryAfter === undefined ? {} : { "retry-after": String(retryAfter) };
      return jsonResponse(status, headers, errorBody(message, type));
    }
    return {
      status: 200,
      headers: { "content-type": "text/event-stream", "x-request-id": `scripted-${asked.hash}` },
      body: answerBody(turn, asked, request, delay),
      close() {},
    };
  };
}

interface Asked {
  readonly model: string;
  readonly role: string;
  readonly text: string;
  readonly tool: string;
  readonly nth: number;
  readonly hash: string;
}

function readRequest({ body }: HttpRequest): Asked {
  const request = objectOf(parseJson(body));
  const messages = arrayOf(request["messages"]).map(objectOf);
  const last = messages.at(-1) ?? {};
  const lastUser = messages.findLastIndex((message) => message["role"] === "user");
  const calls = messages.flatMap((message) => arrayOf(message["tool_calls"])).map(objectOf);
  const call = last["role"] === "tool" ? calls.findLast(({ id }) => id === last["tool_call_id"]) : undefined;
  return {
    model: textOf(request["model"]),
    role: textOf(last["role"]),
    text: contentText(last["content"]),
    tool: textOf(objectOf(call?.["function"])["name"]),
    nth: messages.slice(lastUser + 1).filter((message) => message["role"] === "assistant").length + 1,
    hash: createHash("sha256").update(body).digest("hex").slice(0, 12),
  };
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  return arrayOf(content)
    .map((part) => textOf(objectOf(part)["text"]))
    .join("");
}

function fits({ when }: ScriptedTurn, asked: Asked): boolean {
  const { text } = when;
  return (
    (when.role === undefined || when.role === asked.role) &&
    (when.tool === undefined || when.tool === asked.tool) &&
    (when.model === undefined || when.model === asked.model) &&
    (when.nth === undefined || when.nth === asked.nth) &&
    (text?.equals === undefined || text.equals === asked.text) &&
    (text?.contains === undefined || asked.text.includes(text.contains)) &&
    (text?.regex === undefined || text.regex.test(asked.text))
  );
}

function unplanned(asked: Asked, turns: readonly ScriptedTurn[]): string {
  const tool = asked.tool === "" ? "" : `, tool ${asked.tool}`;
  const matchers = turns.map(({ when }, position) => {
    const { text, ...rest } = when;
    const shown = text === undefined ? rest : { ...rest, text: { ...text, regex: text.regex?.source } };
    return `${position + 1}: ${JSON.stringify(shown)}`;
  });
  const said = JSON.stringify(asked.text.slice(0, 200));
  const listed = matchers.join("; ").slice(0, 1000);
  return `no scripted turn fits the last message (role ${asked.role || "none"}${tool}, nth ${asked.nth}, model ${asked.model}, text ${said}); the turns are ${listed}`;
}

function errorBody(message: string, type: string): JsonObject {
  return { error: { message, type, code: null, param: null } };
}

function jsonResponse(status: number, headers: Readonly<Record<string, string>>, body: JsonObject) {
  const bytes = Buffer.from(JSON.stringify(body));
  return {
    status,
    headers: { "content-type": "application/json", ...headers },
    body: (async function* () {
      yield bytes;
    })(),
    close() {},
  };
}

async function* answerBody(
  turn: ScriptedTurn,
  asked: Asked,
  request: HttpRequest,
  delay: (delayMs: number, signal: AbortSignal) => Promise<void>,
): AsyncGenerator<Uint8Array> {
  if (turn.firstDelayMs > 0) await delay(turn.firstDelayMs, request.signal);
  let waiting = "";
  let deltas = 0;
  for (const delta of deltasOf(turn, asked)) {
    if (turn.cutAfter !== undefined && deltas >= turn.cutAfter) break;
    if (deltas > 0 && turn.delayMs > 0) {
      yield Buffer.from(waiting);
      waiting = "";
      await delay(turn.delayMs, request.signal);
    }
    waiting += chunkText(asked, { choices: [{ index: 0, delta, finish_reason: null }] });
    deltas++;
  }
  if (turn.cutAfter !== undefined) {
    if (waiting !== "") yield Buffer.from(waiting);
    throw new AgentError(
      "provider_unavailable",
      `${request.provider} broke the connection in the middle of its answer`,
      {
        detail: { retryable: true, provider: request.provider },
      },
    );
  }
  const finishReason = turn.finishReason ?? (turn.toolCalls.length > 0 ? "tool_calls" : "stop");
  waiting += chunkText(asked, { choices: [{ index: 0, delta: {}, finish_reason: finishReason }] });
  if (turn.usage !== undefined) waiting += chunkText(asked, { choices: [], usage: turn.usage });
  yield Buffer.from(`${waiting}data: [DONE]\n\n`);
}

function* deltasOf(turn: ScriptedTurn, asked: Asked): Generator<JsonObject> {
  for (const text of pieces(turn.thinking, turn.chunk)) yield { reasoning_content: text };
  for (const text of pieces(turn.text.repeat(turn.repeat), turn.chunk)) yield { content: text };
  for (const [index, call] of turn.toolCalls.entries()) {
    const id = call.id ?? `call_${asked.hash}_${index}`;
    yield { tool_calls: [{ index, id, type: "function", function: { name: call.name, arguments: "" } }] };
    for (const text of pieces(call.arguments, turn.chunk)) {
      yield { tool_calls: [{ index, function: { arguments: text } }] };
    }
  }
}

function* pieces(text: string, length: number): Generator<string> {
  for (let start = 0; start < text.length; start += length) yield text.slice(start, start + length);
}

function chunkText(asked: Asked, chunk: JsonObject): string {
  const head = { id: `scripted-${asked.hash}`, object: "chat.completion.chunk", created: 0, model: "scripted" };
  return `data: ${JSON.stringify({ ...head, ...chunk })}\n\n`;
}

/** Reads a script strictly: a key that is misspelt is an error, not a turn that never fits. */
function parseScript(scriptText: string): ScriptedTurn[] {
  let script: unknown;
  try {
    script = parse(scriptText);
  } catch (error) {
    throw scriptError("the script is no YAML", error instanceof Error ? (error.message.split("\n")[0] ?? "") : "");
  }
  if (!Array.isArray(script)) throw scriptError("the script", "must be a list of turns");
  return script.map((turn: unknown, position) => parseTurn(turn, `turn ${position + 1}`));
}

function scriptError(where: string, what: string): AgentError {
  return new AgentError("invalid_request", `scripted provider: ${where}: ${what}`);
}

function parseTurn(value: unknown, where: string): ScriptedTurn {
  const turn = fields(value, where, [
    "when",
    "thinking",
    "text",
    "repeat",
    "tool_calls",
    "usage",
    "finish_reason",
    "chunk",
    "delay_ms",
    "first_delay_ms",
    "error",
    "cut_after",
    "once",
  ]);
  const once = turn["once"] ?? false;
  if (typeof once !== "boolean") throw scriptError(`${where}, once`, "must be true or false");
  const toolCalls = turn["tool_calls"] ?? [];
  if (!Array.isArray(toolCalls)) throw scriptError(`${where}, tool_calls`, "must be a list");
  const usage = turn["usage"] ?? undefined;
  if (usage !== undefined && !isJsonObject(usage)) throw scriptError(`${where}, usage`, "must be a mapping");
  const finishReason = optionalText(turn, "finish_reason", where);
  const cutAfter = optionalCount(turn, "cut_after", where, 0);
  return {
    when: parseWhen(turn["when"] ?? {}, `${where}, when`),
    thinking: optionalText(turn, "thinking", where) ?? "",
    text: optionalText(turn, "text", where) ?? "",
    repeat: optionalCount(turn, "repeat", where, 1) ?? 1,
    toolCalls: toolCalls.map((call: unknown, position) => parseToolCall(call, `${where}, tool call ${position + 1}`)),
    chunk: optionalCount(turn, "chunk", where, 1) ?? 20,
    delayMs: optionalCount(turn, "delay_ms", where, 0) ?? 0,
    firstDelayMs: optionalCount(turn, "first_delay_ms", where, 0) ?? 0,
    once,
    ...(usage === undefined ? {} : { usage }),
    ...(finishReason === undefined ? {} : { finishReason }),
    ...(cutAfter === undefined ? {} : { cutAfter }),
    ...(turn["error"] === undefined ? {} : { error: parseError(turn["error"], `${where}, error`) }),
  };
}

function parseWhen(value: unknown, where: string): ScriptedTurn["when"] {
  const when = fields(value, where, ["role", "text", "tool", "model", "nth"]);
  const role = optionalText(when, "role", where);
  const tool = optionalText(when, "tool", where);
  const model = optionalText(when, "model", where);
  const nth = optionalCount(when, "nth", where, 1);
  return {
    ...(role === undefined ? {} : { role }),
    ...(tool === undefined ? {} : { tool }),
    ...(model === undefined ? {} : { model }),
    ...(nth === undefined ? {} : { nth }),
    ...(when["text"] === undefined ? {} : { text: parseTextMatcher(when["text"], `${where}, text`) }),
  };
}

function parseTextMatcher(value: unknown, where: string): NonNullable<ScriptedTurn["when"]["text"]> {
  if (typeof value === "string") return { contains: value };
  const matcher = fields(value, where, ["equals", "contains", "regex"]);
  const equals = optionalText(matcher, "equals", where);
  const contains = optionalText(matcher, "contains", where);
  const source = optionalText(matcher, "regex", where);
  return {
    ...(equals === undefined ? {} : { equals }),
    ...(contains === undefined ? {} : { contains }),
    ...(source === undefined ? {} : { regex: parseRegex(source, where) }),
  };
}

function parseRegex(source: string, where: string): RegExp {
  try {
    return new RegExp(source, "u");
  } catch (error) {
    throw scriptError(`${where}, regex`, error instanceof Error ? error.message : "is no regular expression");
  }
}

function parseToolCall(value: unknown, where: string): ScriptedTurn["toolCalls"][number] {
  const call = fields(value, where, ["name", "arguments", "id"]);
  const name = optionalText(call, "name", where);
  if (!name) throw scriptError(where, "needs a name");
  const given = call["arguments"] ?? {};
  if (typeof given !== "string" && !isJsonObject(given)) {
    throw scriptError(`${where}, arguments`, "must be a mapping or a text");
  }
  const id = optionalText(call, "id", where);
  const argumentsText = typeof given === "string" ? given : JSON.stringify(given);
  return { name, arguments: argumentsText, ...(id === undefined ? {} : { id }) };
}

function parseError(value: unknown, where: string): NonNullable<ScriptedTurn["error"]> {
  const error = fields(value, where, ["status", "message", "type", "retry_after"]);
  const status = optionalCount(error, "status", where, 400) ?? 500;
  const retryAfter = optionalCount(error, "retry_after", where, 0);
  return {
    status,
    message: optionalText(error, "message", where) ?? "a scripted error",
    type: optionalText(error, "type", where) ?? "scripted_error",
    ...(retryAfter === undefined ? {} : { retryAfter }),
  };
}

function fields(value: unknown, where: string, known: readonly string[]): JsonObject {
  if (!isJsonObject(value)) throw scriptError(where, "must be a mapping");
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw scriptError(where, `does not know the key ${key}; it knows ${known.join(", ")}`);
  }
  return value;
}

function optionalText(from: JsonObject, key: string, where: string): string | undefined {
  const value = from[key] ?? undefined;
  if (value === undefined || typeof value === "string") return value;
  throw scriptError(`${where}, ${key}`, "must be a text (put it in quotes)");
}

function optionalCount(from: JsonObject, key: string, where: string, least: number): number | undefined {
  const value = from[key] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= least) return value;
  throw scriptError(`${where}, ${key}`, `must be a whole number from ${least}`);
}
