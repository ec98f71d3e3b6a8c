import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

/**
 * An MCP server that does what servers should not, written without the SDK. How it begins is its argument: `silent` says
 * nothing at all, `exit` complains and goes, `stubborn` does not end by itself, `normal` waits for what it is called for.
 */
const [mode = "normal"] = process.argv.slice(2);
interface Incoming {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number };
}

const noArguments = { type: "object", properties: {} };
const tools: Record<string, unknown>[] = [
  "hang",
  "cancelled",
  "crash",
  "garbage",
  "complain",
  "long-line",
  "ask",
  "lists",
  "change",
  "deep",
  "pages",
  "fail",
  "child",
  "environment",
]
  .map((name): Record<string, unknown> => ({ name, inputSchema: noArguments }))
  .concat([
    { name: "with space", inputSchema: noArguments },
    { name: "with_space", inputSchema: noArguments },
    { name: "with.space", inputSchema: noArguments },
    { name: "naïve/größe", inputSchema: noArguments },
    { name: "a__b", inputSchema: noArguments },
    { name: "long".repeat(40), inputSchema: noArguments },
    { name: `${"long".repeat(39)}lang`, inputSchema: noArguments },
    { name: "__proto__", inputSchema: noArguments, title: "\u001b[31mred" },
    { name: "hang", description: "the same name again", inputSchema: noArguments },
    { name: "remote", inputSchema: { type: "object", properties: { a: { $ref: "https://example.org/schema" } } } },
    { name: "no schema" },
    { name: "nested", inputSchema: nested(100) },
    { name: "reads", inputSchema: noArguments, annotations: { readOnlyHint: true, openWorldHint: false } },
    { inputSchema: noArguments },
  ]);
const cancelled: unknown[] = [];
const answers: unknown[] = [];
let lists = 0;
let asked: (() => void) | undefined;

function nested(levels: number): Record<string, unknown> {
  return levels === 0 ? noArguments : { type: "object", properties: { inner: nested(levels - 1) } };
}

function send(message: unknown): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...Object(message) })}\n`);
}

async function call(name: string): Promise<string> {
  switch (name) {
    case "hang":
      return new Promise(() => undefined);
    case "cancelled":
      return JSON.stringify(cancelled);
    case "crash":
      console.error("something\nworse than death");
      process.exit(3);
      break;
    case "garbage":
      for (let line = 0; line < 200; line++) process.stdout.write(`${"garbage ".repeat(1000)}\n`);
      return "unread";
    case "complain":
      for (let line = 0; line < 2000; line++) console.error("complaint ".repeat(1000));
      return "complained";
    case "long-line": {
      const piece = Buffer.alloc(1024 * 1024, "x");
      for (let count = 0; count < 80; count++)
        if (!process.stdout.write(piece)) await new Promise((resolve) => process.stdout.once("drain", resolve));
      return "unread";
    }
    case "ask": {
      send({ id: "q1", method: "sampling/createMessage", params: { messages: [], maxTokens: 1 } });
      send({ id: "q2", method: "elicitation/create", params: { message: "password?", requestedSchema: noArguments } });
      while (answers.length < 2)
        await new Promise<void>((resolve) => {
          asked = resolve;
        });
      return JSON.stringify(answers);
    }
    case "lists":
      return String(lists);
    case "change":
      tools.push({ name: "new", inputSchema: noArguments });
      for (let count = 0; count < 200; count++) send({ method: "notifications/tools/list_changed" });
      return "changed";
    case "deep":
      return `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    case "child": {
      const child = spawn("sleep", ["1000"], { stdio: "ignore", detached: true });
      return `${process.pid} ${child.pid}`;
    }
    case "environment":
      return JSON.stringify(process.env);
    default:
      return `called ${name}`;
  }
  return "";
}

async function take(message: Incoming): Promise<void> {
  const { id, method, params = {} } = message;
  switch (method) {
    case "initialize":
      send({
        id,
        result: {
          protocolVersion: "2025-11-25",
          capabilities: { tools: { listChanged: true } },
          serverInfo: { name: "hostile", version: "1" },
        },
      });
      return;
    case "tools/list": {
      lists++;
      const start = Number(params["cursor"] ?? 0);
      const end = start + 10;
      send({
        id,
        result: { tools: tools.slice(start, end), ...(end < tools.length ? { nextCursor: String(end) } : {}) },
      });
      return;
    }
    case "tools/call": {
      const name = String(params["name"]);
      const text = await call(name);
      if (name === "deep")
        process.stdout.write(`{"jsonrpc":"2.0","id":${id},"result":{"structuredContent":${text}}}\n`);
      else send({ id, result: { content: [{ type: "text", text }], ...(name === "fail" ? { isError: true } : {}) } });
      return;
    }
    case "notifications/cancelled":
      cancelled.push(params["requestId"]);
      return;
    case undefined:
      answers.push(message.error?.code);
      asked?.();
  }
}

console.error(`started as ${mode}, secret is ${process.env["SECRET"]}`);
process.stdout.write("welcome to this server\n");
if (mode === "exit") process.exit(7);
if (mode === "stubborn") {
  process.on("SIGTERM", () => undefined);
  setInterval(() => undefined, 1000);
}
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  if (mode !== "silent") void take(JSON.parse(line));
});
