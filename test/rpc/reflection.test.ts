import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { file_google_rpc_status } from "../../gen/google/rpc/status_pb.ts";
import { file_grpc_health_v1_health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionV1alpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { reflectionRoutes } from "../../src/rpc/reflection.ts";

type Question =
  | { case: "listServices" | "fileByFilename" | "fileContainingSymbol" | "allExtensionNumbersOfType"; value: string }
  | { case: "fileContainingExtension"; value: { containingType: string; extensionNumber: number } };

const transport = createRouterTransport(reflectionRoutes([file_grpc_health_v1_health, file_google_rpc_status]));
const clients = {
  v1: createClient(ServerReflection, transport),
  v1alpha: createClient(ServerReflectionV1alpha, transport),
};

/** The answers in short: service names, file names, extension numbers, or the error's code. */
async function ask(client: (typeof clients)["v1" | "v1alpha"], questions: Question[]): Promise<unknown[]> {
  async function* requests() {
    for (const messageRequest of questions) yield { host: "here", messageRequest };
  }
  const answers: unknown[] = [];
  for await (const { messageResponse, originalRequest } of client.serverReflectionInfo(requests())) {
    assert.equal(originalRequest?.host, "here");
    switch (messageResponse.case) {
      case "listServicesResponse":
        answers.push(messageResponse.value.service.map(({ name }) => name));
        break;
      case "fileDescriptorResponse":
        answers.push(
          messageResponse.value.fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name),
        );
        break;
      case "allExtensionNumbersResponse":
        answers.push(messageResponse.value.extensionNumber);
        break;
      case "errorResponse":
        answers.push(messageResponse.value.errorCode);
        break;
      default:
        assert.fail("no answer");
    }
  }
  return answers;
}

const health = ["grpc/health/v1/health.proto"];
const notFound = 5;
const cases: [question: Question, answer: unknown][] = [
  [{ case: "listServices", value: "" }, ["grpc.health.v1.Health"]],
  [{ case: "fileByFilename", value: "grpc/health/v1/health.proto" }, health],
  [
    { case: "fileByFilename", value: "google/rpc/status.proto" },
    ["google/rpc/status.proto", "google/protobuf/any.proto"],
  ],
  [{ case: "fileByFilename", value: "google/protobuf/any.proto" }, ["google/protobuf/any.proto"]],
  [{ case: "fileByFilename", value: "../../etc/passwd" }, notFound],
  [{ case: "fileContainingSymbol", value: "grpc.health.v1.Health" }, health],
  [{ case: "fileContainingSymbol", value: "grpc.health.v1.Health.Watch" }, health],
  [{ case: "fileContainingSymbol", value: "grpc.health.v1.HealthCheckRequest.service" }, health],
  [{ case: "fileContainingSymbol", value: "grpc.health.v1.HealthCheckResponse.ServingStatus" }, health],
  [{ case: "fileContainingSymbol", value: "grpc.health.v1.Health.Nothing" }, notFound],
  [{ case: "fileContainingSymbol", value: "__proto__" }, notFound],
  [{ case: "fileContainingSymbol", value: "" }, notFound],
  [{ case: "allExtensionNumbersOfType", value: "grpc.health.v1.HealthCheckRequest" }, []],
  [{ case: "allExtensionNumbersOfType", value: "nothing" }, notFound],
  [
    { case: "fileContainingExtension", value: { containingType: "grpc.health.v1.Health", extensionNumber: 1 } },
    notFound,
  ],
];

for (const [version, client] of Object.entries(clients)) {
  describe(`reflection ${version}`, () => {
    for (const [question, expected] of cases) {
      test(`${question.case} ${JSON.stringify(question.value)}`, async () => {
        assert.deepEqual(await ask(client, [question]), [expected]);
      });
    }
    test("several questions on one stream are answered in order", async () => {
      const answers = await ask(
        client,
        cases.map(([question]) => question),
      );
      assert.deepEqual(
        answers,
        cases.map(([, answer]) => answer),
      );
    });
  });
}
