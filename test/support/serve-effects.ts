import { appendFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { startApp } from "../../src/app.ts";
import { readConfig } from "../../src/config.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";

/**
 * The service as a process of its own, to be killed: with a tool that changes something and one that only reads, both of
 * which write into EFFECTS_FILE when they begin and when they end. Prints its URL.
 *
 * CLOCK_SPEED makes its clock run that many times as fast, from CLOCK_ORIGIN_MS on (milliseconds since 1970), so that
 * servers that are given the same two agree on the time. Timers don't: schedules are looked at all the more often.
 */
const effectsFile = process.env["EFFECTS_FILE"] ?? "";
const functions: FunctionProvider = {
  source: "local",
  list: async () =>
    [
      { name: "change", readOnly: false },
      { name: "look", readOnly: true },
    ].map((tool) => ({ ...tool, description: tool.name, parameters: "", source: "local", timeoutMs: 30_000 })),
  async call({ name }, context) {
    const call = `${name} ${context.sessionId} ${context.turnId} ${context.toolCallId}`;
    appendFileSync(effectsFile, `begin ${call}\n`);
    await wait(name === "change" ? 100 : 5, undefined, { signal: context.signal }); // long enough to be killed in
    appendFileSync(effectsFile, `end ${call}\n`);
    return { success: true, output: `${name} done` };
  },
  close: async () => undefined,
};

const speed = Number(process.env["CLOCK_SPEED"] ?? 1);
const originMs = Number(process.env["CLOCK_ORIGIN_MS"] ?? 0);
const config = readConfig({ env: process.env, workingDirectory: process.cwd() });
const app = await startApp({
  config,
  env: {},
  functions: [functions],
  report: (...facts) => console.error(...facts),
  now: () => originMs + Math.floor((Date.now() - originMs) * speed),
});
if (speed !== 1) setInterval(() => void app.schedules.sweep().catch(() => undefined), 50);
process.on("SIGTERM", () => void app.close().then(() => process.exit(0)));
console.log(app.url);
