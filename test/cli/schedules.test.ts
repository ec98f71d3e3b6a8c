import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { ScheduleRunSchema, ScheduleSchema } from "../../gen/codeagent/v1/schedule_service_pb.ts";
import { runToEnd, temporaryFolder } from "./start-codeagent.ts";

describe("codeagent schedules", { timeout: 120_000 }, () => {
  test("a schedule can be added, listed, paused, resumed, run, looked at and removed", async (context) => {
    const folder = temporaryFolder(context);
    const script = "- text: all is well\n";
    const codeagent = async (...words: string[]) => {
      const { exit, stdout, stderr } = await runToEnd(context, ["schedules", ...words], { folder, script });
      assert.equal(exit, 0, `${words.join(" ")}: ${stderr}`);
      return stdout;
    };
    assert.equal(await codeagent("ls"), "there are no schedules\n");
    const flags = ["--id", "daily", "--time-zone", "Europe/Zurich", "--misfire", "none", "--overlap", "skip"];
    assert.equal(await codeagent("add", "0 9 * * 1-5", "how is it?", ...flags), "daily\n");
    const added = fromJson(ScheduleSchema, parsed(await codeagent("ls", "--json")));
    const { cron, timeZone, title, misfirePolicy, overlapPolicy, target } = added;
    assert.deepEqual(
      { cron, timeZone, title, misfirePolicy, overlapPolicy, target: target.case },
      {
        cron: "0 9 * * 1-5",
        timeZone: "Europe/Zurich",
        title: "how is it?",
        misfirePolicy: "none",
        overlapPolicy: "skip",
        target: "sessionTemplate",
      },
    );
    assert.match(
      await codeagent("pause", "daily"),
      /^daily {2}paused {2}0 9 \* \* 1-5 Europe\/Zurich {2}how is it\?\n$/,
    );
    assert.match(await codeagent("resume", "daily"), /^daily {2}active .* next \d{4}-\S+Z {2}how is it\?\n$/);
    assert.equal(await codeagent("history", "daily"), "it has not run\n");
    assert.match(
      await codeagent("run", "daily"),
      /^\S+Z {2}call {2}(queued|running|completed) {2}ses_\S+ {2}turn_\S+\n$/,
    );
    const run = fromJson(ScheduleRunSchema, parsed(await codeagent("history", "daily", "--json")));
    assert.deepEqual([run.trigger, run.state, run.finishReason], ["call", "completed", "stop"]);
    await codeagent("rm", "daily");
    assert.equal(await codeagent("ls"), "there are no schedules\n");
    const refused = await runToEnd(context, ["schedules", "add", "61 * * * *", "x"], { folder, script });
    assert.deepEqual([refused.exit, refused.stdout], [1, ""]);
    assert.match(refused.stderr, /^codeagent: cron: field 1, the minute, is "61"/);
  });
});

/** One line of JSON. */
function parsed(line: string): JsonValue {
  assert.match(line, /^[^\n]+\n$/);
  return JSON.parse(line);
}
