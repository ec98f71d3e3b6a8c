import { appendFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { startApp } from "../../src/app.ts";
import { readConfig } from "../../src/config.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";

/**
 * The service as a process of its own, to be killed: with a tool that changes something and one that only reads, both of
 * which write into EFFECTS_FILE when they begin and when they end. Prints its URL.
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
    appendFileSync(effectsFile, `begin ${name} ${context.toolCallId}\n`);
    await wait(name === "change" ? 100 : 5, undefined, { signal: context.signal }); // long enough to be killed in
    appendFileSync(effectsFile, `end ${name} ${context.toolCallId}\n`);
    return { success: true, output: `${name} done` };
  },
  close: async () => undefined,
};

const config = readConfig({ env: process.env, workingDirectory: process.cwd() });
const app = await startApp({ config, env: {}, functions: [functions], report: (...facts) => console.error(...facts) });
process.on("SIGTERM", () => void app.close().then(() => process.exit(0)));
console.log(app.url);
