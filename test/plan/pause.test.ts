import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { startTestApp } from "../support/test-app.ts";

test("an execution whose session is paused begins no step until it is resumed", {
  timeout: 30_000,
}, async (context) => {
  const ran: string[] = [];
  const began = Promise.withResolvers<void>();
  const letGo = Promise.withResolvers<void>();
  const functions: FunctionProvider = {
    source: "local",
    list: async () =>
      ["hold", "look", "undo"].map((name) => ({
        ...{ name, description: name, parameters: "", source: "local", readOnly: true, timeoutMs: 30_000 },
      })),
    async call({ name }) {
      ran.push(name);
      began.resolve();
      if (name === "hold") await letGo.promise;
      return { success: true, output: name };
    },
    close: async () => undefined,
  };
  const { client, transport, app } = await startTestApp(context, { functions: [functions] });
  const plans = createClient(PlanService, transport);
  const step = (id: string, name: string, dependsOn: string[] = []) => ({
    ...{ id, kind: "function_call", function: name, parameters: "{}", dependsOn },
  });
  const steps = [step("a", "hold"), step("b", "look", ["a"])];
  const plan = await plans.createPlan({ plan: { goal: "g", requirement: "r", steps } });
  const states: string[] = [];
  let executionId = "";
  const executing = (async () => {
    for await (const event of plans.executePlan({ planId: plan.id })) {
      ({ executionId } = event);
      if (event.event.case === "finished") states.push(event.event.value.state);
    }
  })();
  await began.promise;
  await client.pauseSession({ sessionId: executionId });
  letGo.resolve();
  const isPaused = async () => (await client.getSession({ sessionId: executionId })).state === "paused";
  while (!(await isPaused()) || app.sessions.working > 0) await new Promise(setImmediate);
  assert.deepEqual(ran, ["hold"]);
  await client.resumeSession({ sessionId: executionId });
  await executing;
  assert.deepEqual([ran, states], [["hold", "look"], ["completed"]]);
});
