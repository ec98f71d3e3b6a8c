import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import type { TestContext } from "node:test";
import {
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  fromJson,
  type JsonObject,
  toBinary,
} from "@bufbuild/protobuf";
import { Client, credentials, Metadata, type StatusObject, status } from "@grpc/grpc-js";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { BadRequestSchema, ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import { enveloped, failureFromJson, messagesFrom, parseJson } from "../clients/connect-json.ts";
import { CallFailed } from "../clients/visit.ts";
import { type LegacyMessage, legacyClient } from "../legacy/legacy-client.ts";

export type Method = DescMethodUnary | DescMethodServerStreaming;
/** Fields of HTTP or gRPC beside those a door sends anyway; `null` leaves one of those out. */
export type Fields = Readonly<Record<string, string | null>>;

/** A call of ours. `bytes` are sent in place of the encoded request, in whatever format the door speaks. */
export interface RpcAsk {
  /** Default Generate. */
  readonly method?: Method;
  readonly request?: JsonObject;
  readonly bytes?: Uint8Array | string;
  /** In place of that of the method. */
  readonly path?: string;
  readonly httpMethod?: string;
  readonly headers?: Fields;
}

/** A call of the earlier service. */
export interface LegacyAsk {
  /** Default Generate. */
  readonly rpc?: string;
  readonly request?: LegacyMessage;
  readonly bytes?: Uint8Array;
  readonly path?: string;
  readonly headers?: Fields;
}

export interface RestAsk {
  /** Sent as JSON, unless it is text or bytes. */
  readonly body?: JsonObject | string | Uint8Array;
  /** In place of the door's own. */
  readonly path?: string;
  readonly httpMethod?: string;
  readonly headers?: Fields;
}

/** How an RPC was refused. */
export interface RpcAnswer {
  readonly code: string;
  readonly message: string;
  /** Of `ErrorInfo`; empty where there is none. */
  readonly reason: string;
  /** Of `BadRequest`. */
  readonly fields: readonly string[];
  /** All that came, for a look at what should not be in it. */
  readonly whole: string;
}

export interface RestAnswer {
  readonly status: number;
  readonly fields: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly whole: string;
}

const callTimeoutMs = 10_000;

/** Every door of one server, asked over sockets by programs that check nothing before they send. */
export function openDoors(context: Pick<TestContext, "after">, url: string, token: string) {
  const grpc = new Client(new URL(url).host, credentials.createInsecure());
  const earlier = legacyClient(url, "L2");
  context.after(() => {
    grpc.close();
    earlier.close();
  });
  const given: Fields = { authorization: `Bearer ${token}` };
  return {
    grpc: ({ method = CodeAgentService.method.generate, request = {}, bytes, path, headers }: RpcAsk) => {
      const body = bytes ?? toBinary(method.input, fromJson(method.input, request));
      assert.ok(typeof body !== "string", "a message of gRPC is bytes");
      return grpcCall(grpc, path ?? pathOf(method), body, { ...given, ...headers });
    },
    legacy: ({ rpc = "Generate", request = {}, bytes, path, headers }: LegacyAsk) =>
      grpcCall(grpc, path ?? `/a3s.code.agent.v1.CodeAgentService/${rpc}`, bytes ?? earlier.encode(rpc, request), {
        ...given,
        ...headers,
      }),
    connect: (ask: RpcAsk) => connectCall(url, { ...ask, headers: { ...given, ...ask.headers } }),
    /** @param path the door's own */
    rest: (path: string, ask: RestAsk) => {
      const type = { "content-type": "application/json" };
      const headers = { ...given, ...type, ...ask.headers };
      return httpCall(url + (ask.path ?? path), ask.httpMethod ?? "POST", headers, ask.body);
    },
  };
}

function pathOf(method: Method): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function sent(headers: Fields): [name: string, value: string][] {
  return Object.entries(headers).flatMap(([name, value]) => (value === null ? [] : [[name, value]]));
}

const unread = (bytes: Buffer): Buffer => bytes;

/** Every method is called as one that streams, which makes no difference on the wire. */
function grpcCall(client: Client, path: string, body: Uint8Array, headers: Fields): Promise<RpcAnswer> {
  const metadata = new Metadata();
  for (const [name, value] of sent(headers)) metadata.set(name, value);
  const options = { deadline: Date.now() + callTimeoutMs };
  const call = client.makeServerStreamRequest(path, unread, unread, Buffer.from(body), metadata, options);
  call.resume();
  call.on("error", () => undefined);
  return new Promise((resolve) => call.on("status", (told) => resolve(grpcAnswer(told))));
}

function grpcAnswer({ code, details, metadata }: StatusObject): RpcAnswer {
  const [bytes] = metadata.get("grpc-status-details-bin");
  const more = bytes instanceof Buffer ? fromBinary(StatusSchema, bytes).details : [];
  return {
    code: status[code],
    message: details,
    ...detailsFrom(more.map(({ typeUrl, value }) => [typeUrl.replace(/^.*\//, ""), value])),
    whole: [details, ...more.map(({ value }) => Buffer.from(value).toString("latin1")), headersText(metadata)].join(
      "\n",
    ),
  };
}

function headersText(metadata: Metadata): string {
  return Object.entries(metadata.getMap())
    .map(([name, value]) => `${name}: ${value.toString("latin1")}`)
    .join("\n");
}

function detailsFrom(details: readonly (readonly [type: string, value: Uint8Array])[]) {
  const values = (type: string) => details.flatMap(([name, value]) => (name === type ? [value] : []));
  const [info] = values(ErrorInfoSchema.typeName).map((value) => fromBinary(ErrorInfoSchema, value));
  const bad = values(BadRequestSchema.typeName).map((value) => fromBinary(BadRequestSchema, value));
  if (info !== undefined) assert.equal(info.domain, "codeagent");
  return {
    reason: info?.reason ?? "",
    fields: bad.flatMap(({ fieldViolations }) => fieldViolations.map(({ field }) => field)),
  };
}

async function connectCall(url: string, ask: RpcAsk): Promise<RpcAnswer> {
  const { method = CodeAgentService.method.generate, request = {}, bytes = JSON.stringify(request) } = ask;
  const streams = method.methodKind === "server_streaming";
  const type = { "content-type": streams ? "application/connect+json" : "application/json" };
  const body = streams && typeof bytes === "string" ? enveloped(bytes) : bytes;
  const headers = { ...type, ...ask.headers };
  const answer = await httpCall(url + (ask.path ?? pathOf(method)), ask.httpMethod ?? "POST", headers, body);
  const { whole } = answer;
  const failure = failureOf(answer, streams);
  if (failure === undefined) return { code: `HTTP ${answer.status}`, message: whole, reason: "", fields: [], whole };
  const { code, message, details } = failure;
  const texts = details.map(({ value }) => Buffer.from(value).toString("latin1"));
  return {
    ...{ code: status[code] ?? String(code), message },
    ...detailsFrom(details.map(({ type: name, value }) => [name, value])),
    whole: [whole, ...texts].join("\n"),
  };
}

/** Undefined for what is no error of Connect's. */
function failureOf({ status: httpStatus, fields, whole }: RestAnswer, streams: boolean): CallFailed | undefined {
  if (!/json/.test(String(fields["content-type"]))) return undefined;
  if (!streams || httpStatus !== 200) return httpStatus === 200 ? undefined : failureFromJson(parseJson(whole));
  try {
    messagesFrom(Buffer.from(whole, "latin1"));
    return undefined;
  } catch (error) {
    if (error instanceof CallFailed) return error;
    throw error;
  }
}

/** One request over HTTP/1.1. An answer that comes before the whole body is sent is an answer. */
function httpCall(url: string, method: string, headers: Fields, body: RestAsk["body"]): Promise<RestAnswer> {
  const bytes =
    body === undefined || typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
  const { promise, resolve, reject } = Promise.withResolvers<RestAnswer>();
  const signal = AbortSignal.timeout(callTimeoutMs);
  const call = httpRequest(url, { method, headers: Object.fromEntries(sent(headers)), signal }, (answer) => {
    const pieces: Buffer[] = [];
    answer.on("data", (piece: Buffer) => pieces.push(piece));
    answer.on("error", reject);
    answer.on("end", () => {
      const isText = /json|text/.test(answer.headers["content-type"] ?? "");
      const whole = Buffer.concat(pieces).toString(
        isText && !/connect/.test(answer.headers["content-type"] ?? "") ? "utf8" : "latin1",
      );
      resolve({ status: answer.statusCode ?? 0, fields: answer.headers, whole });
    });
  });
  call.on("error", reject);
  call.end(bytes);
  return promise;
}
