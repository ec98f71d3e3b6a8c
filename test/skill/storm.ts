import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Skills } from "../../src/skill/skills.ts";
import { skillText, toolsText, until, writeFiles } from "./write-files.ts";

export interface StormReport {
  readonly edits: number;
  readonly states: number;
  /** From the last edit until the set that lies on disk is in force. */
  readonly settledMs: number;
  /** The longest time our own thread worked without a pause. */
  readonly longestWorkMs: number;
}

/** Small enough to be written at once, large enough to be seen in half. */
const body = (version: number) => `${"a line of instructions\n".repeat(200)}end ${version}\n`;
const manifest = (name: string, version: number) =>
  skillText(name, `version: "${version}"\n${toolsText({ [`run_${name}`]: "run.sh" })}`, body(version));

/**
 * Changes skills at random for a time, in all the ways editors and people do, while it looks at what is in force: never
 * anything but whole versions. In the end it has to be what lies on disk.
 */
export async function storm(
  skills: Skills,
  folder: string,
  workspace: string,
  { edits, lastsMs, names }: { readonly edits: number; readonly lastsMs: number; readonly names: readonly string[] },
): Promise<StormReport> {
  const wanted = new Map<string, number>();
  const seen = new Set<string>();
  let isOver = false;
  let longestWorkMs = 0;
  let last = process.threadCpuUsage();
  const timer = setInterval(() => {
    const { user, system } = process.threadCpuUsage(last);
    longestWorkMs = Math.max(longestWorkMs, (user + system) / 1000);
    last = process.threadCpuUsage();
  }, 1).unref();
  const look = async () => {
    const { skills: views } = await skills.catalog(workspace);
    for (const { version } of views) {
      if (version === undefined) continue;
      const { name, version: number, instructions, tools } = version.manifest;
      seen.add(`${name} ${number}`);
      assert.equal(instructions, body(Number(number)), `half of ${name} ${number} was in force`);
      assert.deepEqual(
        tools.map((tool) => tool.name),
        [`run_${name}`],
      );
    }
    const serving = views.filter(({ version }) => version !== undefined);
    return serving.map(({ name, state, version }) => `${name} ${state} ${version?.manifest.version}`).join();
  };
  let failure: unknown;
  const looking = (async () => {
    while (!isOver) {
      await look();
      await delay(5);
    }
  })().catch((error: unknown) => {
    failure = error;
  });
  const startMs = performance.now();
  for (let edit = 1; edit <= edits; edit++) {
    if (failure !== undefined) throw failure;
    const name = names[edit % names.length] ?? "";
    const file = join(folder, name, "SKILL.md");
    const text = manifest(name, edit);
    // A sequence that repeats but hits every skill in every way.
    const way = (edit * 7 + Math.floor(edit / names.length)) % 6;
    if (way === 0 && wanted.has(name)) {
      await rm(join(folder, name), { recursive: true });
      wanted.delete(name);
    } else {
      await mkdir(join(folder, name), { recursive: true });
      if (!wanted.has(name)) await writeFiles(join(folder, name), { "run.sh": "echo\n" });
      if (way === 1) {
        await writeFile(`${file}~`, text);
        await rename(`${file}~`, file);
      } else if (way === 2) {
        await writeFile(file, text.slice(0, text.length / 2));
        await delay(3);
        await writeFile(file, text);
      } else if (way === 3) {
        await writeFile(file, "");
        await writeFile(file, text);
      } else await writeFile(file, text);
      wanted.set(name, edit);
      if (way === 4) await writeFile(join(folder, name, "run.sh"), `echo ${edit}\n`);
    }
    await delay(Math.max(0, (edit * lastsMs) / edits - (performance.now() - startMs)));
  }
  const lines = [...wanted].toSorted(([left], [right]) => (left < right ? -1 : 1));
  const onDisk = lines.map(([name, version]) => `${name} ready ${version}`).join();
  const settledMs = await until("what lies on disk", async () => (await look()) === onDisk);
  isOver = true;
  await looking;
  clearInterval(timer);
  return { edits, states: seen.size, settledMs: Math.round(settledMs), longestWorkMs: Math.round(longestWorkMs) };
}

/** Open files of this process. */
export function openFiles(): number {
  return readdirSync("/proc/self/fd").length;
}
