import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { AgentError } from "../../src/chat/error.ts";
import { errorForClient } from "../../src/rpc/error-interceptor.ts";

const withCode = (code: string) => Object.assign(new Error("at /srv/secret.ts"), { code });

describe("what clients and operators hear of what a handler threw", () => {
  const cases = [
    {
      name: "an error of ours",
      error: new AgentError("not_found", "there is no x"),
      code: Code.NotFound,
      reported: false,
    },
    {
      name: "one of the protocol",
      error: new ConnectError("bad frame", Code.DataLoss),
      code: Code.DataLoss,
      reported: false,
    },
    {
      name: "a caller that hung up",
      error: withCode("ERR_STREAM_PREMATURE_CLOSE"),
      code: Code.Canceled,
      reported: false,
    },
    {
      name: "a stream that is gone",
      error: withCode("ERR_HTTP2_INVALID_STREAM"),
      code: Code.Canceled,
      reported: false,
    },
    { name: "a connection that broke", error: withCode("ECONNRESET"), code: Code.Canceled, reported: false },
    { name: "another error with a code", error: withCode("ENOENT"), code: Code.Internal, reported: true },
    { name: "anything else", error: new TypeError("at /srv/secret.ts"), code: Code.Internal, reported: true },
  ];
  for (const { name, error, code, reported } of cases) {
    test(name, () => {
      const reports: unknown[] = [];
      const seen = errorForClient(error, "a method", (...report) => reports.push(report));
      assert.equal(Code[seen.code], Code[code]);
      assert.equal(reports.length > 0, reported);
      assert.ok(!seen.rawMessage.includes("/srv"), "nothing of the server's inside reaches a client");
    });
  }

  for (const [name, isOwn, code] of [
    ["the signal of a caller that hung up", true, Code.Canceled],
    ["the signal of something else", false, Code.Internal],
  ] as const) {
    test(name, () => {
      const reports: unknown[] = [];
      const hungUp = AbortSignal.abort();
      const { reason } = isOwn ? hungUp : AbortSignal.abort();
      const seen = errorForClient(reason, "a method", (...report) => reports.push(report), hungUp);
      assert.equal(Code[seen.code], Code[code]);
      assert.equal(reports.length, isOwn ? 0 : 1);
    });
  }
});
