import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Skills } from "../../src/skill/skills.ts";
import { openFiles, storm } from "./storm.ts";
import { temporaryFolder, until, writeFiles } from "./write-files.ts";

test("1,000 changes in 20 seconds leave nothing behind", { skip: process.platform !== "linux" }, async (context) => {
  const folder = await temporaryFolder(context);
  await writeFiles(folder, { "workspace/a.txt": "", "skills/README.md": "" });
  const sandbox = { kind: "none", start: () => assert.fail("nothing is to be started") } as const;
  const skills = new Skills({ folders: [join(folder, "skills")], sandbox, env: {}, now: Date.now, report: () => {} });
  context.after(() => skills.close());
  const names = Array.from({ length: 20 }, (_, index) => `skill-${index}`.replaceAll("-", "x"));
  const run = (edits: number, lastsMs: number) =>
    storm(skills, join(folder, "skills"), join(folder, "workspace"), { edits, lastsMs, names });
  await run(100, 2000);
  const before = { files: openFiles(), heapBytes: heapBytes() };
  const report = await run(1000, 20_000);
  context.diagnostic(JSON.stringify(report));
  assert.ok(report.settledMs < 1000, JSON.stringify(report));
  assert.ok(report.longestWorkMs < 200, JSON.stringify(report));
  await until("the last file to be closed", () => openFiles() <= before.files + 2);
  const grownBytes = heapBytes() - before.heapBytes;
  context.diagnostic(`the heap grew by ${Math.round(grownBytes / 1024)} KiB`);
  assert.ok(grownBytes < 16 * 1024 * 1024, `${grownBytes} bytes more than before`);
});

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

function heapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
