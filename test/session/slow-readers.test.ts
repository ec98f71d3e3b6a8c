import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { create, fromBinary, toBinary, toJsonString } from "@bufbuild/protobuf";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  CodeAgentService,
  type GenerateChunk,
  GenerateChunkSchema,
  GenerateRequestSchema,
  SubscribeSessionRequestSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { launcher, temporaryFolder } from "../cli/start-codeagent.ts";
import { framed, openCall, readAnswer } from "../support/grpc-wire.ts";
import { startTestApp, user } from "../support/test-app.ts";

const megabyte = 1024 * 1024;
const turnBytes = 800_000;
const streamedBytes = 20 * megabyte;
const script = `
- text: "${"All work and no play makes Jack a dull boy. ".repeat(20)}"
  repeat: ${Math.round(turnBytes / 880)}
  chunk: 16000
`;

function contentBytes(chunks: readonly GenerateChunk[]): number {
  return chunks.reduce(
    (sum, { event }) => sum + (event.case === "blockDelta" ? (event.value.delta.value?.length ?? 0) : 0),
    0,
  );
}

/** Runs turns one after the other until so many bytes were streamed. */
async function produce(client: Client<typeof CodeAgentService>, sessionId: string, bytes: number): Promise<void> {
  for (let made = 0; made < bytes; made += turnBytes) await client.generate({ sessionId, messages: [user("x")] });
}

describe("a reader that takes nothing", { timeout: 90_000 }, () => {
  const path = "/codeagent.v1.CodeAgentService/";
  /** Begins to read, takes nothing for a while, then takes what comes. */
  async function readAfter(
    context: TestContext,
    flags: Readonly<Record<string, number>>,
    method: string,
    waitMs: number,
  ) {
    const { app, client } = await startTestApp(context, { script, flags });
    const { sessionId } = await client.createSession({});
    const asked = { sessionId, messages: [user("x")], requestId: "first" };
    await client.generate(asked);
    await produce(client, sessionId, 2 * turnBytes);
    const session = http2.connect(app.url);
    context.after(() => session.destroy());
    const stream = openCall(session, `${path}${method}`);
    const body =
      method === "SubscribeSession"
        ? toBinary(SubscribeSessionRequestSchema, create(SubscribeSessionRequestSchema, { sessionId }))
        : toBinary(GenerateRequestSchema, create(GenerateRequestSchema, asked));
    stream.end(framed(body));
    await once(stream, "response");
    await wait(waitMs);
    const answer = await readAnswer(stream);
    const chunks = answer.messages.map((message) => fromBinary(GenerateChunkSchema, message));
    return { ...answer, chunks, lastSeq: chunks.findLast(({ seq }) => seq > 0n)?.seq };
  }

  for (const method of ["SubscribeSession", "StreamGenerate"]) {
    test(`${method}: is cut off with the last event it got`, async (context) => {
      const { status, message, chunks, lastSeq, trailers } = await readAfter(
        context,
        { "limits.slow_reader_ms": 400 },
        method,
        1500,
      );
      assert.equal(status, Code.Unavailable, message);
      assert.match(message, new RegExp(`come back with after_seq ${lastSeq}$`));
      const details = Buffer.from(String(trailers["grpc-status-details-bin"]), "base64").toString("latin1");
      assert.match(details, /SLOW_READER/);
      assert.match(details, new RegExp(`lastSeq[^0-9]*${lastSeq}\\b`));
      assert.ok(contentBytes(chunks) < turnBytes);
    });

    test(`${method}: is warned before`, async (context) => {
      const { status, chunks } = await readAfter(context, { "limits.slow_reader_ms": 1600 }, method, 1900);
      assert.equal(status, 0);
      const warnings = chunks.filter(({ seq, event }) => seq === 0n && event.case === "notice");
      assert.deepEqual(
        warnings.map(({ event }) => (event.case === "notice" ? event.value.code : "")),
        ["SLOW_READER"],
      );
      assert.ok(contentBytes(chunks) >= turnBytes * 0.9);
    });
  }

  test("little that waits is no reason, and neither is anything where there is no limit", async (context) => {
    for (const flags of [
      { "limits.slow_reader_ms": 400, "limits.slow_reader_bytes": 64 * megabyte },
      { "limits.slow_reader_ms": 0 },
    ]) {
      const { status, chunks } = await readAfter(context, flags, "SubscribeSession", 1500);
      assert.equal(status, 0);
      assert.ok(contentBytes(chunks) >= 2 * turnBytes);
    }
  });
});

