import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runProgram } from "../src/tool/run-program.ts";
import { createSandbox } from "../src/tool/sandbox/create-sandbox.ts";
import type { SandboxKind } from "../src/tool/sandbox/sandbox.ts";
import { type BenchOptions, interleaved, type Measured, percentile, repeated, type Sample } from "./harness.ts";

const script = ["-c", "echo done"];

/** What it takes to run a script within walls and without, beside a bare spawn of the same script. */
export async function measureTools({ quick }: BenchOptions): Promise<Measured[]> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "codeagent-bench-")));
  const times = quick ? 3 : 40;
  const sampled = (run: () => Promise<unknown>, inFlight: number) => async (): Promise<Sample> => {
    const start = performance.now();
    const tookMs = await repeated(times, inFlight, run);
    const perSecond = (times / (performance.now() - start)) * 1000;
    return inFlight === 1
      ? { "ms, p50": percentile(tookMs, 50), "ms, p99": percentile(tookMs, 99) }
      : { "scripts/s": perSecond };
  };
  const within = (kind: SandboxKind) => {
    const options = { kind, dataDir: join(folder, "data"), readable: [], writable: [], network: false, domains: [] };
    const sandbox = createSandbox({ ...options, env: process.env });
    return async () => {
      const access = { writable: [folder], readable: [], network: false };
      const signal = new AbortController().signal;
      const program = { program: "sh", args: script, cwd: folder, env: {}, access, timeoutMs: 30_000, signal };
      const { output } = await runProgram(sandbox, program);
      if (output !== "done\n") throw new Error(`a script that says ${output}`);
    };
  };
  const runs = {
    "bare child_process.spawn": () => bareSpawn(folder),
    "codeagent, sandbox none": within("none"),
    "codeagent, bubblewrap": within("bwrap"),
  };
  const peers = (inFlight: number) =>
    Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, sampled(run, inFlight)]));
  try {
    const [rounds, warmUps] = quick ? [1, 1] : [5, 1];
    const alone = await interleaved("a script that says one word", peers(1), rounds, warmUps);
    return [...alone, ...(await interleaved("the same, 8 at once", peers(8), rounds, warmUps))];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function bareSpawn(cwd: string): Promise<void> {
  const child = spawn("sh", script, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (bytes: Buffer) => {
    output += bytes.toString();
  });
  child.stderr.resume();
  await once(child, "close");
  if (output !== "done\n") throw new Error(`a script that says ${output}`);
}
