import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, type DescMethod, type DescMethodServerStreaming, type DescMethodUnary } from "@bufbuild/protobuf";
import { Code, ConnectError, createContextValues, createRouterTransport, type Transport } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { methodToCome, planExecutionsToCome } from "../../src/rpc/not-yet.ts";

const isUnary = (method: DescMethod): method is DescMethodUnary => method.methodKind === "unary";
const isServerStreaming = (method: DescMethod): method is DescMethodServerStreaming =>
  method.methodKind === "server_streaming";

/** Calls a method with an empty request and reads its answer to the end. */
async function call(transport: Transport, method: DescMethod): Promise<void> {
  const timeoutMs = 5_000;
  const values = createContextValues();
  if (isUnary(method)) {
    await transport.unary(method, undefined, timeoutMs, undefined, {}, values);
  } else if (isServerStreaming(method)) {
    const requests = (async function* () {
      yield create(method.input);
    })();
    const answer = await transport.stream(method, undefined, timeoutMs, undefined, requests, values);
    for await (const _ of answer.message) assert.fail(`${method.name} streamed a message`);
  } else {
    assert.fail(`${method.name} streams its requests, which browsers cannot`);
  }
}

/** Fails unless the call was refused with one sentence that names the method. */
async function assertRefused(transport: Transport, method: DescMethod): Promise<void> {
  const name = `${method.parent.typeName}.${method.name}`;
  await assert.rejects(call(transport, method), (error) => {
    assert.ok(error instanceof ConnectError);
    assert.equal(error.code, Code.Unimplemented);
    const [, meanwhile] = error.rawMessage.split(
      `${name} is not available in this version of the server; until it is: `,
    );
    assert.match(meanwhile ?? "", /^\w.{20,}[^.]\.$/);
    const [info] = error.findDetails(ErrorInfoSchema);
    assert.deepEqual(
      { reason: info?.reason, domain: info?.domain, metadata: info?.metadata },
      { reason: "UNIMPLEMENTED", domain: "codeagent", metadata: { method: name } },
    );
    return true;
  });
}

describe("a method that is still to come says so, and what to do instead", () => {
  const transport = createRouterTransport((router) => void router.service(PlanService, planExecutionsToCome));
  for (const method of PlanService.methods) {
    if (!(method.localName in planExecutionsToCome)) continue;
    test(`${method.parent.typeName}.${method.name}`, () => assertRefused(transport, method));
  }
});

test("a single method to come leaves the others of its service working", async () => {
  const { listTools, watchTools } = ToolService.method;
  const transport = createRouterTransport((router) => {
    router.service(ToolService, {
      listTools: () => ({ generation: 7n }),
      watchTools: methodToCome(watchTools, "call ToolService.ListTools again from time to time"),
    });
  });
  await assertRefused(transport, watchTools);
  await call(transport, listTools);
});
