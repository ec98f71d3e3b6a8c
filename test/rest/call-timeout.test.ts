import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { RestDoor } from "../../src/rest/rest-door.ts";
import { theCaller } from "../../src/rpc/caller.ts";
import { defaultStreamLimits } from "../../src/session/frame-batches.ts";
import { startTestApp } from "../support/test-app.ts";
import { dataOf, post } from "./rest-app.ts";

const script = `
- when: { text: talk }
  text: begun and never ended
  chunk: 5
  delay_ms: 600000
- when: { text: think }
  text: too late
  first_delay_ms: 600000
`;

test("a request that takes too long is ended, and says so", { timeout: 10_000 }, async (context) => {
  const { app, workspace } = await startTestApp(context, { script });
  const door = new RestDoor({
    ...{ sessions: app.sessions, principal: theCaller, workspace, routes: [] },
    ...{ maxBodyBytes: 100_000, streamLimits: defaultStreamLimits, callTimeoutMs: 300 },
    ...{
      now: Date.now,
      newId: (prefix: string) => prefix,
      report: (...facts: unknown[]) => assert.fail(String(facts)),
    },
  });
  const server = createServer((request, response) => void door.serve(request, response, (answer) => answer()));
  context.after(() => server.close().closeAllConnections());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const url = `http://127.0.0.1:${address.port}/v1/chat/completions`;
  const ask = (content: string, more: object) =>
    post(url, { model: "scripted/test", messages: [{ role: "user", content }], ...more });
  for (const more of [{}, { stream: true }]) {
    const answer = await ask("think", more);
    assert.equal(answer.status, 504);
    assert.match(await answer.text(), /"the request took longer than 300 ms/);
  }
  const told = await ask("talk", { stream: true });
  assert.equal(told.status, 200);
  const frames = dataOf(await told.text());
  assert.match(frames.at(-1) ?? "", /"code":"timeout"/);
  assert.ok(frames.some((frame) => frame.includes('"content":"begun"')));
});
