import assert from "node:assert/strict";
import { test } from "node:test";
import { EdgeVM } from "@edge-runtime/vm";
import { startTestServer } from "../sdk/start-app.ts";
import { bundle } from "./bundle.ts";
import { useOfTheClient } from "./use-of-the-client.ts";

test("the client package works where there is fetch and nothing of Node.js", { timeout: 30_000 }, async () => {
  await using server = await startTestServer(useOfTheClient.script);
  const script = await bundle(useOfTheClient.program);
  const vm = new EdgeVM();
  assert.equal(vm.evaluate("typeof process + typeof require"), "undefinedundefined");
  vm.context["baseUrl"] = server.url;
  const told: Promise<unknown> = new Promise((resolve) => {
    vm.context["tell"] = resolve;
  });
  vm.evaluate(script);
  assert.deepEqual(JSON.parse(String(await told)), useOfTheClient.result);
});
