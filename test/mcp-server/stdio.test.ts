import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, type TestContext, test } from "node:test";
import { type JSONRPCMessage, parseJSONRPCMessage, type Transport } from "@modelcontextprotocol/client";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { launcher, runToEnd, startServe, temporaryFolder } from "../cli/start-codeagent.ts";
import { call, connected, eras, script } from "./mcp-client.ts";

interface StartedMcp {
  readonly transport: Transport;
  readonly ended: Promise<number | NodeJS.Signals | null>;
  /** Every line that came on stdout. */
  readonly lines: string[];
  readonly stderr: () => string;
  readonly pid: number;
  kill(signal: NodeJS.Signals): void;
  write(text: string): void;
  endInput(): void;
}

/** Starts `codeagent mcp` in a process group of its own, with a transport over its pipes. */
function startMcp(context: TestContext, folder: string, words: readonly string[] = [], withScript = true): StartedMcp {
  writeFileSync(join(folder, "here.txt"), "here");
  const file = join(folder, "script.yaml");
  writeFileSync(file, script);
  const scripted = { CODEAGENT_SCRIPTED_FILE: file, CODEAGENT_MODEL: "scripted/test" };
  const child = spawn(process.execPath, [launcher, "mcp", ...words], {
    cwd: folder,
    detached: true,
    env: {
      PATH: process.env["PATH"],
      HOME: folder,
      TMPDIR: folder,
      CODEAGENT_DATA_DIR: join(folder, "data"),
      ...(withScript ? scripted : {}),
    },
    stdio: ["pipe", "pipe", "pipe"],
  });
  const { pid = 0 } = child;
  const lines: string[] = [];
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  child.stdin.on("error", () => {});
  const transport: Transport = {
    async start() {},
    async send(message) {
      child.stdin.write(`${JSON.stringify(message)}\n`);
    },
    async close() {
      child.stdin.end();
    },
  };
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    const message: JSONRPCMessage = parseJSONRPCMessage(JSON.parse(line));
    transport.onmessage?.(message);
  });
  const ended = once(child, "close").then(() => child.exitCode ?? child.signalCode);
  context.after(async () => {
    if (isThere(pid)) process.kill(-pid, "SIGKILL");
    await ended;
  });
  return {
    transport,
    ended,
    lines,
    stderr: () => stderr,
    pid,
    kill: (signal) => void child.kill(signal),
    write: (text) => void child.stdin.write(text),
    endInput: () => void child.stdin.end(),
  };
}

