// Starts a server with a skill and an MCP server over a few notes, has a plan written by a script in place of a model,
// shows it, and runs it: a step asks a question, which is answered here with its default. Leaves nothing behind.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type CodeAgentClient, createCodeAgentClient } from "../../sdk/index.ts";
import { planTree } from "../../src/cli/plan-tree.ts";
import { lineView, printOutcome } from "../../src/cli/plan-watch.ts";
import { pageOn } from "../../src/cli/terminal.ts";

const requirement = "Report on the notes: which of them are long?";
const startLimitMs = 30_000;
const stopLimitMs = 10_000;
const connectLimitMs = 20_000;

const page = pageOn(process.stdout);
const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "codeagent-plan-example-"));
let server: ChildProcessByStdio<null, Readable, null> | undefined;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    server?.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
    process.exit(1);
  });
}
try {
  server = startServer();
  const url = await urlOf(server);
  page.write(`server: ${url}\n\n`, "dim");
  using client = createCodeAgentClient({ baseUrl: url });
  await connected(client);
  process.exitCode = await show(client);
} finally {
  if (server !== undefined) await stop(server);
  rmSync(folder, { recursive: true, force: true });
}

/** Has the plan made, shows and runs it. @returns the exit code. */
async function show(client: CodeAgentClient): Promise<number> {
  page.write(`you: ${requirement}\n\n`, "bold");
  const { sessionId } = await client.createSession({ title: "notes", permissions: { mode: "accept-edits" } });
  const plan = await client.plans.createPlan({ sessionId, requirement });
  page.write(`${plan.goal} (${plan.state})\n`);
  for (const { lead, text } of planTree(plan.steps)) page.write(`${lead}${text}\n`);
  for (const { message } of plan.problems) page.write(`${message}\n`, "red");
  if (plan.state !== "ready") return 1;
  page.write("\n");
  const view = lineView(page);
  let state = "";
  for await (const event of client.plans.executePlan({ planId: plan.id })) {
    view.add(event);
    if (event.event.case === "inputRequested") {
      const { stepId } = event.event.value;
      // No values: the defaults of the form are filled in.
      const { values } = await client.plans.submitPlanInput({ planId: plan.id, stepId });
      page.write(`you: ${values}\n`, "bold");
    } else if (event.event.case === "finished") {
      state = event.event.value.state;
      printOutcome(page, event.event.value);
    }
  }
  if (state !== "completed") return 1;
  page.write(`\nreport.md: ${readFileSync(join(folder, "workspace", "report.md"), "utf8")}`);
  return 0;
}

function startServer(): ChildProcessByStdio<null, Readable, null> {
  const workspace = join(folder, "workspace");
  cpSync(here("workspace"), workspace, { recursive: true });
  const everything = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js");
  const settings = {
    model: "scripted/example",
    skills_dir: [here("skills")],
    mcp: {
      everything: {
        command: process.execPath,
        args: [everything],
        allowed_tools: ["echo", "get-sum"],
        read_only_tools: ["echo", "get-sum"],
      },
    },
  };
  // JSON is YAML too.
  writeFileSync(join(folder, "codeagent.yaml"), JSON.stringify(settings));
  const words = ["serve", "--port", "0", "--config", join(folder, "codeagent.yaml"), "--script", here("script.yaml")];
  const places = ["--data-dir", join(folder, "data"), "--workspace", workspace];
  // Settings of another server of yours are not for this one.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(CODEAGENT_|DATABASE_)/.test(name)));
  return spawn(process.execPath, [here("../../bin/codeagent.js"), ...words, ...places], {
    cwd: folder,
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
}

/** Waits until the MCP server has told its tools. */
async function connected(client: CodeAgentClient): Promise<void> {
  const limit = AbortSignal.timeout(connectLimitMs);
  for await (const _ of client.tools.watchTools({}, { signal: limit })) {
    const { tools } = await client.tools.listTools({});
    if (tools.some(({ name }) => name === "mcp__everything__echo")) return;
  }
}

/** @throws {Error} when the server ends, or says nothing for too long, instead of listening. */
async function urlOf(child: ChildProcessByStdio<null, Readable, null>): Promise<string> {
  const limit = setTimeout(() => child.kill("SIGKILL"), startLimitMs);
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const url = /^codeagent listening on (\S+)$/.exec(line)?.[1];
      if (url !== undefined) return url;
    }
  } finally {
    clearTimeout(limit);
  }
  throw new Error("the server did not start; what it said is above");
}

async function stop(child: ChildProcessByStdio<null, Readable, null>): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  const limit = setTimeout(() => child.kill("SIGKILL"), stopLimitMs);
  await ended;
  clearTimeout(limit);
}
