import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { DescMethod } from "@bufbuild/protobuf";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { enveloped, failureFromJson, messagesFrom, parseJson } from "./connect-json.ts";
import { run, skipWithout } from "./program.ts";
import { at, startForVisitors, token, user, type Visitor, visit, wrongToken } from "./visit.ts";

const versions = [
  ["--http1.1", "1.1"],
  ["--http2-prior-knowledge", "2"],
] as const;

interface Answer {
  readonly status: number;
  readonly httpVersion: string;
  readonly contentType: string;
  readonly body: Buffer;
}

function curl(url: string, word: string, option: string) {
  return async (method: DescMethod, contentType: string, body: string | Uint8Array): Promise<Answer> => {
    const path = `${url}/${method.parent.typeName}/${method.name}`;
    const fields = [`Content-Type: ${contentType}`, `Authorization: Bearer ${word}`, "Connect-Protocol-Version: 1"];
    const headers = fields.flatMap((field) => ["-H", field]);
    const told = "%{stderr}%{http_code} %{http_version} %{content_type}";
    const words = ["-sS", option, "--max-time", "10", ...headers, "--data-binary", "@-", "-w", told, path];
    const { status, stdout, stderr } = await run("curl", words, body);
    assert.equal(status, 0, stderr);
    const [httpStatus, httpVersion = "", type = ""] = stderr.split(" ");
    return { status: Number(httpStatus), httpVersion, contentType: type, body: stdout };
  };
}

function curlVisitor(ask: ReturnType<typeof curl>): Visitor {
  return {
    async unary(method, request) {
      const { status, contentType, body } = await ask(method, "application/json", JSON.stringify(request));
      assert.equal(contentType, "application/json");
      const answer = parseJson(body.toString());
      if (status !== 200) throw failureFromJson(answer);
      return answer;
    },
    async stream(method, request) {
      const { status, contentType, body } = await ask(method, "application/connect+json", enveloped(request));
      assert.equal(status, 200);
      assert.equal(contentType, "application/connect+json");
      return messagesFrom(body);
    },
  };
}

describe("curl", { skip: skipWithout("curl", ["--version"]) }, () => {
  for (const [option, version] of versions)
    test(`over HTTP/${version}`, async (context) => {
      const { app } = await startForVisitors(context);
      const ask = curl(app.url, token, option);
      await visit(context, curlVisitor(ask), curlVisitor(curl(app.url, wrongToken, option)), "of-curl");

      await context.test("the version asked for is the one spoken", async () => {
        const { httpVersion } = await ask(CodeAgentService.method.getCapabilities, "application/json", "{}");
        assert.equal(httpVersion, version);
      });

      await context.test("an error can be read without any library", async () => {
        const request = JSON.stringify({ messages: [{ ...user("x"), role: "robot" }] });
        const { status, body } = await ask(CodeAgentService.method.generate, "application/json", request);
        assert.equal(status, 400);
        const error = parseJson(body.toString());
        assert.equal(at(error, "code"), "invalid_argument");
        assert.match(String(at(error, "message")), /^messages\[0\]\.role: /);
        assert.equal(at(error, "details", 0, "type"), "google.rpc.ErrorInfo");
        assert.equal(at(error, "details", 0, "debug", "reason"), "INVALID_REQUEST");
        assert.equal(at(error, "details", 1, "debug", "fieldViolations", 0, "field"), "messages[0].role");
      });

      await context.test("both spellings of a field are read, and fields nobody knows are passed over", async () => {
        const { createSession } = CodeAgentService.method;
        const request = { session_id: "snake-case", systemPrompt: "short", from_the_future: { a: [1] } };
        const { status, body } = await ask(createSession, "application/json", JSON.stringify(request));
        assert.equal(status, 200);
        assert.equal(at(parseJson(body.toString()), "sessionId"), "snake-case");
      });
    });
});
