import { AgentError, type AgentErrorDetail, type AgentErrorKind } from "../chat/error.ts";
import { arrayOf, isJsonObject, objectOf, parseJson, textOf } from "./json.ts";

/** What a provider says went wrong, in its own words. Empty means it did not say. */
export interface UpstreamFault {
  readonly message: string;
  readonly type: string;
  readonly code: string;
  /** An HTTP status told inside the body, as gateways do when the answer itself is a 200. */
  readonly status?: number;
  /** The provider's id of the request, where the body tells it. */
  readonly requestId?: string;
}

/** Reads the error of a body, in any of the shapes providers use; undefined where there is none. */
export function faultFromText(bodyText: string): UpstreamFault | undefined {
  return faultFromJson(parseJson(bodyText));
}

/** As `faultFromText`, of a parsed value. */
export function faultFromJson(told: unknown): UpstreamFault | undefined {
  const value = firstOf(told);
  if (!isJsonObject(value)) return undefined;
  const { error, detail, errors } = value;
  if (isJsonObject(error) && Object.keys(error).length > 0) return faultOf(error);
  if (typeof error === "string" && error !== "") return faultOf({ ...value, message: error });
  const first = arrayOf(errors)[0];
  if (isJsonObject(first)) return faultOf(first);
  if (typeof first === "string") return faultOf({ ...value, message: first });
  if ("choices" in value) return undefined;
  if (typeof detail === "string" && detail !== "") return faultOf({ ...value, message: detail });
  const problem = objectOf(arrayOf(detail)[0]);
  if (typeof problem["msg"] === "string") return faultOf({ ...value, message: problem["msg"] });
  if (isJsonObject(detail)) return faultOf(detail);
  return typeof value["message"] === "string" ? faultOf(value) : undefined;
}

/** The value itself, or of an array its first element: Google's OpenAI endpoint puts its errors into one. */
export function firstOf(value: unknown): unknown {
  return Array.isArray(value) ? arrayOf(value)[0] : value;
}

function faultOf(error: Readonly<Record<string, unknown>>): UpstreamFault {
  const code = error["code"];
  const told = ["status_code", "raw_status_code", "status", "code"].map((field) => statusOf(error[field]));
  const status = told.find((one) => one !== undefined);
  const raw = rawText(objectOf(error["metadata"])["raw"]);
  const message = textOf(error["message"]);
  return {
    message: raw === "" ? message : message === "" ? raw : `${message}: ${raw}`,
    type: textOf(error["type"]),
    code: typeof code === "string" ? code : "",
    ...(status === undefined ? {} : { status }),
  };
}

/** A gateway's upstream error: JSON text, a sentence or an object. */
function rawText(raw: unknown): string {
  if (typeof raw === "string") return faultFromText(raw)?.message || raw;
  return isJsonObject(raw) ? (faultFromJson(raw)?.message ?? "") : "";
}

function statusOf(value: unknown): number | undefined {
  const status = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof status === "number" && Number.isInteger(status) && status >= 400 && status <= 599 ? status : undefined;
}

export interface UpstreamErrorContext {
  readonly provider: string;
  readonly upstreamRequestId?: string;
  /** HTTP status of the answer; a 200 tells nothing about the fault. */
  readonly status?: number;
  /** What to do where the provider refuses the credential, in a few words. */
  readonly authAdvice?: string;
  /** How long the provider asks to wait, in milliseconds. */
  readonly retryAfterMs?: number;
}

/**
 * How providers say that a request is longer than the model reads. By name: Anthropic "exceed context limit", Moonshot
 * "exceeded model token limit", SGLang "longer than the model's context length" (each as users quote it at GitHub, in
 * continuedev/continue, MoonshotAI/kimi-cli and sgl-project/sglang); xAI "maximum prompt length", Qwen "Range of input
 * length", Z.ai "Prompt exceeds max length", Copilot and Gemini "token count", TGI "max_new_tokens".
 */
