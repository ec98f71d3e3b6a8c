import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";

/** Two steps with tools that change something and that look, and an end. */
export const killScript = `
- when: { nth: 1 }
  thinking: a change and two looks are needed
  text: I begin.
  chunk: 3
  delay_ms: 2
  tool_calls: [{ name: look, arguments: {} }, { name: change, arguments: {} }, { name: look, arguments: {} }]
- when: { nth: 2 }
  text: One more change.
  chunk: 3
  delay_ms: 2
  tool_calls: [{ name: change, arguments: {} }]
- when: { nth: 3 }
  text: All is done now, and this is the end of it.
  chunk: 3
  delay_ms: 2
`;

export type ServerProcess = ChildProcessByStdio<null, Readable, null>;

export function startServer(
  folder: string,
  effectsFile: string,
  env: Readonly<Record<string, string>> = {},
): ServerProcess {
  const entry = fileURLToPath(new URL("../support/serve-effects.ts", import.meta.url));
  return spawn(process.execPath, ["--disable-warning=ExperimentalWarning", entry], {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      EFFECTS_FILE: effectsFile,
      CODEAGENT_PORT: "0",
      CODEAGENT_DATA_DIR: join(folder, "data"),
      CODEAGENT_SCRIPTED_FILE: join(folder, "script.yaml"),
      CODEAGENT_MODEL: "scripted/test",
      ...env,
    },
  });
}

export async function firstLine(child: ServerProcess): Promise<string> {
  let text = "";
  for await (const piece of child.stdout.iterator({ destroyOnReturn: false })) {
    text += String(piece);
    if (text.includes("\n")) return text.trim();
  }
  throw new Error("the server ended before it listened");
}

export async function end(child: ServerProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
}

/** Random numbers from 0 to 1 that are the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
