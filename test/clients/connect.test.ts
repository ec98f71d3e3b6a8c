import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { makeCertificate } from "../support/certificate.ts";
import { collect } from "../support/grammar.ts";
import { user } from "../support/test-app.ts";
import { connectVisitor, withToken } from "./connect-visitor.ts";
import { startForVisitors, token, visit, wrongToken } from "./visit.ts";

const certificate = makeCertificate();

interface Address {
  readonly baseUrl: string;
  readonly nodeOptions: { readonly ca?: string };
}

const transports: {
  readonly name: string;
  readonly tls?: boolean;
  readonly to: (address: Address, token: string) => Transport;
}[] = [
  {
    name: "gRPC",
    to: (address, word) => createGrpcTransport({ ...address, interceptors: [withToken(word)] }),
  },
  {
    name: "gRPC over TLS",
    tls: true,
    to: (address, word) => createGrpcTransport({ ...address, interceptors: [withToken(word)] }),
  },
  ...(["1.1", "2"] as const).flatMap((httpVersion) => [
    {
      name: `gRPC-Web over HTTP/${httpVersion}`,
      to: (address: Address, word: string) =>
        createGrpcWebTransport({ ...address, httpVersion, interceptors: [withToken(word)] }),
    },
    {
      name: `Connect over HTTP/${httpVersion}`,
      to: (address: Address, word: string) =>
        createConnectTransport({ ...address, httpVersion, interceptors: [withToken(word)] }),
    },
    {
      name: `Connect with JSON over HTTP/${httpVersion} and TLS`,
      tls: true,
      to: (address: Address, word: string) =>
        createConnectTransport({
          ...address,
          httpVersion,
          interceptors: [withToken(word)],
          useBinaryFormat: false,
        }),
    },
  ]),
];

/** Starts the service and says how to reach it; with TLS under a certificate made for it. */
async function start(context: TestContext, tls: boolean): Promise<Address> {
  if (!tls || certificate === undefined) {
    const { app } = await startForVisitors(context);
    return { baseUrl: app.url, nodeOptions: {} };
  }
  const folder = await mkdtemp(join(tmpdir(), "codeagent-tls-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  await writeFile(cert, certificate.cert);
  await writeFile(key, certificate.key);
  const { app } = await startForVisitors(context, { "tls.cert": cert, "tls.key": key });
  assert.match(app.url, /^https:/);
  return { baseUrl: app.url, nodeOptions: { ca: certificate.cert } };
}

describe("the Node transports of Connect", () => {
  for (const { name, tls = false, to } of transports) {
    const skip = tls && certificate === undefined && "openssl is not installed";
    test(name, { skip }, async (context) => {
      const address = await start(context, tls);
      const transport = to(address, token);
      await visit(context, connectVisitor(transport), connectVisitor(to(address, wrongToken)), "of-connect");

      await context.test("who leaves a stream can come back to it", async () => {
        const client = createClient(CodeAgentService, transport);
        const { sessionId } = await client.createSession({});
        let cursor = 0n;
        for await (const chunk of client.streamGenerate({ sessionId, messages: [user("slowly")] })) {
          cursor = chunk.seq;
          if (chunk.event.case === "blockDelta") break;
        }
        let last = "";
        const abort = new AbortController();
        const log = client.subscribeSession({ sessionId, afterSeq: cursor, follow: true }, { signal: abort.signal });
        for await (const { seq, event } of log) {
          if (seq === 0n) continue;
          assert.equal(seq, ++cursor);
          last = event.case === "turnFinished" ? event.value.finishReason : "";
          if (event.case === "turnFinished") break;
        }
        assert.equal(last, "stop");
        await collect(client.subscribeSession({ sessionId }), 1n);
      });

      await context.test("a deadline ends a call", async () => {
        const client = createClient(CodeAgentService, transport);
        await assert.rejects(
          client.generate({ messages: [user("slowly")] }, { timeoutMs: 50 }),
          (error) => ConnectError.from(error).code === Code.DeadlineExceeded,
        );
      });
    });
  }
});
