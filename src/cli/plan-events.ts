import { setTimeout as wait } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ExecutePlanRequestSchema, PlanEvent } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { isSaidByServer } from "../../sdk/error.ts";
import type { CodeAgentClient } from "../../sdk/index.ts";
import { withIdleTimeout } from "../stream/idle-timeout.ts";

/** The server says something every 15 s. */
const maxSilenceMs = 45_000;
const maxTries = 6;
const firstDelayMs = 100;
const longestDelayMs = 10_000;

/**
 * Runs a plan, or follows an execution, to its end: every event once and in order, also over connections that break. Ends
 * with `finished`.
 * @param request has a `requestId` or an `executionId`, so that asking again finds the same execution
 * @throws what the server refuses; what keeps a connection from being got back; the signal's reason.
 */
export async function* executionEvents(
  { plans }: Pick<CodeAgentClient, "plans">,
  request: MessageInitShape<typeof ExecutePlanRequestSchema>,
  signal: AbortSignal,
): AsyncGenerator<PlanEvent, void> {
  let afterSeq = request.afterSeq ?? 0n;
  for (let tries = 0; ; tries++) {
    const connection = new AbortController();
    const source = plans.executePlan(
      { ...request, afterSeq },
      { signal: AbortSignal.any([signal, connection.signal]) },
    );
    const silent = () => new ConnectError("the server fell silent", Code.Unavailable);
    try {
      for await (const event of withIdleTimeout(source, maxSilenceMs, silent)) {
        if (event.seq > 0n) {
          if (event.seq <= afterSeq) continue;
          afterSeq = event.seq;
          tries = 0;
        }
        yield event;
        if (event.event.case === "finished") return;
      }
      throw new ConnectError("the stream ended before the execution did", Code.Unavailable);
    } catch (error) {
      signal.throwIfAborted();
      if (tries >= maxTries || !mayComeBack(error)) throw error;
      await wait(Math.min(firstDelayMs * 3 ** tries, longestDelayMs), undefined, { signal });
    } finally {
      connection.abort();
    }
  }
}

/** The connection broke, or the server is not there for now. */
function mayComeBack(error: unknown): boolean {
  if (!(error instanceof ConnectError)) return false;
  return !isSaidByServer(error) || error.code === Code.Unavailable;
}
