import { setDefaultHighWaterMark } from "node:stream";

// Before anything opens a stream: thousands of streams that hardly ever hold more than a small frame are the rule here.
setDefaultHighWaterMark(false, 4096);
// What is written here is for the owner alone.
process.umask(0o077);

const { runCommandLine } = await import("./cli/command-line.ts");
await runCommandLine(process.argv.slice(2));
