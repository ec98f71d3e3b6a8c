import { AgentError } from "../chat/error.ts";
import { objectOf, textOf } from "../dialect/json.ts";
import { askGithub, type GithubAnswer, isSafeForSecrets } from "./ask-github.ts";
import { copilotClientHeaders } from "./copilot.ts";
import {
  type CopilotLogin,
  copilotLoginFile,
  isToken,
  readCopilotLogin,
  stampOf,
  tokenUrlOf,
} from "./copilot-login.ts";
import { type Credential, type Credentials, isSecret } from "./credentials.ts";

export interface CopilotCredentialsOptions {
  /**
   * Read once: `COPILOT_GITHUB_TOKEN`, a GitHub token to trade, wins over the login of the data directory;
   * `COPILOT_BASE_URL` over the API's address that GitHub names; `COPILOT_TOKEN_URL` is asked for the trade in place of
   * GitHub's own address.
   */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Where `codeagent login copilot` keeps the login; absent means that only the environment has one. */
  readonly dataDir?: string;
  /** In place of the environment's token and API address. */
  readonly settings?: { readonly apiKey?: string; readonly baseUrl?: string };
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Longest wait for GitHub, in milliseconds; default 15 s. */
  readonly limitMs?: number;
}

export interface CopilotCredentials extends Credentials {
  /** What is missing, as the end of a sentence about the provider; it may change as people log in and out. */
  missing(): string | undefined;
}

/** A Copilot token as it was traded. */
interface Held {
  readonly credential: Credential;
  readonly githubToken: string;
  readonly fetchedAtMs: number;
  /** It took the place of one that the API had refused shortly before. */
  readonly afterRefusal: boolean;
  /** From then on a new one is fetched. */
  readonly renewAtMs: number;
  readonly expiresAtMs: number;
}

/** A trade under way, for all calls that wait for it. */
interface Trade {
  readonly githubToken: string;
  readonly result: Promise<Held>;
  readonly stop: AbortController;
  waiting: number;
}

/** A login and the words on what to do when GitHub no longer takes it. */
interface Source extends CopilotLogin {
  readonly remedy: string;
}

const defaultLimitMs = 15_000;
/** How long before its end a token is renewed, in milliseconds; of short-lived ones the last fifth. */
const marginMs = 5 * 60_000;
/** How long a token is kept that came without a word on that, in milliseconds. */
const untoldLifeMs = 10 * 60_000;
/** How long a token that is still good is used after it could not be renewed, in milliseconds. */
const renewalPauseMs = 30_000;
/** How soon a refusal counts as another one of the same kind, in milliseconds. */
const refusalMemoryMs = 60_000;
const maxToldCharacters = 300;

/**
 * Trades a GitHub token for the short-lived one that Copilot's API takes, once for all calls that wait, and again some
 * time before that one ends. A login made or removed meanwhile counts from the next call on.
 *
 * What is known of the trade comes from the source of `microsoft/vscode-copilot-chat` (`copilotTokenManager.ts`): GET
 * with `authorization: token …`, answered by `token`, `expires_at` in seconds since 1970, `refresh_in` in seconds and
 * `endpoints.api`.
 *
 * `take` fails with `failed_precondition` where nobody is logged in or an address is wrong, `provider_auth` where GitHub
 * no longer takes the login or finds no subscription, `rate_limited`, `provider_unavailable` for 5xx, no connection and
 * the limit, `provider_protocol` for anything else. No message holds a token.
 */
