import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { createServer } from "node:http";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkRequest } from "../dialect/check-request.ts";
import { start, temporaryFolder } from "./start-codeagent.ts";

const program = fileURLToPath(new URL("../../examples/demo/demo.ts", import.meta.url));

describe("the demo", { timeout: 60_000 }, () => {
  test("without a model plays a script, says so, reads the turn again and leaves nothing behind", async (context) => {
    const folder = temporaryFolder(context);
    const demo = start(context, [], { folder, program });
    assert.equal(await demo.ended, 0);
    const shown = demo.stdout();
    assert.match(shown, /^No model is configured, so the answers come from a script/m);
    for (const tool of ["list_files", "search_text", "read_file"]) {
      assert.match(shown, new RegExp(`^→ ${tool} `, "m"));
      assert.match(shown, new RegExp(`^← ${tool}: \\d+ lines`, "m"));
    }
    assert.match(shown, /^stop · 4 model calls · 3,590 tokens in, 279 out · \d+\.\d s$/m);
    const [, live] = /^live: +(\d+ events, sha256 \w{16})$/m.exec(shown) ?? [];
    const [, again] = /^from log: (\d+ events, sha256 \w{16})$/m.exec(shown) ?? [];
    assert.ok(live !== undefined && !live.startsWith("0 "));
    assert.equal(again, live);
    assert.equal(demo.hasLeftProcesses(), false);
    assert.deepEqual(readdirSync(folder), []);
  });

  test("asks the model that is configured", async (context) => {
    const folder = temporaryFolder(context);
    const asked: string[] = [];
    const upstream = createServer(async (request, response) => {
      let body = "";
      for await (const piece of request) body += piece;
      checkRequest(request.url ?? "", body);
      const sent: unknown = JSON.parse(body);
      assert.ok(typeof sent === "object" && sent !== null && "model" in sent);
      asked.push(String(sent.model));
      const chunk = { choices: [{ index: 0, delta: { content: "Round up." }, finish_reason: "stop" }] };
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
    });
    context.after(() => upstream.close());
    await new Promise<void>((listening) => upstream.listen(0, "127.0.0.1", listening));
    const address = upstream.address();
    assert.ok(typeof address === "object" && address !== null);
    const env = { FORWARD_BASE_URL: `http://127.0.0.1:${address.port}`, CODEAGENT_MODEL: "forward/small" };
    const demo = start(context, [], { folder, program, env });
    assert.equal(await demo.ended, 0);
    assert.match(demo.stdout(), /^The answers come from the model forward\/small\.$/m);
    assert.match(demo.stdout(), /^Round up\.$/m);
    assert.deepEqual(asked, ["small"]);
  });
});
