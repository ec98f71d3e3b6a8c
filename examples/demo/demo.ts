// Starts a server over a small sample project, asks it to find a bug, shows the turn as it goes, and then reads the same
// turn again from the session's log to show that nothing of it was lost. Takes a model from the environment where there
// is one, and a script where there is none. Leaves nothing behind.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { toBinary } from "@bufbuild/protobuf";
import { type CodeAgentClient, createCodeAgentClient, followSession, streamTurn } from "../../sdk/index.ts";
import { type GenerateChunk, GenerateChunkSchema } from "../../sdk/proto.ts";
import { pageOn } from "../../src/cli/terminal.ts";
import { TurnPrinter } from "../../src/cli/turn-printer.ts";

const question =
  "There are 23 orders, but the report shows only 20 of them. Find out why, name the file and the line, and say how to mend it.";
const startLimitMs = 20_000;
const stopLimitMs = 10_000;

/** What a reader was told, event by event. */
class Transcript {
  readonly #digests: string[] = [];

  add(chunk: GenerateChunk): void {
    if (chunk.seq === 0n) return;
    this.#digests.push(createHash("sha256").update(toBinary(GenerateChunkSchema, chunk)).digest("hex"));
  }

  equals(other: Transcript): boolean {
    return this.toString() === other.toString();
  }

  toString(): string {
    const whole = createHash("sha256").update(this.#digests.join()).digest("hex");
    return `${this.#digests.length} events, sha256 ${whole.slice(0, 16)}`;
  }
}

const page = pageOn(process.stdout);
const folder = mkdtempSync(join(tmpdir(), "codeagent-demo-"));
let server: ChildProcessByStdio<null, Readable, null> | undefined;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    server?.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
    process.exit(1);
  });
}
try {
  const { model, about } = chooseModel(process.env);
  page.write(`${about}\n`, "bold");
  server = startServer(model);
  const url = await urlOf(server);
  page.write(`server: ${url}\n\n`, "dim");
  using client = createCodeAgentClient({ baseUrl: url });
  process.exitCode = await show(client);
} finally {
  if (server !== undefined) await stop(server);
  rmSync(folder, { recursive: true, force: true });
}

/** Runs the turn and reads it again. @returns the exit code. */
async function show(client: CodeAgentClient): Promise<number> {
  const { sessionId } = await client.createSession({ title: "demo" });
  page.write(`you: ${question}\n\n`, "bold");
  const printer = new TurnPrinter(page);
  const live = new Transcript();
  let finishReason = "";
  const messages = [{ role: "user", contentType: { case: "content" as const, value: question } }];
  for await (const chunk of streamTurn(client, { sessionId, messages })) {
    printer.add(chunk);
    live.add(chunk);
    if (chunk.event.case === "turnFinished") finishReason = chunk.event.value.finishReason;
  }
  const again = new Transcript();
  for await (const chunk of followSession(client, { sessionId, afterSeq: 0n, follow: false })) again.add(chunk);
  page.write(`\nlive:     ${live}\nfrom log: ${again}\n`);
  const same = live.equals(again);
  page.write(
    same ? "the log has every event of the turn, byte for byte\n" : "the log differs from what was streamed\n",
  );
  return same && finishReason === "stop" ? 0 : 1;
}

function chooseModel(env: NodeJS.ProcessEnv): { model: string; about: string } {
  const named = env["CODEAGENT_MODEL"] ?? "";
  const provider = env["FORWARD_BASE_URL"] ? "forward" : env["OPENAI_API_KEY"] ? "openai" : "";
  if (provider === "") {
    return {
      model: "scripted/demo",
      about:
        "No model is configured, so the answers come from a script (the tools are real). Set OPENAI_API_KEY, or FORWARD_BASE_URL and CODEAGENT_MODEL, to see a model at work.",
    };
  }
  const model = named !== "" ? named : provider === "openai" ? "openai/gpt-5-mini" : "forward/default";
  return { model, about: `The answers come from the model ${model}.` };
}

function startServer(model: string): ChildProcessByStdio<null, Readable, null> {
  const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));
  const words = ["serve", "--port", "0", "--model", model, "--script", here("script.yaml")];
  const places = ["--data-dir", join(folder, "data"), "--workspace", here("workspace")];
  // The provider's variables are for the server; settings of another server of yours are not.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(CODEAGENT_|DATABASE_)/.test(name)));
  return spawn(process.execPath, [here("../../bin/codeagent.js"), ...words, ...places], {
    cwd: folder,
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
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
