import assert from "node:assert/strict";
import { test } from "node:test";
import { startTestServer } from "../sdk/start-app.ts";
import { bundle } from "./bundle.ts";
import { inChromium, skipWithoutChromium } from "./in-chromium.ts";
import { useOfTheClient } from "./use-of-the-client.ts";

test("the client package works in a page of a real browser", {
  skip: skipWithoutChromium,
  timeout: 60_000,
}, async () => {
  await using browser = await inChromium();
  await using server = await startTestServer(useOfTheClient.script, { allowed_origins: browser.origin });
  const told = await browser.run(await bundle(useOfTheClient.program), { baseUrl: server.url });
  assert.deepEqual(told, useOfTheClient.result);
});
