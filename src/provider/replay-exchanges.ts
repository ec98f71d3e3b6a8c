import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextRound, setTimeout as wait } from "node:timers/promises";
import { AgentError } from "../chat/error.ts";
import { type Cassette, cassetteFromText, jsonOrText, type RecordedError } from "./cassette.ts";
import { fileFault } from "./file-fault.ts";
import type { HttpRequest, SendHttp } from "./http-request.ts";
import { type Difference, requestDifferences } from "./request-differences.ts";

export interface ReplayOptions {
  /** How long a client may stay where the recorded one left, in milliseconds; default 5 s. */
  readonly leaveTimeoutMs?: number;
}

const defaultLeaveTimeoutMs = 5000;

/**
 * Answers from the cassettes of a directory, which are read once, and never from a network. A request is answered by the
 * first unused cassette of the same provider and path with an equal body (see {@link requestDifferences}); each answers
 * once. What the recorded client asked again at once with another key is answered by what came for the last of them: a
 * replay has no keys to change. Of the paths the one may have more in front, so that a replay needs no base URLs. Answers
 * come in the recorded pieces, without delays; where the recorded client left, this one has to leave as well.
 * @returns a sender that fails with `failed_precondition` and the reason `CASSETTE_MISS` for a request that no unused
 * cassette answers; its message, below 2 KB, shows the nearest ones and where they differ.
 * @throws {AgentError} `invalid_request` for a directory that can't be read or has no cassette, and for a cassette that
 * is broken, naming the file and the member.
 */
export function replayExchanges(directory: string, options: ReplayOptions = {}): SendHttp {
  const cassettes = readCassettes(directory);
  const used = new Set<NamedCassette>();
  const leaveTimeoutMs = options.leaveTimeoutMs ?? defaultLeaveTimeoutMs;
  return async (request) => {
    request.signal.throwIfAborted();
    const asked = jsonOrText(request.body);
    const fitting = cassettes.filter((cassette) => fits(cassette, request, asked));
    const nextUnused = () => fitting.find((candidate) => !used.has(candidate));
    let cassette = nextUnused();
    if (cassette === undefined) throw miss(request, asked, cassettes, used, fitting);
    used.add(cassette);
    for (let next = nextUnused(); next?.keyChanges === cassette.keyChanges + 1; next = nextUnused()) {
      cassette = next;
      used.add(cassette);
    }
    const { response, error } = cassette;
    const closed = new AbortController();
    const left = () => untilLeft(cassette, request, closed.signal, leaveTimeoutMs);
    if (response === undefined) throw error === undefined ? await left() : failure(error, request);
    return {
      status: response.status,
      headers: response.headers,
      body: bodyOf(cassette, request, left),
      close: () => closed.abort(),
    };
  };
}

interface NamedCassette extends Cassette {
  /** The file's name. */
  readonly name: string;
}

function fits({ provider, url, request: recorded }: Cassette, request: HttpRequest, asked: unknown): boolean {
  return (
    provider === request.provider &&
    isSamePath(new URL(url).pathname, request.url.pathname) &&
    requestDifferences(recorded, asked).next().done === true
  );
}

function isSamePath(recorded: string, asked: string): boolean {
  return recorded.endsWith(asked) || asked.endsWith(recorded);
}

async function* bodyOf(
  { response, ended, error }: Cassette,
  request: HttpRequest,
  left: () => Promise<unknown>,
): AsyncGenerator<Uint8Array> {
  const body = response?.body ?? new Uint8Array();
  let start = 0;
  for (const size of response?.chunkBytes ?? [body.byteLength]) {
    request.signal.throwIfAborted();
    // A copy, as its reader may do with it what it likes.
    if (size > 0) yield body.slice(start, start + size);
    start += size;
    // As on a network, others have their turn between two reads.
    await nextRound();
  }
  request.signal.throwIfAborted();
  if (error !== undefined) throw failure(error, request);
  if (ended === "left") throw await left();
}

/**
 * Waits for the client to leave.
 * @throws the reason of its signal.
 */
async function untilLeft(
  { name }: NamedCassette,
  { signal, provider }: HttpRequest,
  closed: AbortSignal,
  timeoutMs: number,
): Promise<AgentError> {
  const end = AbortSignal.any([signal, closed]);
  await wait(timeoutMs, undefined, { signal: end }).catch(() => undefined);
  signal.throwIfAborted();
  return new AgentError(
    "failed_precondition",
    `the recording ${name} ends where its client left, and this one stayed for ${timeoutMs} ms; record the exchange again`,
    { reason: "CASSETTE_ENDED", detail: { retryable: false, provider } },
  );
}

