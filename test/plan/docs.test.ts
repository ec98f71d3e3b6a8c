import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { planDraftToProto } from "../../src/convert/proto/plan.ts";
import { planFromYaml } from "../../src/plan/plan-yaml.ts";
import { startTestApp } from "../support/test-app.ts";

const page = readFileSync(fileURLToPath(new URL("../../docs/plans.md", import.meta.url)), "utf8");
const [, yaml = ""] = /```yaml\n([\s\S]*?)```/.exec(page) ?? [];
const script = `
- { when: { text: "The criterion:" }, text: '{"state":"met","evidence":"Step write."}' }
- { when: { text: "In one sentence" }, text: It is about A. }
`;

async function run(context: TestContext, input: object, change: (text: string) => string = (text) => text) {
  const { transport, workspace } = await startTestApp(context, {
    script,
    files: { "a.md": "A" },
    flags: { "permissions.mode": "accept-edits" },
  });
  const plans = createClient(PlanService, transport);
  const plan = await plans.createPlan({ plan: planDraftToProto(planFromYaml(change(yaml))) });
  assert.deepEqual(plan.problems, []);
  const states = new Map<string, string>();
  for await (const { event } of plans.executePlan({ planId: plan.id, input: JSON.stringify(input) })) {
    if (event.case === "inputRequested") {
      assert.match(event.value.prompt, /^How many words for \["a\.md",/);
      const { values } = await plans.submitPlanInput({ planId: plan.id, stepId: "ask" });
      assert.equal(values, '{"words":50}');
    } else if (event.case === "stepChanged") {
      const { stepId, itemPath, state } = event.value;
      states.set([stepId, ...itemPath].join(" "), state);
    } else if (event.case === "finished") return { states, workspace, finished: event.value };
  }
  return assert.fail("it did not finish");
}

describe("the plan of the manual", { timeout: 60_000 }, () => {
  test("runs, over a note that is not there too", async (context) => {
    const { states, finished, workspace } = await run(context, {});
    assert.equal(finished.state, "completed", finished.error?.message ?? "");
    assert.match(finished.output, /It is about A\./);
    assert.equal(readFileSync(`${workspace}/SUMMARY.md`, "utf8"), "It is about A.");
    assert.deepEqual([states.get("read 1"), states.get("about 1")], ["failed", "skipped"]);
    assert.deepEqual([finished.goalMet, finished.goalChecks[0]?.evidence], [true, "Step write."]);
  });

  test("undoes what it wrote when a later step fails", async (context) => {
    const names = ["a.md", "b.md"];
    const { states, finished, workspace } = await run(context, { names }, (text) =>
      text.replace("parameters: { path: SUMMARY.md }\n", "parameters: { path: gone.md }\n"),
    );
    assert.deepEqual([finished.state, finished.failedStepId], ["failed", "look"]);
    assert.deepEqual([states.get("write"), states.get("look")], ["compensated", "failed"]);
    assert.equal(readFileSync(`${workspace}/SUMMARY.md`, "utf8"), "");
  });
});
