import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { credentials, Client as GrpcJsClient } from "@grpc/grpc-js";
import {
  CodeAgentService,
  type GenerateChunk,
  GenerateChunkSchema,
  SubscribeSessionRequestSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { Health, HealthCheckResponse_ServingStatus } from "../../gen/grpc/health/v1/health_pb.ts";
import { streamTurn } from "../../sdk/turn-stream.ts";
import { end, firstLine, killScript, type ServerProcess, seeded, startServer } from "../session/kill-loop.ts";
import { spread } from "../session/replica-kill-loop.ts";
import { grammarCheck } from "../support/grammar.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { user } from "../support/test-app.ts";
import { freePort, noNginx, type RunningNginx, startNginx } from "./nginx.ts";

after(stopTestDatabases);

const script = `
- when: { text: slowly }
  text: one two three four five six seven eight nine ten
  chunk: 4
  delay_ms: 30
${killScript}`;

interface Cluster {
  readonly nginx: RunningNginx;
  /** CodeAgentService over gRPC in the clear, through nginx. */
  readonly client: Client<typeof CodeAgentService>;
  readonly urls: { readonly [Name in ServerName]: string };
  start(name: ServerName): Promise<void>;
  end(name: ServerName, signal: NodeJS.Signals): Promise<void>;
  /** Calls of the changing tool that have begun so far, each by its id. */
  changes(): string[];
}

type ServerName = "a" | "b";
const names: readonly ServerName[] = ["a", "b"];

/** Two servers over one PostgreSQL behind nginx, gone after the test. */
async function cluster(context: TestContext): Promise<Cluster> {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-nginx-"));
  const effects = join(folder, "effects");
  writeFileSync(effects, "");
  writeFileSync(join(folder, "script.yaml"), script);
  const ports = { a: await freePort(), b: await freePort() };
  const nginx = await startNginx([`127.0.0.1:${ports.a}`, `127.0.0.1:${ports.b}`]);
  const env = {
    DATABASE_URL: await testDatabase(),
    CODEAGENT_ALLOWED_HOSTS: [nginx.tls, nginx.grpc, nginx.http].map((port) => `127.0.0.1:${port}`).join(),
  };
  const running = new Map<ServerName, ServerProcess>();
  const start = async (name: ServerName) => {
    const port = { CODEAGENT_PORT: String(ports[name]), CODEAGENT_DATA_DIR: join(folder, name) };
    const server = startServer(folder, effects, { ...env, ...port });
    running.set(name, server);
    await firstLine(server);
  };
  const sessions = new Http2SessionManager(`http://127.0.0.1:${nginx.grpc}`);
  context.after(async () => {
    sessions.abort();
    for (const server of running.values()) await end(server, "SIGKILL");
    await nginx.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  await Promise.all(names.map(start));
  const transport = createGrpcTransport({ baseUrl: `http://127.0.0.1:${nginx.grpc}`, sessionManager: sessions });
  return {
    nginx,
    client: createClient(CodeAgentService, transport),
    urls: { a: `http://127.0.0.1:${ports.a}`, b: `http://127.0.0.1:${ports.b}` },
    start,
    async end(name, signal) {
      await end(running.get(name) ?? assert.fail(`${name} does not run`), signal);
    },
    changes: () => readFileSync(effects, "utf8").match(/^begin change .*$/gm) ?? [],
  };
}

/** Every way in that the file offers. */
function ways(nginx: RunningNginx): Readonly<Record<string, Transport>> {
  const grpc = `http://127.0.0.1:${nginx.grpc}`;
  const http = `http://127.0.0.1:${nginx.http}`;
  const tls = `https://127.0.0.1:${nginx.tls}`;
  const nodeOptions = { rejectUnauthorized: false }; // the certificate is its own
  return {
    "gRPC in the clear": createGrpcTransport({ baseUrl: grpc }),
    "gRPC over TLS": createGrpcTransport({ baseUrl: tls, nodeOptions }),
    "Connect over HTTP/1.1, JSON": createConnectTransport({
      baseUrl: http,
      httpVersion: "1.1",
      useBinaryFormat: false,
    }),
    "Connect over HTTP/2 and TLS": createConnectTransport({ baseUrl: tls, httpVersion: "2", nodeOptions }),
    "gRPC-Web over HTTP/1.1": createGrpcWebTransport({ baseUrl: http, httpVersion: "1.1" }),
    "gRPC-Web over HTTP/2 and TLS": createGrpcWebTransport({ baseUrl: tls, httpVersion: "2", nodeOptions }),
  };
}

/** Calls until it goes well, as a client should that gives a `request_id`. */
async function insisting<Answer>(call: () => Promise<Answer>, failed: Map<string, number>): Promise<Answer> {
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      const { code } = ConnectError.from(error);
      count(failed, Code[code]);
      if (tries === 30 || (code !== Code.Unavailable && code !== Code.Internal)) throw error;
      await wait(100);
    }
  }
}

function count(counts: Map<string, number>, what: string): void {
  counts.set(what, (counts.get(what) ?? 0) + 1);
}

describe("two servers behind nginx", { skip: noNginx || noPostgres, timeout: 300_000 }, () => {
  test("every protocol comes through, event by event", async (context) => {
    const { nginx } = await cluster(context);
    for (const [way, transport] of Object.entries(ways(nginx))) {
      const client = createClient(CodeAgentService, transport);
      const { status } = await createClient(Health, transport).check({});
      assert.equal(status, HealthCheckResponse_ServingStatus.SERVING, way);
      const deltasMs: number[] = [];
      let finishReason = "";
      for await (const { event } of client.streamGenerate({ messages: [user("slowly")] })) {
        if (event.case === "blockDelta") deltasMs.push(performance.now());
        if (event.case === "turnFinished") finishReason = event.value.finishReason;
      }
      assert.equal(finishReason, "stop", way);
      assert.ok((deltasMs.at(-1) ?? 0) - (deltasMs[0] ?? 0) > 150, `${way}: deltas came all at once`);
      const { message } = await client.generate({ messages: [user("slowly")] });
      assert.match(String(message?.contentType.value), /ten$/, way);
      const isNotFound = (error: unknown) => ConnectError.from(error).code === Code.NotFound;
      await assert.rejects(client.getSession({ sessionId: "nobody" }), isNotFound, way);
      // nginx alone would refuse more than a megabyte.
      const large = client.getSession({ sessionId: "x".repeat(3_000_000) });
      await assert.rejects(large, (error) => ConnectError.from(error).code === Code.InvalidArgument, way);
    }
    assert.doesNotMatch(nginx.errors(), /\[(?:error|crit|alert|emerg)\]/);
  });

  test("streams of our SDK go on at the other server when theirs is killed", async (context) => {
    const servers = await cluster(context);
    let connections = 0;
    const client: typeof servers.client = {
      ...servers.client,
      subscribeSession(request, options) {
        connections++;
        return servers.client.subscribeSession(request, options);
      },
    };
    const report = await killing(servers, async (turn, see) => {
      const before = connections;
      const request = { sessionId: "killed", messages: [user(turn)], requestId: turn };
      for await (const chunk of streamTurn(client, request)) see(chunk);
      return connections - before;
    });
    context.diagnostic(JSON.stringify(report));
  });

  test("streams of grpc-js go on at the other server from their cursor", async (context) => {
    const servers = await cluster(context);
    const client = new GrpcJsClient(`127.0.0.1:${servers.nginx.grpc}`, credentials.createInsecure());
    context.after(() => client.close());
    const codes = new Map<string, number>();
    let afterSeq = 0n;
    const report = await killing(servers, async (turn, see) => {
      const request = { sessionId: "killed", messages: [user(turn)], requestId: turn };
      const asked = insisting(() => servers.client.generate(request), new Map());
      let cuts = 0;
      for (let finished = false; !finished; ) {
        const stream = client.makeServerStreamRequest(
          "/codeagent.v1.CodeAgentService/SubscribeSession",
          (message: Uint8Array) => Buffer.from(message),
          (bytes: Buffer) => fromBinary(GenerateChunkSchema, bytes),
          toBinary(SubscribeSessionRequestSchema, {
            $typeName: "codeagent.v1.SubscribeSessionRequest",
            sessionId: "killed",
            afterSeq,
            follow: true,
          }),
          { deadline: Date.now() + 60_000 },
        );
        try {
          for await (const chunk of stream) {
            see(chunk);
            if (chunk.seq > 0n) afterSeq = chunk.seq;
            finished = chunk.event.case === "turnFinished";
            if (finished) break;
          }
        } catch (error) {
          cuts++;
          count(codes, String(error));
          assert.ok(cuts < 30, String(error));
          await wait(100);
        }
      }
      await asked;
      return cuts;
    });
    context.diagnostic(JSON.stringify({ ...report, codes: Object.fromEntries(codes) }));
  });

  test("the same request by many ways at once, and again later, is one turn", async (context) => {
    const servers = await cluster(context);
    await servers.client.createSession({ sessionId: "once", permissions: { mode: "bypass" } });
    const clients = Object.values(ways(servers.nginx)).map((transport) => createClient(CodeAgentService, transport));
    const request = { sessionId: "once", messages: [user("do it")], requestId: "the same" };
    const answers = await Promise.all([...clients, ...clients].map((client) => client.generate(request)));
    await servers.end("a", "SIGTERM");
    answers.push(await insisting(() => servers.client.generate(request), new Map()));
    assert.equal(new Set(answers.map(({ turnId }) => turnId)).size, 1);
    assert.equal(servers.changes().length, 2);
    await assert.rejects(
      servers.client.generate({ ...request, messages: [user("something else")] }),
      (error) => ConnectError.from(error).code === Code.AlreadyExists,
    );
  });

  test("a rolling restart under load fails no call that has a request_id", async (context) => {
    const servers = await cluster(context);
    const failed = new Map<string, number>();
    const failedReads = new Map<string, number>();
    const turnIds: string[] = [];
    let reads = 0;
    let stopped = false;
    const lanes = Array.from({ length: 4 }, async (_, lane) => {
      const sessionId = `lane-${lane}`;
      const session = { sessionId, permissions: { mode: "bypass" }, requestId: sessionId };
      await insisting(() => servers.client.createSession(session), failed);
      for (let call = 1; !stopped; call++) {
        const request = { sessionId, messages: [user(`call ${call}`)], requestId: `call ${call}` };
        const { turnId, finishReason } = await insisting(() => servers.client.generate(request), failed);
        assert.equal(finishReason, "stop");
        turnIds.push(turnId);
      }
    });
    const reader = (async () => {
      while (!stopped) {
        reads++;
        await servers.client.getCapabilities({}).catch((error) => count(failedReads, ConnectError.from(error).message));
        await wait(5);
      }
    })();
    const restartMs: number[] = [];
    try {
      for (const name of [...names, ...names, ...names]) {
        const began = performance.now();
        await servers.end(name, "SIGTERM");
        await servers.start(name);
        restartMs.push(performance.now() - began);
      }
    } finally {
      stopped = true;
    }
    await Promise.all([...lanes, reader]);
    const retries = Object.fromEntries(failed);
    const reading = Object.fromEntries(failedReads);
    const restart = spread(restartMs);
    context.diagnostic(JSON.stringify({ calls: turnIds.length, retries, reads, failedReads: reading, restart }));
    assert.equal(new Set(turnIds).size, turnIds.length, "every call is a turn of its own");
    assert.equal(servers.changes().length, 2 * turnIds.length, "and none ran twice");
    assert.ok(turnIds.length > 12, `${turnIds.length} calls are no load`);
    // Nobody repeats these but nginx, which can't where a server answers that it is just stopping.
    const unread = [...failedReads.values()].reduce((sum, times) => sum + times, 0);
    assert.ok(unread < reads / 50, `${unread} of ${reads} reads failed`);
  });

  test("what nginx adds to a call", async (context) => {
    const servers = await cluster(context);
    await servers.client.createSession({ sessionId: "one" });
    const direct = createClient(CodeAgentService, createGrpcTransport({ baseUrl: servers.urls.a }));
    const tookMs = { direct: [] as number[], nginx: [] as number[] };
    for (let round = 0; round < 2000; round++) {
      for (const [way, client] of [["direct", direct] as const, ["nginx", servers.client] as const]) {
        const began = performance.now();
        await client.getCapabilities({});
        if (round >= 500) tookMs[way].push(performance.now() - began);
      }
    }
    const p = (values: readonly number[], share: number) =>
      values.toSorted((left, right) => left - right)[Math.floor(values.length * share)]?.toFixed(2);
    const { direct: without, nginx: through } = tookMs;
    const line = (values: readonly number[]) => `p50 ${p(values, 0.5)} ms, p99 ${p(values, 0.99)} ms`;
    context.diagnostic(`direct ${line(without)}; through nginx ${line(through)}`);
    assert.ok(Number(p(through, 0.5)) < Number(p(without, 0.5)) + 20);
  });
});

/**
 * Reads turns while servers are killed at random moments, until streams were cut often enough.
 * @param readTurn asks for a turn and shows every event of it; says how often its stream was cut.
 */
async function killing(
  servers: Cluster,
  readTurn: (turn: string, see: (chunk: GenerateChunk) => void) => Promise<number>,
) {
  const random = seeded(4);
  const session = { sessionId: "killed", permissions: { mode: "bypass" }, requestId: "the session" };
  await servers.client.createSession(session);
  const check = grammarCheck(1n);
  const resumedMs: number[] = [];
  let [kills, cuts] = [0, 0];
  for (let turn = 1; cuts < 6; turn++) {
    assert.ok(turn <= 40, `only ${cuts} streams were cut by ${kills} kills`);
    const name = random() < 0.5 ? "a" : "b";
    let killedAt: number | undefined;
    let eventAt = 0;
    const longestSilence = { ms: 0 };
    const reading = readTurn(`turn ${turn}`, (chunk) => {
      check.add(chunk);
      const now = performance.now();
      if (killedAt !== undefined && eventAt !== 0) longestSilence.ms = Math.max(longestSilence.ms, now - eventAt);
      eventAt = now;
      if (chunk.event.case === "turnFinished") assert.equal(chunk.event.value.finishReason, "stop");
    });
    reading.catch(() => undefined); // awaited below
    await wait(30 + random() * 300);
    killedAt = performance.now();
    await servers.end(name, "SIGKILL");
    kills++;
    const cut = await reading;
    cuts += cut;
    if (cut > 0) resumedMs.push(longestSilence.ms);
    await servers.start(name);
  }
  check.end();
  const changes = servers.changes();
  assert.equal(new Set(changes).size, changes.length, "no tool ran twice");
  return { turns: check.turns.length, kills, cuts, silenceMs: spread(resumedMs), changes: changes.length };
}
