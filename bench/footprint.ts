import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { grpcClient, streamTexts } from "./grpc-client.ts";
import { type BenchOptions, interleaved, type Measured, repeated, type Sample, startProcess } from "./harness.ts";

const entry = fileURLToPath(new URL("../bin/codeagent.js", import.meta.url));

/** What the service takes: time to start, memory when idle, memory of sessions that had one turn each. */
export async function measureFootprint({ quick }: BenchOptions): Promise<Measured[]> {
  const started = await interleaved("codeagent serve", { codeagent: startOnce }, quick ? 1 : 7, 1);
  return [...started, ...(await interleaved("idle sessions", { codeagent: () => sessions(quick) }, quick ? 1 : 3, 0))];
}

async function startOnce(): Promise<Sample> {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-bench-"));
  const start = performance.now();
  const flags = ["--disable-sigusr1", "--max-semi-space-size=4", "--disable-warning=ExperimentalWarning"];
  const child = spawn(process.execPath, [...flags, entry, "serve", "--port", "0", "--data-dir", folder], {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    await once(createInterface(child.stdout), "line", { signal: AbortSignal.timeout(20_000) });
    const tookMs = performance.now() - start;
    await wait(500);
    return { "ms until it listens": tookMs, "MB resident, idle": residentMb(child.pid ?? 0) };
  } finally {
    const ended = once(child, "exit");
    child.kill();
    await ended;
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Of Linux only; 0 elsewhere. */
function residentMb(pid: number): number {
  try {
    return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  } catch {
    return 0;
  }
}

async function sessions(quick: boolean): Promise<Sample> {
  const count = quick ? 50 : 1000;
  await using upstream = await startProcess("upstream.ts");
  await using service = await startProcess("service.ts", [upstream.ready]);
  const client = grpcClient(service.ready);
  const turn = async () => {
    const { sessionId } = await client.createSession({});
    for await (const _ of streamTexts(client, "forward/whole-20", sessionId));
  };
  // What every session shares is loaded and compiled before.
  await repeated(count / 5, 8, turn);
  const [residentBefore = 0, heapBefore = 0] = await service.ask("memory");
  await repeated(count, 8, turn);
  const [resident = 0, heap = 0] = await service.ask("memory");
  return {
    "KB resident per session": (resident - residentBefore) / 1024 / count,
    "KB of heap per session": (heap - heapBefore) / 1024 / count,
    "MB resident": resident / 1024 / 1024,
  };
}
