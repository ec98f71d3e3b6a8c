import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { DescMethod, JsonObject, JsonValue } from "@bufbuild/protobuf";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { failureFromJson, parseJson } from "./connect-json.ts";
import { run, skipWithout } from "./program.ts";
import { startForVisitors, token, type Visitor, visit, wrongToken } from "./visit.ts";

const buf = fileURLToPath(new URL("../../node_modules/.bin/buf", import.meta.url));
const protocols = [
  ["gRPC", ["--protocol", "grpc", "--http2-prior-knowledge"]],
  ["gRPC-Web", ["--protocol", "grpcweb", "--http2-prior-knowledge"]],
  ["Connect", ["--protocol", "connect", "--http2-prior-knowledge"]],
] as const;

/** Knows the methods by reflection alone, for which it always shows the good token. */
function bufVisitor(url: string, word: string, protocol: readonly string[]): Visitor {
  const call = async (method: DescMethod, request: JsonObject): Promise<JsonValue[]> => {
    const words = ["curl", ...protocol, "-H", `Authorization: Bearer ${word}`, "--emit-defaults"];
    words.push("--reflect-header", `Authorization: Bearer ${token}`, "-d", "@-");
    const { status, stdout, stderr } = await run(
      buf,
      [...words, `${url}/${method.parent.typeName}/${method.name}`],
      JSON.stringify(request),
    );
    if (status !== 0) {
      const error = stderr.slice(stderr.indexOf("{"));
      assert.match(error, /^\{/, `buf says ${stderr}`);
      const failure = failureFromJson(parseJson(error));
      assert.equal(status, failure.code << 3, "buf tells the code by its exit too");
      throw failure;
    }
    return stdout
      .toString()
      .split(/^(?=\{)/m)
      .filter((text) => text.trim() !== "")
      .map(parseJson);
  };
  return {
    async unary(method, request) {
      const messages = await call(method, request);
      assert.equal(messages.length, 1);
      return messages[0] ?? null;
    },
    stream: call,
  };
}

describe("buf curl", { skip: skipWithout(buf, ["--version"], "buf") }, () => {
  for (const [name, protocol] of protocols)
    test(name, async (context) => {
      const { app } = await startForVisitors(context);
      const visitor = bufVisitor(app.url, token, protocol);
      await visit(context, visitor, bufVisitor(app.url, wrongToken, protocol), "of-buf");
    });

  test("lists services and methods by reflection", async (context) => {
    const { app } = await startForVisitors(context);
    const words = ["curl", "--http2-prior-knowledge", "--reflect-header", `Authorization: Bearer ${token}`];
    const services = await run(buf, [...words, "--list-services", app.url]);
    assert.equal(services.status, 0, services.stderr);
    const names = services.stdout.toString().trim().split("\n");
    for (const wanted of ["codeagent.v1.CodeAgentService", "codeagent.v1.ToolService", "grpc.health.v1.Health"])
      assert.ok(names.includes(wanted), `${wanted} is among ${names.join(", ")}`);
    const methods = await run(buf, [...words, "--list-methods", app.url]);
    assert.equal(methods.status, 0, methods.stderr);
    const listed = methods.stdout.toString().trim().split("\n");
    for (const { name } of CodeAgentService.methods)
      assert.ok(listed.includes(`codeagent.v1.CodeAgentService/${name}`), `${name} is listed`);
  });
});
