import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { type DescMethod, fromBinary, type JsonObject, toJson } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { Client, credentials, Metadata, type MethodDefinition, type ServiceError } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import { chunk, eventStream, startUpstream } from "../provider/upstream.ts";
import { startTestApp } from "../support/test-app.ts";
import { CallFailed, callFailure, startForVisitors, token, user, type Visitor, visit, wrongToken } from "./visit.ts";

// Loaded from our own files, as somebody would who never heard of the libraries we use.
const definitions = loadSync(
  ["codeagent/v1/code_agent.proto", "codeagent/v1/tool_service.proto", "grpc/health/v1/health.proto"],
  { includeDirs: [fileURLToPath(new URL("../../proto", import.meta.url))], longs: String, enums: String, oneofs: true },
);

type AnyMethod = MethodDefinition<object, object>;

function methodOf(method: DescMethod): AnyMethod {
  const service = definitions[method.parent.typeName];
  const found = service === undefined || "format" in service ? undefined : Object.entries(service);
  const [, definition] = found?.find(([name]) => name === method.name) ?? [];
  return definition ?? assert.fail(`${method.parent.typeName} has no ${method.name}`);
}

interface GrpcVisitor extends Visitor {
  readonly client: Client;
  readonly metadata: Metadata;
}

function grpcVisitor(url: string, word: string): GrpcVisitor {
  const client = new Client(new URL(url).host, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${word}`);
  // The answer goes through the client's own reading; writing it again gives bytes we can show as JSON.
  const shown = (method: DescMethod, definition: AnyMethod, answer: object) =>
    toJson(method.output, fromBinary(method.output, definition.responseSerialize(answer)));
  const options = () => ({ deadline: Date.now() + 15_000 });
  return {
    client,
    metadata,
    unary(method, request) {
      const definition = methodOf(method);
      const { path, requestSerialize, responseDeserialize } = definition;
      const { promise, resolve, reject } = Promise.withResolvers<object>();
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        metadata,
        options(),
        (error, answer) => (answer === undefined ? reject(error) : resolve(answer)),
      );
      return promise.then((answer) => shown(method, definition, answer)).catch(rethrowFailure);
    },
    async stream(method, request) {
      const definition = methodOf(method);
      const { path, requestSerialize, responseDeserialize } = definition;
      const call = client.makeServerStreamRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        metadata,
        options(),
      );
      const messages = [];
      try {
        for await (const answer of call) messages.push(shown(method, definition, answer));
      } catch (error) {
        return rethrowFailure(error);
      }
      return messages;
    },
  };
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error && "metadata" in error;
}

function rethrowFailure(error: unknown): never {
  if (!isServiceError(error)) throw error;
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  const status = Buffer.isBuffer(bytes) ? fromBinary(StatusSchema, bytes) : undefined;
  if (status !== undefined) {
    assert.equal(status.code, error.code);
    assert.equal(status.message, error.details);
  }
  const details = status?.details.map(({ typeUrl, value }) => ({ type: typeUrl, value })) ?? [];
  throw new CallFailed(error.code, error.details, details);
}

const { createSession, getSession, generate, streamGenerate, subscribeSession } = CodeAgentService.method;

test("@grpc/grpc-js", async (context) => {
  const { app } = await startForVisitors(context);
  const visitor = grpcVisitor(app.url, token);
  const stranger = grpcVisitor(app.url, wrongToken);
  context.after(() => {
    visitor.client.close();
    stranger.client.close();
  });
  await visit(context, visitor, stranger, "of-grpc-js");

  await context.test("a deadline ends a call, and a session's turn goes on", async () => {
    await visitor.unary(createSession, { sessionId: "deadline" });
    const { path, requestSerialize, responseDeserialize } = methodOf(generate);
    const request: JsonObject = { sessionId: "deadline", messages: [user("slowly")] };
    const late = Promise.withResolvers<number>();
    const options = { deadline: Date.now() + 50 };
    visitor.client.makeUnaryRequest(
      path,
      requestSerialize,
      responseDeserialize,
      request,
      visitor.metadata,
      options,
      (error) => late.resolve(error?.code ?? 0),
    );
    assert.equal(await late.promise, Code.DeadlineExceeded);
    const answer = await visitor.unary(generate, { sessionId: "deadline", messages: [user("hello")] });
    assert.equal(JSON.stringify(answer).includes('"stop"'), true);
    assert.match(JSON.stringify(await visitor.unary(getSession, { sessionId: "deadline" })), /"messageCount":4/);
  });

  await context.test("who cancels a stream can come back to its turn", async () => {
    await visitor.unary(createSession, { sessionId: "cancelled" });
    const { path, requestSerialize, responseDeserialize } = methodOf(streamGenerate);
    const request: JsonObject = { sessionId: "cancelled", messages: [user("slowly")] };
    const call = visitor.client.makeServerStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      request,
      visitor.metadata,
    );
    const ended = Promise.withResolvers<number>();
    call.on("error", (error) => ended.resolve(isServiceError(error) ? error.code : -1));
    call.on("data", () => call.cancel());
    assert.equal(await ended.promise, Code.Canceled);
    // The next turn waits for the cancelled reader's, which runs to its end.
    await visitor.unary(generate, { sessionId: "cancelled", messages: [user("hello")] });
    const log = JSON.stringify(await visitor.stream(subscribeSession, { sessionId: "cancelled" }));
    assert.equal(log.match(/"turnFinished":\{"finishReason":"stop"/g)?.length, 2);
  });

  await context.test("a cursor beyond the head is refused before anything is sent", async () => {
    const error = await callFailure(visitor.stream(subscribeSession, { sessionId: "cancelled", afterSeq: "999999" }));
    assert.equal(error.code, Code.InvalidArgument);
  });
});

test("cancelling a one-off stream hangs up on the provider", async (context) => {
  const closed = Promise.withResolvers<void>();
  const upstream = await startUpstream(context, [
    (_request, response) => {
      response.on("close", closed.resolve);
      response.writeHead(200, eventStream).write(chunk({ content: "Hel" }));
    },
  ]);
  const { app } = await startTestApp(context, { env: { FORWARD_BASE_URL: upstream.url } });
  const { client, metadata } = grpcVisitor(app.url, "");
  context.after(() => client.close());
  const { path, requestSerialize, responseDeserialize } = methodOf(streamGenerate);
  const request: JsonObject = { messages: [user("go")], model: "forward/m" };
  const call = client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, request, metadata);
  call.on("error", () => undefined);
  call.on("data", () => call.cancel());
  await closed.promise;
});
