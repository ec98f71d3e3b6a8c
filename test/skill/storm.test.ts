import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Skills } from "../../src/skill/skills.ts";
import { storm } from "./storm.ts";
import { temporaryFolder, writeFiles } from "./write-files.ts";

test("a storm of changes: only whole skills are ever in force, and in the end what lies on disk", async (context) => {
  const folder = await temporaryFolder(context);
  await writeFiles(folder, { "workspace/a.txt": "", "skills/README.md": "" });
  const sandbox = { kind: "none", start: () => assert.fail("nothing is to be started") } as const;
  const skills = new Skills({ folders: [join(folder, "skills")], sandbox, env: {}, now: Date.now, report: () => {} });
  context.after(() => skills.close());
  const names = ["one", "two", "three", "four", "five"];
  const report = await storm(skills, join(folder, "skills"), join(folder, "workspace"), {
    edits: 60,
    lastsMs: 1200,
    names,
  });
  assert.ok(report.settledMs < 1000, JSON.stringify(report));
  assert.ok(report.longestWorkMs < 200, JSON.stringify(report));
});
