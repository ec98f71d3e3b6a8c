import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectError } from "@connectrpc/connect";
import { startTestApp, user } from "../support/test-app.ts";

test("a tool that is chosen is the client's or the server's, with a session and without", async (context) => {
  const { client, app } = await startTestApp(context);
  await client.createSession({ sessionId: "one" });
  const choose = (sessionId: string, toolChoice: string) =>
    client.generate({
      sessionId,
      messages: [user("hi")],
      tools: [{ name: "get_weather", parameters: "{}" }],
      options: { toolChoice },
    });
  for (const sessionId of ["one", ""]) {
    for (const choice of ["", "auto", "none", "required", "get_weather", "read_file"])
      assert.equal((await choose(sessionId, choice)).finishReason, "stop", choice);
    for (const choice of ["get_time", "Auto", "__proto__"])
      await assert.rejects(choose(sessionId, choice), (error) => {
        assert.ok(error instanceof ConnectError);
        assert.match(error.rawMessage, new RegExp(`^options\\.tool_choice: there is no function "${choice}"`));
        return true;
      });
  }
  const { messageCount } = await client.getSession({ sessionId: "one" });
  assert.equal(messageCount, 12, "what was refused is not in the history");
  assert.equal(app.sessions.working, 0);
});
