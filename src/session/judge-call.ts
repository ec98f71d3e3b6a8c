import { isDeepStrictEqual } from "node:util";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { type Question, questionOf } from "../tool/ask-user.ts";
import { callContent } from "../tool/call-content.ts";
import { checkArguments } from "../tool/check-arguments.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { decidePermission, isGranted, resolveSubject, rulesOf, type SessionRules } from "../tool/permission.ts";
import { grantsOf } from "./grants.ts";
import { type HandOver, handedBack, laneHandler, laneOf } from "./hand-over.ts";
import type { PlannedCall } from "./next-step.ts";
import { profileOf } from "./profile.ts";
import { questionResult } from "./questions.ts";
import type { RunningSession } from "./run-turn.ts";
import type { CallState, TurnState } from "./state.ts";
import { fitsStrategy, mayCall } from "./strategy.ts";

/** What becomes of a call. */
export type Verdict =
  | { readonly type: "run" }
  | { readonly type: "ask"; readonly approval: Approval }
  | { readonly type: "question"; readonly question: Question }
  /** A client runs it. */
  | { readonly type: "hand-over"; readonly handOver: HandOver }
  /** A client ran it, or nobody did. */
  | { readonly type: "handed-back"; readonly result: ToolResult }
  /** It does not run. */
  | { readonly type: "settle"; readonly result: ToolResult };

/** The error of a call that a rule or the mode denied begins so. */
export const deniedByPolicy = "denied by the policy: ";

/** What somebody is to approve, and why. */
export interface Approval {
  readonly explanation: string;
  /** Of what would run besides the arguments; empty for the server's own code. */
  readonly contentSha256: string;
  /** Whether it may be allowed for the rest of the session; some calls are asked for each time. */
  readonly grantable: boolean;
}

/** What becomes of a call; where nobody can be asked, one that has to be asked for is refused. */
export async function judgeCall(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  planned: PlannedCall,
): Promise<Verdict> {
  const verdict = await judge(session, turn, functions, planned);
  if (!session.isUnattended) return verdict;
  if (verdict.type === "ask") return refused(`not run: ${verdict.approval.explanation}, and ${nobodyToAsk}`);
  return verdict.type === "question" ? refused(`not asked: ${nobodyToAsk}`) : verdict;
}

const nobodyToAsk =
  "nobody can be asked in a turn without a session; with a session somebody can answer, or its permissions can allow it";

/**
 * Says what becomes of a call: the bounds of the turn first, then the rules, then what people answered. What can't run anyhow
 * (no such function, bad arguments) is not asked for: it fails by itself.
 */