export function createCopilotCredentials(options: CopilotCredentialsOptions): CopilotCredentials {
  const { env, now, settings = {}, limitMs = defaultLimitMs } = options;
  const file = options.dataDir === undefined ? undefined : copilotLoginFile(options.dataDir);
  const givenToken = settings.apiKey?.trim() || env["COPILOT_GITHUB_TOKEN"]?.trim();
  const baseUrl = addressOf("COPILOT_BASE_URL", settings.baseUrl?.trim() || env["COPILOT_BASE_URL"]?.trim());
  const tokenUrl = addressOf("COPILOT_TOKEN_URL", env["COPILOT_TOKEN_URL"]?.trim());
  const histories = new WeakMap<Credential, Held>();
  let kept: { readonly stamp: string; readonly login: CopilotLogin | undefined } | undefined;
  let held: Held | undefined;
  let trade: Trade | undefined;
  let refusedAtMs = Number.NEGATIVE_INFINITY;

  const sourceNow = (): Source | undefined => {
    if (givenToken) {
      const remedy = "set another COPILOT_GITHUB_TOKEN, or unset it and run `codeagent login copilot`";
      return { host: new URL("https://github.com"), githubToken: givenToken, remedy };
    }
    if (file === undefined) return undefined;
    const stamp = stampOf(file);
    if (kept?.stamp !== stamp) kept = { stamp, login: readCopilotLogin(file) };
    return kept.login === undefined ? undefined : { ...kept.login, remedy: "run `codeagent login copilot`" };
  };

  const missing = (): string | undefined => {
    for (const address of [baseUrl, tokenUrl]) if (typeof address === "string") return address;
    const source = sourceNow();
    if (source === undefined) return "has no login; run `codeagent login copilot`, or set COPILOT_GITHUB_TOKEN";
    return isToken(source.githubToken)
      ? undefined
      : "has a token with characters that no header can carry; correct COPILOT_GITHUB_TOKEN";
  };

  const ask = async (source: Source, signal: AbortSignal): Promise<GithubAnswer> => {
    const url = tokenUrl instanceof URL ? tokenUrl : tokenUrlOf(source.host);
    const { "copilot-integration-id": _, ...headers } = copilotClientHeaders;
    return askGithub({
      method: "GET",
      url,
      headers: { ...headers, authorization: `token ${source.githubToken}` },
      signal,
      limitMs,
    });
  };

  const fetchToken = async (first: Source, signal: AbortSignal): Promise<Held> => {
    let source = first;
    let answer = await ask(source, signal);
    if (isRefusal(answer)) {
      // Somebody may have logged in anew while we asked.
      const other = sourceNow();
      if (other !== undefined && other.githubToken !== source.githubToken) {
        source = other;
        answer = await ask(source, signal);
      }
    }
    if (answer.status !== 200) throw refusalOf(answer, source, now());
    return heldOf(answer, source);
  };

  const heldOf = ({ body }: GithubAnswer, { githubToken }: Source): Held => {
    const token = textOf(body["token"]);
    if (!isToken(token)) throw failure("provider_protocol", "GitHub answered without a token for Copilot");
    const told = textOf(objectOf(body["endpoints"])["api"]);
    const api = told === "" ? undefined : plainUrl(told);
    if (told !== "" && api === undefined)
      throw failure("provider_protocol", "GitHub names an address for Copilot's API that is no https: URL");
    const url = baseUrl instanceof URL ? baseUrl : api;
    const credential: Credential = {
      ...(url === undefined ? {} : { baseUrl: url }),
      headers: { authorization: `Bearer ${token}` },
      secrets: [token, encodeURIComponent(token), githubToken].filter(isSecret),
    };
    const fetchedAtMs = now();
    const made: Held = {
      credential,
      githubToken,
      fetchedAtMs,
      afterRefusal: fetchedAtMs - refusedAtMs < refusalMemoryMs,
      ...lifeOf(body["expires_at"], body["refresh_in"], fetchedAtMs),
    };
    histories.set(credential, made);
    return made;
  };

  const begin = (source: Source): Trade => {
    const stop = new AbortController();
    const run = async (): Promise<Held> => {
      try {
        const made = await fetchToken(source, stop.signal);
        if (trade === begun) held = made;
        return made;
      } finally {
        if (trade === begun) trade = undefined;
      }
    };
    const begun: Trade = { githubToken: source.githubToken, result: run(), stop, waiting: 0 };
    // Whoever waits hears of it; nobody may.
    begun.result.catch(() => undefined);
    return begun;
  };

  /** Waits for the trade under way or begins one; the last one to give up stops it. */
  const join = async (source: Source, signal: AbortSignal): Promise<Held> => {
    if (trade?.githubToken !== source.githubToken) trade = begin(source);
    const joined = trade;
    joined.waiting++;
    const aborted = Promise.withResolvers<never>();
    const onAbort = () => aborted.reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([joined.result, aborted.promise]);
    } finally {
      signal.removeEventListener("abort", onAbort);
      joined.waiting--;
      if (joined.waiting === 0) {
        if (trade === joined) trade = undefined;
        joined.stop.abort();
      }
    }
  };

  return {
    missing,
    async take(signal) {
      signal.throwIfAborted();
      const wrong = missing();
      const source = sourceNow();
      if (wrong !== undefined || source === undefined) {
        throw new AgentError("failed_precondition", `the provider copilot ${wrong}`, {
          detail: { retryable: false, provider: "copilot" },
        });
      }
      if (held?.githubToken !== source.githubToken) held = undefined;
      if (held !== undefined && now() < held.renewAtMs) return held.credential;
      try {
        return (await join(source, signal)).credential;
      } catch (error) {
        const passing = error instanceof AgentError && error.detail.retryable === true;
        if (!passing || signal.aborted || held === undefined || now() >= held.expiresAtMs) throw error;
        held = { ...held, renewAtMs: now() + renewalPauseMs };
        return held.credential;
      }
    },
    refused(credential) {
      const { fetchedAtMs, afterRefusal } = histories.get(credential) ?? { fetchedAtMs: now(), afterRefusal: true };
      if (held?.credential === credential) held = undefined;
      refusedAtMs = now();
      return !afterRefusal || now() - fetchedAtMs >= refusalMemoryMs ? now() : undefined;
    },
    limited: () => undefined,
  };
}