function failure({ kind, message, retryable }: RecordedError, { provider }: HttpRequest): AgentError {
  return new AgentError(kind, message, { detail: { retryable, provider } });
}

// Misses

/** Below the limit that messages of providers have. */
const maxMissBytes = 1900;
const shownCandidates = 3;
const shownDifferences = 5;
/** Cassettes that differ in more places are equally far away. */
const countedDifferences = 200;

function miss(
  request: HttpRequest,
  asked: unknown,
  cassettes: readonly NamedCassette[],
  used: ReadonlySet<NamedCassette>,
  fitting: readonly NamedCassette[],
): AgentError {
  const what = `${request.provider} ${request.url.pathname}`;
  const lines =
    fitting.length > 0
      ? [
          `the request to ${what} was recorded ${fitting.length === 1 ? "once" : `${fitting.length} times`} and is asked once more; each recording answers once`,
          ...fitting.map(({ name }) => `  used: ${name}`),
        ]
      : [
          `no recording answers the request to ${what} (${cassettes.length} recorded, ${used.size} used)`,
          ...nearest(request, asked, cassettes).flatMap(({ cassette, differences }) => [
            `${used.has(cassette) ? "used" : "unused"} ${cassette.name} differs:`,
            ...differences.slice(0, shownDifferences).map((difference) => `  ${sentenceOf(difference)}`),
            ...(differences.length > shownDifferences
              ? [
                  `  and ${differences.length === countedDifferences ? "many" : differences.length - shownDifferences} more`,
                ]
              : []),
          ]),
        ];
  const reason = "CASSETTE_MISS";
  const detail = { retryable: false, provider: request.provider };
  return new AgentError("failed_precondition", boundedLines(lines), { reason, detail });
}

function nearest(request: HttpRequest, asked: unknown, cassettes: readonly NamedCassette[]) {
  return cassettes
    .map((cassette) => {
      const differences = headDifferences(cassette, request);
      for (const difference of requestDifferences(cassette.request, asked)) {
        if (differences.length === countedDifferences) break;
        differences.push(difference);
      }
      return { cassette, differences, weight: differences.reduce((sum, { weight }) => sum + weight, 0) };
    })
    .sort((left, right) => left.weight - right.weight)
    .slice(0, shownCandidates);
}

function headDifferences(cassette: Cassette, request: HttpRequest): Difference[] {
  const path = new URL(cassette.url).pathname;
  const differences: Difference[] = [];
  // Whoever asks another provider by mistake wants to hear of that first.
  if (cassette.provider !== request.provider)
    differences.push({ path: "provider", recorded: cassette.provider, asked: request.provider, weight: 2 });
  if (!isSamePath(path, request.url.pathname))
    differences.push({ path: "path", recorded: path, asked: request.url.pathname, weight: 2 });
  return differences;
}

function sentenceOf({ path, recorded, asked }: Difference): string {
  const words = [
    recorded === undefined ? "not recorded" : `recorded ${recorded}`,
    asked === undefined ? "not asked" : `asked ${asked}`,
  ];
  return `${path === "" ? "the body" : path}: ${words.join(", ")}`;
}

/** As many of the lines as there is room for. */
function boundedLines(lines: readonly string[]): string {
  const kept: string[] = [];
  let bytes = 0;
  for (const line of lines) {
    bytes += Buffer.byteLength(line) + 1;
    if (bytes > maxMissBytes) break;
    kept.push(line);
  }
  return kept.length === lines.length ? kept.join("\n") : `${kept.join("\n")}\n…`;
}

// Files

function readCassettes(directory: string): NamedCassette[] {
  const names = orUnusable(directory, () => readdirSync(directory))
    .filter((name) => name.endsWith(".json") && !name.startsWith("."))
    .sort((left, right) => left.localeCompare(right, "en", { numeric: true }));
  if (names.length === 0) throw unusable(directory, "it has no cassettes; record some first");
  return names.map((name) => {
    const file = join(directory, name);
    return { name, ...orUnusable(file, () => cassetteFromText(readFileSync(file, "utf8"))) };
  });
}

function orUnusable<Value>(path: string, read: () => Value): Value {
  try {
    return read();
  } catch (cause) {
    throw unusable(path, fileFault(cause), cause);
  }
}

function unusable(path: string, why: string, cause?: unknown): AgentError {
  const message = `replay (--replay, CODEAGENT_REPLAY): ${path} can't be used: ${why}`;
  return new AgentError("invalid_request", message, cause === undefined ? {} : { cause });
}