async function judge(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { call, action }: PlannedCall,
): Promise<Verdict> {
  if (action === "report-interrupted") return { type: "run" };
  const { use, request } = call;
  const { lanes } = session.config;
  const wasHandedOver = request?.request.kind === "client_tool";
  // What a client has done is done, whatever the rules say by now.
  const back =
    wasHandedOver && action === "run"
      ? handedBack(request, laneHandler(lanes, request.request.lane ?? "execute").mode)
      : undefined;
  if (back !== undefined) return { type: "handed-back", result: back };
  const { maxCallsPerStep, maxRepeatedCalls } = session.environment.limits;
  const position = turn.answer?.calls.findIndex((each) => each.use.id === use.id) ?? 0;
  if (position >= maxCallsPerStep)
    return refused(`not run: an answer may call ${maxCallsPerStep} tools at most; call this one again in the next`);
  const { allowedTools } = turn.options;
  if (!fitsStrategy(turn, use.name)) return refused(`${use.name} is not offered in this turn: its strategy is direct`);
  if (allowedTools !== undefined && !mayCall(turn, use.name))
    return refused(`the tool ${use.name} is not allowed in this turn; allowed are: ${allowedTools.join(", ")}`);
  const found = functions.find(use.name);
  if (found === undefined) return { type: "run" };
  const { definition } = found;
  const checked = checkArguments(definition, use.input);
  if (!checked.ok) return { type: "run" };
  const { config, state } = session;
  const { workspace } = config;
  const given = { ...definition, arguments: checked.arguments, workspace, contentSha256: "" };
  const subject = await resolveSubject(given);
  const byRules = decidePermission(sessionRules(session, turn), [], subject);
  if (byRules.decision === "deny") return refused(`${deniedByPolicy}${byRules.explanation}`);
  if (definition.asks === true) {
    const question = questionOf(checked.arguments);
    if (request?.answer === undefined) return { type: "question", question };
    return { type: "settle", result: questionResult(question, request.answer) };
  }
  // One that was begun before a crash was allowed then.
  if (action === "run-again") return { type: "run" };
  const isRepeated = repetitions(turn, call) >= maxRepeatedCalls && maxRepeatedCalls > 0;
  const lane = laneOf(definition);
  const isExternal = lane !== undefined && laneHandler(lanes, lane).mode !== "internal" && !wasHandedOver;
  const allowed = (contentSha256: string): Verdict =>
    isExternal
      ? { type: "hand-over", handOver: { lane, timeoutMs: laneHandler(lanes, lane).timeoutMs, contentSha256 } }
      : { type: "run" };
  if (request === undefined && byRules.decision === "allow" && !isRepeated && !isExternal) return { type: "run" };
  const contentSha256 = await callContent(found, checked.arguments, workspace);
  if (request === undefined && byRules.decision === "allow" && !isRepeated) return allowed(contentSha256);
  if (request === undefined && byRules.grantable && isGranted(grantsOf(state), { ...subject, contentSha256 }))
    return allowed(contentSha256);
  // It was approved before it was handed over, and nobody ran it: what is to run here has to be what was approved.
  if (wasHandedOver && (byRules.decision === "allow" || (request.request.contentSha256 ?? "") === contentSha256))
    return { type: "run" };
  if (request?.answer !== undefined && !wasHandedOver) {
    const { decision, text = "" } = request.answer;
    if (decision !== "allow_once" && decision !== "allow_session") {
      const why = decision === "expired" ? "nobody approved it in time" : "the person who was asked denied it";
      return refused(`not run: ${why}${text === "" ? "" : `, and says: ${text}`}`);
    }
    if ((request.request.contentSha256 ?? "") === contentSha256) return allowed(contentSha256);
    const explanation = "what it runs has changed since it was approved";
    return { type: "ask", approval: { explanation, contentSha256, grantable: byRules.grantable } };
  }
  const explanation =
    byRules.decision === "allow"
      ? `${use.name} was called ${maxRepeatedCalls} times running with the same arguments, and may go on so for ever`
      : byRules.explanation;
  return { type: "ask", approval: { explanation, contentSha256, grantable: byRules.grantable } };
}

/** What the calls of a turn are judged by. @throws {AgentError} as `profileOf`. */
export function sessionRules(
  { environment, config, state }: RunningSession,
  { options }: Pick<TurnState, "options">,
): SessionRules {
  const profile = profileOf(environment.profiles, options);
  return rulesOf(environment.permissions, config.permissions, state.loadedSkills, profile?.permissions);
}

function refused(error: string): Verdict {
  return { type: "settle", result: toolFailure(error) };
}

/** How many times running a call was made in the turn, this one included. */
function repetitions(turn: TurnState, { use }: CallState): number {
  const calls = turn.answer?.calls.map((each) => each.use) ?? [];
  const upTo = [...turn.earlierCalls, ...calls.slice(0, calls.findIndex((each) => each.id === use.id) + 1)];
  const different = upTo.findLastIndex(({ name, input }) => name !== use.name || !isSameJson(input, use.input));
  return upTo.length - 1 - different;
}

function isSameJson(left: string, right: string): boolean {
  if (left === right) return true;
  try {
    return isDeepStrictEqual(JSON.parse(left), JSON.parse(right));
  } catch {
    return false; // what can't be read is never run
  }
}