describe("many slow readers", { timeout: 120_000 }, () => {
  const slowReaders = 200;

  test("cost little memory, and no reader that keeps up is slowed", async (context) => {
    const server = await serve(context);
    const fast = createClient(CodeAgentService, createGrpcTransport({ baseUrl: server.url }));
    /** How long it takes to stream it all to three readers that keep up, in milliseconds. */
    const streamToFast = async (sessionId: string) => {
      const before = performance.now();
      const reading = Array.from({ length: 3 }, async () => {
        let bytes = 0;
        for await (const chunk of fast.subscribeSession({ sessionId, follow: true })) {
          bytes += contentBytes([chunk]);
          if (bytes >= streamedBytes) return;
        }
      });
      await produce(fast, sessionId, streamedBytes);
      await Promise.all(reading);
      return performance.now() - before;
    };
    await streamToFast((await fast.createSession({})).sessionId); // warm
    const aloneMs = await streamToFast((await fast.createSession({})).sessionId);
    const beforeBytes = server.residentBytes();

    const { sessionId } = await fast.createSession({});
    const slow = await stoppedReaders(context, server.url, sessionId);
    assert.equal(slow, slowReaders);
    let mostBytes = 0;
    const watching = setInterval(() => {
      mostBytes = Math.max(mostBytes, server.residentBytes());
    }, 50);
    context.after(() => clearInterval(watching));
    const besideMs = await streamToFast(sessionId);
    clearInterval(watching);
    const grown = Math.max(mostBytes, server.residentBytes()) - beforeBytes;
    context.diagnostic(
      `alone ${aloneMs.toFixed()} ms, beside slow readers ${besideMs.toFixed()} ms, ${grown} bytes more`,
    );
    assert.ok(grown < 500 * megabyte, `the server grew by ${Math.round(grown / megabyte)} MB`);
    assert.ok(besideMs < 6 * aloneMs + 5000, `${besideMs} ms beside slow readers, ${aloneMs} ms without`);
  });

  /** Readers that begin and then take nothing, over HTTP/2 and HTTP/1.1. */
  async function stoppedReaders(context: TestContext, url: string, sessionId: string): Promise<number> {
    const request = create(SubscribeSessionRequestSchema, { sessionId, follow: true });
    const path = "/codeagent.v1.CodeAgentService/SubscribeSession";
    let begun = 0;
    for (let connection = 0; connection < 10; connection++) {
      const session = http2.connect(url);
      session.on("error", () => undefined);
      context.after(() => session.destroy());
      for (let at = 0; at < 15; at++) {
        const stream = openCall(session, path);
        stream.on("error", () => undefined);
        stream.end(framed(toBinary(SubscribeSessionRequestSchema, request)));
        await once(stream, "response");
        begun++;
      }
    }
    const json = Buffer.from(toJsonString(SubscribeSessionRequestSchema, request));
    for (let at = 0; at < 50; at++) {
      const call = http.request(`${url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/connect+json", "connect-protocol-version": "1" },
      });
      call.on("error", () => undefined);
      context.after(() => call.destroy());
      call.end(framed(json));
      const [response]: http.IncomingMessage[] = await once(call, "response");
      response?.on("error", () => undefined);
      begun++;
    }
    return begun;
  }

  /** A process of its own, so that its memory is the server's alone. */
  async function serve(context: TestContext) {
    const folder = temporaryFolder(context);
    const file = join(folder, "script.yaml");
    writeFileSync(file, script);
    const server: ChildProcessByStdio<null, Readable, null> = spawn(
      process.execPath,
      ["--max-old-space-size=192", launcher, "serve"],
      {
        cwd: folder,
        stdio: ["ignore", "pipe", "inherit"],
        env: {
          PATH: process.env["PATH"],
          CODEAGENT_DATA_DIR: join(folder, "data"),
          CODEAGENT_MODEL: "scripted/test",
          CODEAGENT_SCRIPTED_FILE: file,
          CODEAGENT_PORT: "0",
          CODEAGENT_LIMITS_SLOW_READER_MS: "2000",
        },
      },
    );
    context.after(async () => {
      server.kill("SIGKILL");
      await once(server, "close");
    });
    const [line]: unknown[] = await once(server.stdout.setEncoding("utf8"), "data");
    const url = /http:\S+/.exec(String(line))?.[0] ?? "";
    return {
      url,
      residentBytes: () =>
        Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))?.[1]) * 1024,
    };
  }
});
