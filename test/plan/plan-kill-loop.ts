import assert from "node:assert/strict";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { killScript } from "../session/kill-loop.ts";
import { blowGround, later, type Replica } from "../support/blow-ground.ts";

/** What came of an execution whose server was killed again and again. */
export interface PlanKillReport {
  readonly kills: number;
  readonly executions: number;
  /** Of all executions, in the order they ended. */
  readonly states: readonly string[];
  readonly tools: ReturnType<ReturnType<typeof blowGround>["tools"]>;
}

const steps = [
  { id: "a", kind: "function_call", function: "change" },
  {
    id: "each",
    kind: "for_each",
    dependsOn: ["a"],
    details: {
      case: "forEach" as const,
      value: {
        items: "[1,2,3]",
        maxConcurrency: 2,
        steps: [
          { id: "look", kind: "function_call", function: "look" },
          { id: "inner", kind: "function_call", function: "change", dependsOn: ["look"], onError: "continue" },
        ],
      },
    },
    onError: "continue",
  },
  { id: "b", kind: "function_call", function: "change", dependsOn: ["each"], onError: "continue" },
].map((step) => ({ onError: "continue", ...step }));

/**
 * Kills the service with SIGKILL at random moments of an execution, starts it again and goes on reading from the last event
 * seen, until all executions have finished. A gap or a repetition in the numbers of their events throws.
 */
export async function planKillLoop(kills: number, random: () => number): Promise<PlanKillReport> {
  const ground = blowGround(killScript);
  const states: string[] = [];
  let server: Replica | undefined;
  let killed = 0;
  try {
    server = await ground.start("data");
    const plansAt = ({ url }: Replica) => createClient(PlanService, createGrpcTransport({ baseUrl: url }));
    const permissions = { allow: ["change"] };
    const { sessionId } = await server.client.createSession({ permissions });
    const { id: planId } = await plansAt(server).createPlan({
      sessionId,
      plan: { goal: "g", requirement: "r", steps },
    });
    while (killed < kills) {
      let seq = 0n;
      const requestId = `run ${states.length}`;
      for (let isOver = false; !isOver; ) {
        const running: Replica = server ?? (await ground.start("data"));
        server = running;
        const killing = killed < kills ? later(30 + random() * 350, async () => running.kill()) : undefined;
        try {
          for await (const frame of plansAt(running).executePlan({ planId, requestId, afterSeq: seq })) {
            if (frame.seq === 0n) continue;
            assert.equal(frame.seq, seq + 1n, "no gap and no repetition");
            seq = frame.seq;
            if (frame.event.case !== "finished") continue;
            states.push(frame.event.value.state);
            isOver = true;
          }
        } catch (error) {
          assert.ok(running.process.killed, `the stream broke without a kill: ${error}`);
        } finally {
          killing?.cancel();
        }
        if (await killing?.done) {
          killed++;
          server = undefined;
        }
      }
    }
    return { kills: killed, executions: states.length, states, tools: ground.tools() };
  } finally {
    await ground.close();
  }
}
