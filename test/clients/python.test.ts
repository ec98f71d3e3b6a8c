import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { DescMethod, JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { parseJson } from "./connect-json.ts";
import { run, skipWithout } from "./program.ts";
import {
  at,
  CallFailed,
  callFailure,
  startForVisitors,
  token,
  user,
  type Visitor,
  visit,
  wrongToken,
} from "./visit.ts";

const python = "/usr/bin/python3";
const script = fileURLToPath(new URL("python_client.py", import.meta.url));
const root = fileURLToPath(new URL("../..", import.meta.url));
const buf = join(root, "node_modules/.bin/buf");

interface PythonVisitor extends Visitor {
  ask(method: DescMethod, request: JsonObject, options?: JsonObject): Promise<readonly JsonValue[]>;
}

/** One Python process that makes the calls, for as long as the test goes. */
function pythonVisitor(context: TestContext, url: string, descriptors: string, word: string): PythonVisitor {
  const words = [script, new URL(url).host, descriptors, word];
  const child = spawn(python, words, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => undefined);
  context.after(() => child.kill("SIGKILL"));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const ask = async (method: DescMethod, request: JsonObject, options: JsonObject = {}) => {
    const stream = method.methodKind !== "unary";
    const call = { service: method.parent.typeName, method: method.name, stream, request, timeout: 15, ...options };
    child.stdin.write(`${JSON.stringify(call)}\n`);
    const line = await lines.next();
    assert.equal(line.done, false, "the Python client has ended");
    const answer = parseJson(String(line.value));
    const error = at(answer, "error");
    if (error !== undefined) throw failureOf(error);
    const messages = at(answer, "messages");
    assert.ok(Array.isArray(messages));
    return messages;
  };
  return {
    ask,
    unary: async (method, request) => (await ask(method, request))[0] ?? null,
    stream: ask,
  };
}

function failureOf(error: JsonValue): CallFailed {
  const details = at(error, "details");
  assert.ok(Array.isArray(details));
  return new CallFailed(
    Number(at(error, "code")),
    String(at(error, "message")),
    details.map((detail) => ({
      type: String(at(detail, "type")),
      value: Buffer.from(String(at(detail, "value")), "base64"),
    })),
  );
}

const skip =
  skipWithout(python, ["-c", "import grpc, google.protobuf"], "Python with grpcio and protobuf") ||
  skipWithout(buf, ["--version"], "buf");

describe("Python's grpcio", { skip }, () => {
  test("gRPC", async (context) => {
    const { app } = await startForVisitors(context);
    const descriptors = join(tmpdir(), `codeagent-descriptors-${process.pid}.binpb`);
    context.after(() => rm(descriptors, { force: true }));
    const built = await run(buf, ["build", root, "-o", descriptors]);
    assert.equal(built.status, 0, built.stderr);
    const visitor = pythonVisitor(context, app.url, descriptors, token);
    const stranger = pythonVisitor(context, app.url, descriptors, wrongToken);
    await visit(context, visitor, stranger, "of-python");

    const { createSession, streamGenerate, subscribeSession, generate } = CodeAgentService.method;
    await context.test("a deadline ends a call", async () => {
      const error = await callFailure(visitor.ask(generate, { messages: [user("slowly")] }, { timeout: 0.05 }));
      assert.equal(error.code, Code.DeadlineExceeded);
    });

    await context.test("who cancels a stream can come back to its turn", async () => {
      const sessionId = "cancelled";
      await visitor.unary(createSession, { sessionId });
      const request = { sessionId, messages: [user("slowly")] };
      const error = await callFailure(visitor.ask(streamGenerate, request, { cancel_after: 3 }));
      assert.equal(error.code, Code.Canceled);
      await visitor.unary(generate, { sessionId, messages: [user("hello")] });
      const log = await visitor.stream(subscribeSession, { sessionId });
      const reasons = log
        .map((event) => at(event, "turnFinished", "finishReason"))
        .filter((word) => word !== undefined);
      assert.deepEqual(reasons, ["stop", "stop"]);
    });
  });
});