const contextWords = new RegExp(
  [
    "context[ _-]?(length|window|size|limit)",
    "too many (prompt |input )?tokens",
    "too_many_prompt_tokens",
    "(prompt|input|messages?) (is|are) too long",
    "reduce the length",
    "exceeds? the (available |maximum |model's )*context",
    "maximum (allowed )?(number of )?(input |prompt )?tokens",
    "model token limit",
    "maximum prompt length",
    "range of input length",
    "prompt exceeds? (the )?max(imum)? length",
    "(prompt|input) (length|token count)\\b.{0,40} exceeds?\\b",
    "inputs`? tokens \\+ `?max_new_tokens",
  ].join("|"),
  "i",
);
/** What is too much only now: many tokens in a minute are no long request. */
const tooFastWords =
  /per[ _-]?(second|sec|minute|min|hour|day)\b|\b[rt]p[smhd]\b|rate[ _-]?limit|too many requests|throttl|please wait/i;
const authWords = /auth|api[ _-]?key|permission|forbidden/i;
const rateWords = /rate[ _-]?limit|too many requests|throttl|quota/i;
const busyWords = /overload|unavailable|server[ _-]?error|internal|timeout|capacity/i;
const paymentWords: ReadonlySet<string> = new Set([
  "insufficient_quota",
  "billing_not_active",
  "exceeded_current_quota_error",
]);
const rejectedWords = /invalid|bad[ _-]?request|content[ _-]?(filter|policy)|tool_use_failed|unsupported/i;

/** What the caller must know of a fault: its kind, whether to try again, and the provider's own words. */
export function upstreamError(fault: UpstreamFault, context: UpstreamErrorContext): AgentError {
  const status = context.status !== undefined && context.status >= 400 ? context.status : fault.status;
  const kind = kindOf(status, fault);
  const answered =
    context.status !== undefined && context.status >= 400 ? `answered HTTP ${context.status}` : "reports";
  const upstreamRequestId = context.upstreamRequestId ?? fault.requestId;
  const words =
    [fault.message, fault.message === "" ? fault.type || fault.code : ""].join("") || "an error without words";
  const detail: AgentErrorDetail = {
    retryable: (kind === "rate_limited" || kind === "provider_unavailable") && !needsPayment(fault),
    provider: context.provider,
    ...(status === undefined ? {} : { upstreamStatus: status }),
    ...(upstreamRequestId === undefined ? {} : { upstreamRequestId }),
  };
  const advice = kind === "provider_auth" && context.authAdvice !== undefined ? ` (${context.authAdvice})` : "";
  return new AgentError(kind, `${context.provider} ${answered}: ${words}${advice}`, {
    detail,
    ...(context.retryAfterMs === undefined ? {} : { retryAfterMs: context.retryAfterMs }),
  });
}

/** The account has nothing left: a 429 that waiting does not cure. */
export function needsPayment(fault: UpstreamFault): boolean {
  return paymentWords.has(fault.code) || paymentWords.has(fault.type);
}

function kindOf(status: number | undefined, fault: UpstreamFault): AgentErrorKind {
  const words = `${fault.code} ${fault.type}`;
  const all = `${words} ${fault.message}`;
  const isTooFast = tooFastWords.test(all);
  const isTooLong = contextWords.test(all) && !isTooFast;
  if (status === undefined) {
    if (isTooLong) return "context_length";
    if (rateWords.test(words) || (isTooFast && !rejectedWords.test(words))) return "rate_limited";
    if (busyWords.test(words)) return "provider_unavailable";
    if (authWords.test(words)) return "provider_auth";
    if (rejectedWords.test(words)) return "provider_rejected";
    return "provider_unavailable";
  }
  if (status === 401 || status === 403) return "provider_auth";
  if (status === 404) return "provider_not_found";
  if (status === 429) return "rate_limited";
  if (status === 408 || status === 409 || status >= 500) return "provider_unavailable";
  return isTooLong ? "context_length" : "provider_rejected";
}