/** Whether any process of the group is there. */
function isThere(pid: number): boolean {
  try {
    process.kill(-pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe("codeagent mcp over stdin and stdout", { timeout: 90_000, concurrency: 2 }, () => {
  for (const era of eras) {
    test(`a turn and one that goes on, by ${era}; nothing but MCP on stdout, and the end with stdin`, async (context) => {
      const mcp = startMcp(context, temporaryFolder(context), ["--log-level", "debug"]);
      const client = await connected(mcp.transport, { era });
      const first = await call(client, "run_agent", { prompt: "what is here?" });
      assert.equal(first.texts[0], "There is\na file.");
      assert.ok(first.progress.some(({ message }) => message?.startsWith("→ list_files")));
      const again = { prompt: "again", session_id: first.structured["session_id"] };
      assert.equal((await call(client, "run_agent", again)).texts[0], "You asked before.");
      assert.match(
        (await call(client, "run_agent", { prompt: "x", session_id: "ses_none" })).texts[0] ?? "",
        /ses_none/,
      );
      await client.close();
      assert.equal(await mcp.ended, 0);
      for (const line of mcp.lines) assert.ok(parseJSONRPCMessage(JSON.parse(line)));
      assert.ok(!isThere(mcp.pid));
    });

    test(`what needs approval is asked through the pipes, by ${era}`, async (context) => {
      const folder = temporaryFolder(context);
      const config = join(folder, "codeagent.yaml");
      writeFileSync(config, "permissions: { ask: [list_files] }\n");
      const mcp = startMcp(context, folder, ["--config", config]);
      const asked: string[] = [];
      const client = await connected(mcp.transport, {
        era,
        answer(message) {
          asked.push(message);
          return { action: "accept", content: { decision: "allow_once" } };
        },
      });
      assert.equal((await call(client, "run_agent", { prompt: "what is here?" })).texts[0], "There is\na file.");
      assert.match(asked.join(), /list_files \{"pattern":"\*\.txt"\}/);
    });
  }

  test("SIGTERM ends it in good order, in the middle of a turn, which goes on at the next start", async (context) => {
    const folder = temporaryFolder(context);
    const mcp = startMcp(context, folder);
    const client = await connected(mcp.transport);
    const running = call(client, "run_agent", { prompt: "for ever" }, { onProgress: () => mcp.kill("SIGTERM") });
    running.catch(() => undefined);
    assert.equal(await mcp.ended, 0);
    assert.equal(mcp.stderr(), "");
    assert.ok(!isThere(mcp.pid));
    const next = startMcp(context, folder);
    const looking = await connected(next.transport);
    assert.match((await call(looking, "list_sessions", {})).texts[0] ?? "", /"state":"running"/);
  });

  test("a running server is the one that is talked to, and a client that is gone leaves its turn running", async (context) => {
    const folder = temporaryFolder(context);
    const { url } = await startServe(context, [], { folder, script });
    const mcp = startMcp(context, folder, ["--server", url], false);
    const client = await connected(mcp.transport);
    const begun = Promise.withResolvers<void>();
    call(client, "run_agent", { prompt: "for ever" }, { onProgress: () => begun.resolve() }).catch(() => undefined);
    await begun.promise;
    mcp.endInput();
    assert.equal(await mcp.ended, 0);
    using service = createCodeAgentClient({ baseUrl: url });
    const { sessions } = await service.listSessions({});
    assert.deepEqual(
      sessions.map(({ state }) => state),
      ["running"],
    );
  });

  test("of two over one data directory the second goes on alone when the first is gone", async (context) => {
    const folder = temporaryFolder(context);
    const first = startMcp(context, folder);
    const { texts } = await call(await connected(first.transport), "run_agent", { prompt: "again" });
    assert.equal(texts[0], "You asked before.");
    const second = startMcp(context, folder);
    const client = await connected(second.transport);
    assert.match((await call(client, "list_sessions", {})).texts[0] ?? "", /"title":"again"/);
    first.kill("SIGTERM");
    await first.ended;
    assert.match((await call(client, "list_sessions", {})).texts[0] ?? "", /"title":"again"/);
  });

  test("what is no message is passed over, and one that is too long ends it", async (context) => {
    const mcp = startMcp(context, temporaryFolder(context));
    const client = await connected(mcp.transport);
    mcp.write("no json\n\u0000\n{}\n[]\n");
    assert.equal((await client.listTools()).tools.length, 3);
    mcp.write(`"${"x".repeat(5 * 1024 * 1024)}`);
    assert.equal(await mcp.ended, 0);
  });

  const refusals = [
    { name: "a port without HTTP", words: ["mcp", "--port", "0"], message: /--host and --port go with --http/ },
    {
      name: "HTTP for another's server",
      words: ["mcp", "--http", "--server", "http://x"],
      message: /has MCP already, under \/mcp/,
    },
    { name: "a server that is no URL", words: ["mcp", "--server", "nowhere"], message: /--server is "nowhere"/ },
  ];
  for (const { name, words, message } of refusals) {
    test(`is refused in a sentence: ${name}`, async (context) => {
      const { exit, stdout, stderr } = await runToEnd(context, words, { folder: temporaryFolder(context), script });
      assert.deepEqual([exit, stdout], [1, ""]);
      assert.match(stderr, message);
      assert.equal(stderr.trim().split("\n").length, 1);
    });
  }

  test("--http serves as serve does, and says where MCP is", async (context) => {
    const { seen, child } = await startHttp(context);
    const [, url = ""] = await seen;
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
    assert.equal((await fetch(url)).status, 400);
    child.kill("SIGTERM");
  });
});

async function startHttp(context: TestContext) {
  const { start } = await import("../cli/start-codeagent.ts");
  const started = start(context, ["mcp", "--http", "--port", "0"], { folder: temporaryFolder(context), script });
  return { seen: started.seen("stdout", /MCP on (\S+)\n/), child: started.child };
}
