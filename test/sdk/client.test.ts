import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createCodeAgentClient as createBrowserClient } from "../../sdk/browser.ts";
import {
  Code,
  CodeAgentError,
  chatCompletion,
  codeAgentErrorFrom,
  createCodeAgentClient,
  streamChatCompletion,
} from "../../sdk/index.ts";
import { startTestServer } from "./start-app.ts";

const transports = ["grpc", "connect", "grpc-web"] as const;
const script = `
- { when: { text: { contains: fail } }, error: { status: 429, message: slow down, retry_after: 3600 } }
- { text: hello there }
`;
const prompt = [{ role: "user", content: "hello" } as const];

describe("the client", { timeout: 30_000 }, () => {
  const clients = [
    ...transports.map((transport) => ({
      name: `node, ${transport}`,
      open: (baseUrl: string, token: string) => createCodeAgentClient({ baseUrl, token, transport }),
    })),
    {
      name: "node, default",
      open: (baseUrl: string, token: string) => createCodeAgentClient({ baseUrl: `${baseUrl}/`, token }),
    },
    {
      name: "node, a ready transport",
      open: (baseUrl: string, token: string) =>
        createCodeAgentClient({ baseUrl, token, transport: createGrpcTransport({ baseUrl }) }),
    },
    ...(["connect", "grpc-web"] as const).map((transport) => ({
      name: `browser, ${transport}`,
      open: (baseUrl: string, token: string) => createBrowserClient({ baseUrl, token, transport }),
    })),
    {
      name: "browser, default",
      open: (baseUrl: string, token: string) => createBrowserClient({ baseUrl, token }),
    },
  ];
  const token = "0123456789abcdef";
  for (const { name, open } of clients) {
    test(`${name}: calls, streams and completions carry the token`, async () => {
      await using server = await startTestServer(script, { token });
      using client = open(server.url, `${token}\n`);
      assert.equal((await client.getCapabilities({})).defaultModel, "scripted/demo");
      assert.equal((await client.agent.listSessions({})).sessions.length, 0);
      assert.ok((await client.models.listProviders({})).providers.length > 0);
      assert.ok((await client.tools.listTools({})).tools.length > 0);
      const completion = await chatCompletion(client, { messages: prompt });
      assert.equal(completion.choices[0]?.message.content, "hello there");
      let text = "";
      for await (const chunk of streamChatCompletion(client, { messages: prompt }))
        text += chunk.choices[0]?.delta.content ?? "";
      assert.equal(text, "hello there");
    });

    test(`${name}: a wrong token is refused at once`, async () => {
      await using server = await startTestServer(script, { token });
      using client = open(server.url, "not-the-token-at-all");
      const wait = async () => assert.fail("a wrong token is not tried again");
      await assert.rejects(chatCompletion(client, { messages: prompt }, { wait }), {
        name: "CodeAgentError",
        code: Code.Unauthenticated,
      });
      await assert.rejects(
        client.getCapabilities({}),
        (error) => codeAgentErrorFrom(error).code === Code.Unauthenticated,
      );
    });
  }

  for (const baseUrl of ["", "localhost:4088", "ftp://host", "/v1"]) {
    test(`the address ${JSON.stringify(baseUrl)} is refused`, () => {
      assert.throws(() => createCodeAgentClient({ baseUrl }), /write it as http:\/\/host:port/);
      assert.throws(() => createBrowserClient({ baseUrl }), /write it as http:\/\/host:port/);
    });
  }

  test("a token that no header can carry is refused without being shown", () => {
    const make = () => createCodeAgentClient({ baseUrl: "http://127.0.0.1:1", token: "se\ncret" });
    assert.throws(make, (error: Error) => /token/.test(error.message) && !error.message.includes("cret"));
  });
});

