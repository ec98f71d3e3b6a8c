import { randomUUID } from "node:crypto";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FunctionContext } from "../../../src/tool/function-provider.ts";
import type { McpClock } from "../../../src/tool/mcp/mcp-server.ts";
import { McpServers, type McpServersOptions } from "../../../src/tool/mcp/mcp-servers.ts";
import { readMcpServer } from "../../../src/tool/mcp/read-mcp-server.ts";
import { addressPolicy } from "../../../src/tool/net/address-policy.ts";
import { guardedClient } from "../../../src/tool/net/guarded-client.ts";
import type { ProgramStart, Sandbox } from "../../../src/tool/sandbox/sandbox.ts";
import { type SupervisedProcess, spawnSupervised } from "../../../src/tool/supervise.ts";

export const hostileServer = join(import.meta.dirname, "hostile-server.ts");

/** Where the program of a package of MCP servers is. */
export function serverProgram(name: string): string {
  return join(import.meta.dirname, "../../../node_modules/@modelcontextprotocol", `server-${name}`, "dist/index.js");
}

/** No walls; notes what is started. */
export function openSandbox(started: ProgramStart[] = [], processes: SupervisedProcess[] = []): Sandbox {
  return {
    kind: "none",
    async start(program) {
      started.push(program);
      const env = { PATH: process.env["PATH"] ?? "", ...program.env };
      const options = { cwd: program.cwd, env, stdin: "pipe", mark: `TEST_PROGRAM=${randomUUID()}` } as const;
      const supervised = spawnSupervised(program.program, program.args, options);
      processes.push(supervised);
      return supervised;
    },
  };
}

export const realClock: McpClock = {
  now: Date.now,
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

/** A clock that stands still until it is told to go on. */
export class ManualClock implements McpClock {
  #nowMs = 1_000_000;
  readonly #waiting = new Set<{ readonly atMs: number; readonly run: () => void }>();

  now(): number {
    return this.#nowMs;
  }

  after(ms: number, run: () => void): () => void {
    const entry = { atMs: this.#nowMs + ms, run };
    this.#waiting.add(entry);
    return () => this.#waiting.delete(entry);
  }

  advance(ms: number): void {
    this.#nowMs += ms;
    for (const entry of this.#waiting) {
      if (entry.atMs > this.#nowMs) continue;
      this.#waiting.delete(entry);
      entry.run();
    }
  }
}

export interface StartMcpOptions {
  /** As in a configuration file, by name. */
  readonly servers?: Readonly<Record<string, unknown>>;
  readonly clock?: McpClock;
  readonly env?: McpServersOptions["env"];
  readonly dataDir?: string;
}

/** MCP servers over folders of their own, tried once; closed and removed at the end. */
export async function startMcpServers(
  context: { after(end: () => Promise<void>): void },
  options: StartMcpOptions = {},
) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "mcp-servers-")));
  const started: ProgramStart[] = [];
  const processes: SupervisedProcess[] = [];
  const reports: unknown[][] = [];
  const servers = await McpServers.start({
    sandbox: openSandbox(started, processes),
    client: guardedClient(addressPolicy({ allow: ["127.0.0.0/8"] })),
    workspace: folder,
    env: options.env ?? {},
    version: "1.0.0",
    random: () => 0.5,
    clock: options.clock ?? realClock,
    report: (...report) => reports.push(report),
    dataDir: options.dataDir ?? folder,
    connectsAtOnce: true,
    configured: Object.entries(options.servers ?? {}).map(([name, value]) => readMcpServer(name, value, folder, name)),
  });
  context.after(async () => {
    await servers.close();
    rmSync(folder, { recursive: true, force: true });
  });
  await servers.settled(20_000);
  return { servers, folder, started, processes, reports };
}

/** The context of a call. */
export function callContext(workspace: string, more: Partial<FunctionContext> = {}): FunctionContext {
  const signal = AbortSignal.timeout(20_000);
  return { sessionId: "session", turnId: "turn", toolCallId: "call", workspace, signal, ...more };
}

/** Waits until something is so, looking again and again. */
export async function until(what: string, isSo: () => boolean, limitMs = 10_000): Promise<void> {
  const deadline = performance.now() + limitMs;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error(`not within ${limitMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
