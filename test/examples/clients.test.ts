import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { bundle } from "../clients/bundle.ts";
import { inChromium, skipWithoutChromium } from "../clients/in-chromium.ts";
import { run, skipWithout } from "../clients/program.ts";
import { startTestServer, type TestServer } from "../sdk/start-app.ts";

const folder = fileURLToPath(new URL("../../examples/clients/", import.meta.url));
const script = readFileSync(`${folder}script.yaml`, "utf8");

/** The programs, and what each says in the end. */
const programs: [words: string[], said: RegExp, skip: string | false][] = [
  [
    [process.execPath, "node.ts"],
    /^answer: This project has a README\.\nstream: This project has a README\.\nwith a function of ours: It is sunny in Basel, 21 degrees\.\nin a session: Your name is Ada\.\n$/,
    false,
  ],
  [[process.execPath, "openai.ts"], /^chat: This project has a README\.\nresponses: Your name is Ada\.\n$/, false],
  [
    ["python3", "client.py"],
    /^stream: This project has a README\.\nin a session: Your name is Ada\.\n$/,
    skipWithout("python3", ["--version"]),
  ],
  [["sh", "buf-curl.sh"], /CodeAgentService\/[\s\S]*"turnFinished"[\s\S]*"finishReason": *"stop"/, false],
  [
    ["sh", "curl.sh"],
    /"content":"This project has a README\."[\s\S]*data: \[DONE\][\s\S]*"stop_reason":"end_turn"/,
    skipWithout("curl", ["--version"]),
  ],
];

describe("the examples for clients do what they say", { timeout: 60_000 }, () => {
  let server: TestServer;
  before(async () => {
    server = await startTestServer(script);
  });
  after(() => server[Symbol.asyncDispose]());

  for (const [[program = "", ...words], said, skip] of programs)
    test([program.split("/").pop(), ...words].join(" "), { skip }, async () => {
      const env = { CODEAGENT_URL: server.url, CODEAGENT_MODEL: "scripted/demo" };
      const { status, stdout, stderr } = await run(program, words, "", { cwd: folder, env });
      assert.match(stdout.toString(), said, stderr);
      assert.equal(status, 0, stderr);
    });
});

test("the example of a web page asks and shows the answer", {
  skip: skipWithoutChromium,
  timeout: 60_000,
}, async () => {
  await using browser = await inChromium();
  await using server = await startTestServer(script, { allowed_origins: browser.origin });
  const page = await bundle(`import ${JSON.stringify(`${folder}browser/page.ts`)};`);
  const ask = `
    const output = document.querySelector("output");
    new MutationObserver(() => output.dataset.state && tell(JSON.stringify([output.dataset.state, output.textContent])))
      .observe(output, { attributes: true });
    document.querySelector("form").requestSubmit();`;
  const [, body = ""] = /<body>([\s\S]*)<script/.exec(readFileSync(`${folder}browser/index.html`, "utf8")) ?? [];
  const told = await browser.run(`${page};${ask}`, {}, body, `?server=${encodeURIComponent(server.url)}`);
  assert.deepEqual(told, ["done", "This project has a README."]);
});