describe("errors", { timeout: 30_000 }, () => {
  for (const transport of transports) {
    test(`${transport}: code, reason and details arrive`, async () => {
      await using server = await startTestServer(script);
      using client = createCodeAgentClient({ baseUrl: server.url, transport });
      const failed = await chatCompletion(client, { messages: [{ role: "user", content: "fail" }] }).catch(
        (error: unknown) => error,
      );
      assert.ok(failed instanceof CodeAgentError);
      assert.equal(failed.code, Code.ResourceExhausted);
      assert.equal(failed.reason, "RATE_LIMITED");
      assert.match(failed.message, /slow down/);
      assert.equal(failed.retryAfterMs, 3_600_000);
      assert.equal(failed.detail.retryable, true);
      assert.equal(failed.detail.upstreamStatus, 429);
      assert.equal(failed.detail.provider, "scripted");
      assert.match(failed.turn?.turnId ?? "", /^turn_/);

      const streamed = (async () => {
        const params = { messages: [{ role: "user" as const, content: "fail" }] };
        for await (const _ of streamChatCompletion(client, params));
      })();
      await assert.rejects(streamed, { name: "CodeAgentError", code: Code.ResourceExhausted, retryAfterMs: 3_600_000 });

      await assert.rejects(chatCompletion(client, { messages: prompt, session_id: "unknown" }), {
        code: Code.NotFound,
        reason: "SESSION_NOT_FOUND",
      });
      await assert.rejects(chatCompletion(client, { messages: prompt, request_id: "x".repeat(300) }), {
        code: Code.InvalidArgument,
        fieldViolations: [{ field: "request_id", description: "has 300 characters; 256 is the most" }],
      });
      const raw = await client.getSession({ sessionId: "unknown" }).catch((error: unknown) => error);
      const read = codeAgentErrorFrom(raw);
      assert.equal(read.reason, "SESSION_NOT_FOUND");
      assert.equal(read.cause, raw);
    });
  }

  const wrong: [string, object, string][] = [
    ["no messages", { messages: undefined }, "messages"],
    ["a role", { messages: [{ role: "robot", content: "x" }] }, "messages[0].role"],
    ["a custom tool", { messages: prompt, tools: [{ type: "custom", custom: { name: "x" } }] }, "tools[0].type"],
    ["two answers", { messages: prompt, n: 2 }, "n"],
    ["steps", { messages: prompt, max_steps: 0 }, "max_steps"],
    ["no tool at all", { messages: prompt, allowed_tools: [] }, "allowed_tools"],
  ];
  for (const [name, params, field] of wrong) {
    test(`a wrong field is named before anything is sent: ${name}`, async () => {
      using client = createCodeAgentClient({ baseUrl: "http://127.0.0.1:1" });
      // As it comes from callers without types.
      const given = JSON.parse(JSON.stringify(params));
      const expected = (error: unknown) =>
        error instanceof CodeAgentError &&
        error.code === Code.InvalidArgument &&
        error.fieldViolations[0]?.field === field;
      assert.throws(() => streamChatCompletion(client, given), expected);
      await assert.rejects(chatCompletion(client, given), expected);
    });
  }
});

test("an open client does not keep a process alive", { timeout: 30_000 }, async () => {
  await using server = await startTestServer(script);
  const program = `
    import { chatCompletion, createCodeAgentClient } from ${JSON.stringify(new URL("../../sdk/index.ts", import.meta.url).href)};
    for (const transport of ["grpc", "connect", "grpc-web"]) {
      const client = createCodeAgentClient({ baseUrl: ${JSON.stringify(server.url)}, transport });
      console.log((await chatCompletion(client, { messages: [{ role: "user", content: "x" }] })).choices[0].message.content);
    }`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    timeout: 10_000,
  });
  assert.equal(stdout, "hello there\n".repeat(3));
});

test("the package for browsers imports nothing of Node's", () => {
  const sources = new Set<string>();
  const packages = new Set<string>();
  const walk = (file: string) => {
    if (sources.has(file)) return;
    sources.add(file);
    const imports = readFileSync(file, "utf8").matchAll(
      /^(?:import|export)\s(?!type\b)(?:[^;"']*?\sfrom\s+)?["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']/gm,
    );
    for (const [, from, dynamic] of imports) {
      const name = from ?? dynamic ?? "";
      if (name.startsWith(".")) walk(join(dirname(file), name));
      else packages.add(name);
    }
  };
  walk(fileURLToPath(new URL("../../sdk/browser.ts", import.meta.url)));
  assert.ok(sources.size > 15, `${sources.size} files were found`);
  assert.deepEqual([...packages].sort(), [
    "@bufbuild/protobuf",
    "@bufbuild/protobuf/codegenv2",
    "@bufbuild/protobuf/reflect",
    "@bufbuild/protobuf/wire",
    "@bufbuild/protobuf/wkt",
    "@connectrpc/connect",
    "@connectrpc/connect-web",
  ]);
});
