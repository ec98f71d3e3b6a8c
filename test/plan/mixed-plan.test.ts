import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { McpService } from "../../gen/codeagent/v1/mcp_service_pb.ts";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { startTestApp } from "../support/test-app.ts";
import { serverProgram } from "../tool/mcp/start-mcp-servers.ts";

const call = (id: string, name: string, given: object) => ({
  id,
  kind: "function_call",
  function: name,
  parameters: JSON.stringify(given),
});

test("a command, the tools of an MCP server and the script of a skill are steps of one plan", {
  timeout: 60_000,
}, async (context) => {
  const { transport } = await startTestApp(context, {
    flags: { "permissions.mode": "bypass", bundled_skills: true },
  });
  const added = await createClient(McpService, transport).addMcpServer({
    server: {
      name: "everything",
      transport: { case: "stdio", value: { command: process.execPath, args: [serverProgram("everything")] } },
    },
  });
  assert.deepEqual([added.state, added.error], ["ready", ""]);
  const plans = createClient(PlanService, transport);
  const plan = await plans.createPlan({
    plan: {
      goal: "They work together.",
      steps: [
        call("command", "run_command", { command: `echo '{"a":2,"b":3}'` }),
        call("void", "run_command", { command: "true" }),
        call("sum", "mcp__everything__get-sum", {
          a: { ref: "step.command.result.a" },
          b: { ref: "step.command.result.b" },
        }),
        call("where", "mcp__everything__get-structured-content", { location: "New York" }),
        call("skill", "repo_summary", { path: "." }),
        {
          ...call("all", "mcp__everything__echo", { message: { ref: "step.sum.result" } }),
          dependsOn: ["skill"],
          condition: "step.void.result == null && size(step.skill.result) > 0 && step.where.result.temperature > 0",
        },
      ],
    },
  });
  assert.deepEqual([plan.problems, plan.missingFunctions], [[], []]);
  const failures: string[] = [];
  for await (const { event } of plans.executePlan({ planId: plan.id })) {
    if (event.case === "stepChanged" && !["running", "completed"].includes(event.value.state))
      failures.push(`${event.value.stepId} ${event.value.state}: ${event.value.reason}`);
    if (event.case !== "finished") continue;
    assert.deepEqual(failures, []);
    assert.equal(event.value.state, "completed", event.value.error?.message ?? "");
    assert.equal(event.value.output, JSON.stringify("Echo: The sum of 2 and 3 is 5."));
  }
});
