import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startTestApp } from "../support/test-app.ts";

test("a caller that hangs up is no fault that an operator hears of", async (context) => {
  const { app, reports } = await startTestApp(context);
  // buf asks the reflection service and leaves its stream open when it has what it wants.
  const buf = fileURLToPath(new URL("../../node_modules/.bin/buf", import.meta.url));
  const { stdout } = await promisify(execFile)(buf, ["curl", "--http2-prior-knowledge", app.url, "--list-methods"], {
    timeout: 30_000,
  });
  assert.match(stdout, /codeagent\.v1\.CodeAgentService\/Generate/);
  await app.close(1000);
  assert.deepEqual(reports, []);
});
