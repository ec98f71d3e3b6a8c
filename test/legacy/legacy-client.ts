import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, type ClientReadableStream, credentials, Metadata, type MethodDefinition } from "@grpc/grpc-js";
import { loadSync, type PackageDefinition } from "@grpc/proto-loader";

/** L0 and L1 tell roles by enums, L2 by strings. */
export type Era = "L0" | "L1" | "L2";

/** A message as `proto-loader` gives it: names as in the proto, 64-bit numbers and enums as strings. */
export type LegacyMessage = Readonly<Record<string, unknown>>;

/** Calls the earlier service as a client of its time does: no deadline, and no metadata unless some is given. */
export interface LegacyClient {
  /** @throws {ServiceError} of grpc-js. */
  call(rpc: string, request?: LegacyMessage, headers?: Readonly<Record<string, string>>): Promise<LegacyMessage>;
  /** To be read to its end or cancelled. */
  stream(
    rpc: string,
    request?: LegacyMessage,
    headers?: Readonly<Record<string, string>>,
  ): AsyncIterable<LegacyMessage> & { cancel(): void };
  /** The bytes of a request as this client writes them. */
  encode(rpc: string, request: LegacyMessage): Buffer;
  /** An answer from its bytes, as this client reads them. */
  decode(rpc: string, bytes: Buffer): LegacyMessage;
  /** Names of the RPCs of the era. */
  readonly rpcs: readonly string[];
  close(): void;
}

const serviceName = "a3s.code.agent.v1.CodeAgentService";
const protoOf = {
  L0: new URL("proto/l0/code_agent.proto", import.meta.url),
  L1: new URL("proto/l1/code_agent.proto", import.meta.url),
  L2: new URL("../../proto/a3s/code/agent/v1/code_agent.proto", import.meta.url),
};
const loaded = new Map<Era, PackageDefinition>();

function definitionsOf(era: Era): PackageDefinition {
  const known = loaded.get(era);
  if (known !== undefined) return known;
  const definitions = loadSync(fileURLToPath(protoOf[era]), {
    keepCase: true,
    longs: String,
    enums: String,
    defaults: true,
  });
  loaded.set(era, definitions);
  return definitions;
}

/** Clients of both eras for the address of an app; closed at the end of the test. */
export function legacyClients(context: Pick<TestContext, "after">, url: string): Record<Era, LegacyClient> {
  const clients = { L0: legacyClient(url, "L0"), L1: legacyClient(url, "L1"), L2: legacyClient(url, "L2") };
  context.after(() => {
    for (const client of Object.values(clients)) client.close();
  });
  return clients;
}

/** A client of one era, to be closed. */
export function legacyClient(url: string, era: Era): LegacyClient {
  const client = new Client(new URL(url).host, credentials.createInsecure());
  const method = (rpc: string): MethodDefinition<object, object> => {
    const service = definitionsOf(era)[serviceName];
    const found = service === undefined || "format" in service ? undefined : service[rpc];
    return found ?? assert.fail(`${era} has no ${rpc}`);
  };
  return {
    call(rpc, request = {}, headers = {}) {
      const { path, requestSerialize, responseDeserialize } = method(rpc);
      const { promise, resolve, reject } = Promise.withResolvers<LegacyMessage>();
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        metadataFrom(headers),
        (error, answer) => (answer === undefined ? reject(error) : resolve({ ...answer })),
      );
      return promise;
    },
    stream(rpc, request = {}, headers = {}): ClientReadableStream<LegacyMessage> {
      const { path, requestSerialize, responseDeserialize } = method(rpc);
      const readMessage = (bytes: Buffer): LegacyMessage => ({ ...responseDeserialize(bytes) });
      return client.makeServerStreamRequest(path, requestSerialize, readMessage, request, metadataFrom(headers));
    },
    encode: (rpc, request) => method(rpc).requestSerialize(request),
    decode: (rpc, bytes) => ({ ...method(rpc).responseDeserialize(bytes) }),
    rpcs: Object.keys(definitionsOf(era)[serviceName] ?? {}),
    close: () => client.close(),
  };
}

function metadataFrom(headers: Readonly<Record<string, string>>): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
  return metadata;
}

/** What is at a path such as `session.config.name` or `sessions.0.session_id`. */
export function at(message: unknown, path: string): unknown {
  let value = message;
  for (const name of path.split("."))
    value = typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
  return value;
}
