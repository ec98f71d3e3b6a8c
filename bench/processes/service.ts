// The service as `codeagent serve` runs it, over a folder of its own, with one more tool that returns at once. With
// `connect` as the second argument, all calls go through Connect's library; the third may be a PostgreSQL database.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setDefaultHighWaterMark } from "node:stream";

setDefaultHighWaterMark(false, 4096);
const { startApp } = await import("../../src/app.ts");
const { readConfig } = await import("../../src/config.ts");
const { answerParent } = await import("../harness.ts");

const [upstreamUrl = "", way = "", databaseUrl = ""] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "codeagent-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const app = await startApp({
  config: readConfig({
    env: {},
    workingDirectory: folder,
    flags: { port: 0, data_dir: join(folder, "data"), workspace: folder, database_url: databaseUrl },
  }),
  env: { FORWARD_BASE_URL: upstreamUrl },
  report: (level, message, facts) => {
    if (level === "error") console.error(message, facts);
  },
  grpcFastPath: way !== "connect",
  functions: [
    {
      source: "bench",
      list: async () => [
        {
          name: "look",
          description: "Looks somewhere.",
          parameters: '{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}',
          source: "bench",
          readOnly: false,
          timeoutMs: 1000,
        },
      ],
      call: async () => ({ success: true, output: "nothing to see" }),
      close: async () => {},
    },
  ],
});
answerParent(app.url);