/**
 * When a token is renewed and when it ends. A clock of ours that is ahead makes it seem to have ended before it came;
 * then only what GitHub says in seconds from now counts.
 */
function lifeOf(
  expiresAt: unknown,
  refreshIn: unknown,
  nowMs: number,
): { readonly renewAtMs: number; readonly expiresAtMs: number } {
  const lifeMs = typeof expiresAt === "number" ? expiresAt * 1000 - nowMs : 0;
  const refreshMs = typeof refreshIn === "number" && refreshIn > 0 ? refreshIn * 1000 : undefined;
  if (lifeMs <= 0) {
    const renewInMs = refreshMs ?? untoldLifeMs;
    return { renewAtMs: nowMs + renewInMs, expiresAtMs: nowMs + renewInMs };
  }
  const latestMs = lifeMs - Math.min(marginMs, lifeMs / 5);
  return { renewAtMs: nowMs + Math.min(refreshMs ?? latestMs, latestMs), expiresAtMs: nowMs + lifeMs };
}

/** An address of the environment; where it is wrong, what is missing. */
function addressOf(name: string, text: string | undefined): URL | string | undefined {
  if (!text) return undefined;
  return plainUrl(text) ?? `has an address that is no https: URL; correct ${name}`;
}

/** A URL that tokens may be sent to, without user and password. */
function plainUrl(text: string): URL | undefined {
  const url = URL.parse(text);
  if (url === null || !isSafeForSecrets(url)) return undefined;
  url.username = "";
  url.password = "";
  url.hash = "";
  return url;
}

function isRefusal({ status }: GithubAnswer): boolean {
  return status === 401 || status === 403 || status === 404;
}

function refusalOf(answer: GithubAnswer, source: Source, nowMs: number): AgentError {
  const { status, body } = answer;
  const told = textOf(objectOf(body["error_details"])["message"]) || textOf(body["message"]);
  const words = told.replaceAll(source.githubToken, "***").replace(/\s+/g, " ").trim().slice(0, maxToldCharacters);
  const answered = `GitHub answered HTTP ${status} to the login${words === "" ? "" : ` ("${words.toWellFormed()}")`}`;
  const isLimited = status === 429 || (status === 403 && /rate limit/i.test(told));
  if (isLimited) {
    const retryAfterMs = waitOf(answer, nowMs);
    return failure("rate_limited", `${answered}; it is asked too often`, status, retryAfterMs);
  }
  if (isRefusal(answer)) {
    const why = "it is no longer valid or has no Copilot subscription";
    return failure("provider_auth", `${answered}: ${why}; ${source.remedy}`, status);
  }
  if (status >= 500) return failure("provider_unavailable", answered, status);
  const hint = status >= 300 && status < 400 ? ", a redirect, which is not followed; check COPILOT_TOKEN_URL" : "";
  return failure("provider_protocol", `${answered}${hint}`, status);
}

function waitOf({ headers }: GithubAnswer, nowMs: number): number | undefined {
  const seconds = headers["retry-after"];
  if (seconds !== undefined && /^\d{1,6}$/.test(seconds)) return Number(seconds) * 1000;
  const resetAt = headers["x-ratelimit-reset"];
  if (typeof resetAt !== "string" || !/^\d{1,12}$/.test(resetAt)) return undefined;
  return Math.max(0, Number(resetAt) * 1000 - nowMs);
}

function failure(
  kind: "provider_auth" | "rate_limited" | "provider_unavailable" | "provider_protocol",
  message: string,
  upstreamStatus?: number,
  retryAfterMs?: number,
): AgentError {
  return new AgentError(kind, message, {
    detail: {
      retryable: kind === "rate_limited" || kind === "provider_unavailable",
      provider: "copilot",
      ...(upstreamStatus === undefined ? {} : { upstreamStatus }),
    },
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}
