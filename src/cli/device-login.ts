import { AgentError } from "../chat/error.ts";
import { askGithub, isSafeForSecrets } from "../provider/ask-github.ts";
import { isToken } from "../provider/copilot-login.ts";

/** What a person has to do in a browser. */
export interface DeviceCode {
  readonly userCode: string;
  readonly url: string;
  readonly expiresInMs: number;
}

export interface DeviceLoginOptions {
  /** GitHub, or the server of an enterprise. */
  readonly host: URL;
  /** Id of the app that the login is for. */
  readonly clientId: string;
  /** Shows what is to be done; called once, before the waiting. */
  readonly show: (code: DeviceCode) => void;
  /** Gives up; its reason is then thrown. */
  readonly signal: AbortSignal;
  /** Waits; fails when the signal is aborted. */
  readonly delay: (delayMs: number, signal: AbortSignal) => Promise<unknown>;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
  /** Longest wait for one answer, in milliseconds; default 15 s. */
  readonly limitMs?: number;
}

const scope = "read:user";
const defaultIntervalS = 5;
/** What GitHub adds to the pause when it is asked too soon, in seconds. */
const slowDownS = 5;
const longestIntervalS = 60;
const defaultLifeS = 900;
const longestLifeS = 3600;

/**
 * Lets a person log in with a browser, on whatever machine: GitHub's device flow (GitHub Docs, "Authorizing OAuth apps",
 * section "Device flow"; RFC 8628).
 * @returns a GitHub token.
 * @throws {Error} one sentence, for a person, when the login did not come about; the signal's reason when given up.
 */
export async function deviceLogin(options: DeviceLoginOptions): Promise<string> {
  const { host, clientId, signal, delay, now } = options;
  const ask = (path: string, body: Readonly<Record<string, string>>) =>
    askGithub({
      method: "POST",
      url: new URL(path, host),
      headers: {},
      body: { client_id: clientId, ...body },
      signal,
      limitMs: options.limitMs ?? 15_000,
    });

  const { status, body: begun } = await ask("/login/device/code", { scope });
  const deviceCode = begun["device_code"];
  const userCode = begun["user_code"];
  if (typeof deviceCode !== "string" || typeof userCode !== "string") {
    const why = typeof begun["error"] === "string" ? describe(begun) : `HTTP ${status}`;
    throw new Error(`${host.host} gives no code to log in with (${why}); check --host`);
  }
  const lifeMs = seconds(begun["expires_in"], defaultLifeS, longestLifeS) * 1000;
  const shown = typeof begun["verification_uri"] === "string" ? URL.parse(begun["verification_uri"]) : null;
  const url = shown !== null && isSafeForSecrets(shown) ? shown : new URL("/login/device", host);
  options.show({ userCode, url: url.href, expiresInMs: lifeMs });

  const expired = "the code was not entered in time; begin the login again";
  const endMs = now() + lifeMs;
  let intervalS = seconds(begun["interval"], defaultIntervalS, longestIntervalS);
  for (;;) {
    await delay(intervalS * 1000, signal);
    signal.throwIfAborted();
    if (now() >= endMs) throw new Error(expired);
    let answer: Awaited<ReturnType<typeof ask>>;
    try {
      answer = await ask("/login/oauth/access_token", {
        device_code: deviceCode,
        grant_type: "urn:ietf:params:oauth:grant-type:device_code",
      });
    } catch (error) {
      // The person may be in the middle of it; a network that is away for a moment must not cost the code.
      if (!(error instanceof AgentError) || error.detail.retryable !== true) throw error;
      intervalS = Math.min(intervalS * 2, longestIntervalS);
      continue;
    }
    const { body } = answer;
    const token = body["access_token"];
    if (typeof token === "string" && isToken(token)) return token;
    switch (body["error"]) {
      case "authorization_pending":
        break;
      case "slow_down":
        intervalS = Math.max(
          Math.min(intervalS + slowDownS, longestIntervalS),
          seconds(body["interval"], 0, longestIntervalS),
        );
        break;
      case "expired_token":
      case "token_expired":
        throw new Error(expired);
      case "access_denied":
        throw new Error("the login was refused in the browser; begin it again if that was a mistake");
      default:
        if (answer.status < 500 && answer.status !== 429) {
          const why = typeof body["error"] === "string" ? describe(body) : `HTTP ${answer.status}`;
          throw new Error(`${host.host} does not complete the login (${why})`);
        }
        intervalS = Math.min(intervalS * 2, longestIntervalS);
    }
  }
}

function describe(body: Readonly<Record<string, unknown>>): string {
  const words = [body["error"], body["error_description"]].filter((word) => typeof word === "string");
  return words.join(": ").slice(0, 300).toWellFormed();
}

/** A number of seconds from outside, kept within 1 and `most`; 0 is only had as the default. */
function seconds(value: unknown, byDefault: number, most: number): number {
  if (typeof value !== "number" || !Number.isFinite(value)) return byDefault;
  return Math.min(Math.max(value, 1), most);
}
