import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkPath, http2Request, startTestServer } from "./start-test-server.ts";

const token = "a-token-of-enough-length";

describe("a refusal over HTTP/2 is read, however long the body", { timeout: 20_000 }, () => {
  for (const [contentType, status] of [
    ["application/json", 401],
    ["application/grpc", 200],
  ] as const)
    for (const bytes of [0, 5, 60_000, 3_000_000])
      test(`${bytes} bytes of ${contentType}`, async () => {
        await using server = await startTestServer({ token });
        const headers = { ":path": checkPath, "content-type": contentType };
        const answers = await Promise.all(
          Array.from({ length: 10 }, () => http2Request(server.url, headers, Buffer.alloc(bytes))),
        );
        for (const answer of answers) {
          assert.equal(answer.headers[":status"], status);
          if (contentType === "application/grpc") assert.equal(answer.headers["grpc-status"], "16");
          else assert.match(answer.body.toString(), /^\{"code":"unauthenticated".*\}$/);
        }
        assert.deepEqual(server.handled, []);
      });
});
