import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Answer, agentError, ask, hello, jsonAnswer, startUpstream, textOfEvents } from "./upstream.ts";

const limited = (headers = {}): Answer => jsonAnswer(429, { error: { message: "slow down" } }, headers);
const empty = jsonAnswer(429, { error: { message: "pay first", code: "insufficient_quota" } });
const refused = jsonAnswer(401, { error: { message: "no such key" } });

describe("several keys of a provider", () => {
  const cases: {
    name: string;
    answers: readonly Answer[];
    keysAsked: readonly string[];
    waits?: readonly number[];
    error?: { kind: string; retryAfterMs?: number };
  }[] = [
    { name: "the first works", answers: [hello], keysAsked: ["key-1111"] },
    { name: "the next is asked at once", answers: [limited(), hello], keysAsked: ["key-1111", "key-2222"] },
    {
      name: "an account with nothing left makes way too",
      answers: [empty, hello],
      keysAsked: ["key-1111", "key-2222"],
    },
    { name: "so does a refused key", answers: [refused, hello], keysAsked: ["key-1111", "key-2222"] },
    {
      name: "when all are limited, the one that is free first is waited for",
      answers: [
        limited({ "retry-after": "9" }),
        limited({ "retry-after": "2" }),
        limited({ "retry-after": "4" }),
        hello,
      ],
      keysAsked: ["key-1111", "key-2222", "key-3333", "key-2222"],
      waits: [2000],
    },
    {
      name: "the one that is limited for long does not decide",
      answers: [limited({ "retry-after": "2" }), limited({ "retry-after": "3600" }), limited(), hello],
      keysAsked: ["key-1111", "key-2222", "key-3333", "key-1111"],
      waits: [2000],
    },
    {
      name: "nor does the one whose account has nothing left, or that is refused",
      answers: [limited({ "retry-after": "2" }), empty, refused, hello],
      keysAsked: ["key-1111", "key-2222", "key-3333", "key-1111"],
      waits: [2000],
    },
    {
      name: "when none is free for long, it is said how long the shortest time is",
      answers: [
        limited({ "retry-after": "90" }),
        limited({ "retry-after": "3600" }),
        limited({ "retry-after": "7200" }),
      ],
      keysAsked: ["key-1111", "key-2222", "key-3333"],
      error: { kind: "rate_limited", retryAfterMs: 90_000 },
    },
    {
      name: "when all are refused, it is said",
      answers: [refused, refused, refused],
      keysAsked: ["key-1111", "key-2222", "key-3333"],
      error: { kind: "provider_auth" },
    },
  ];
  for (const { name, answers, keysAsked, waits = [], error } of cases) {
    test(name, async (context) => {
      const upstream = await startUpstream(context, answers);
      const asked = await ask(upstream.url, {
        env: { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: "key-1111, key-2222,key-3333" },
      });
      assert.deepEqual(
        upstream.requests.map(({ headers }) => headers.authorization),
        keysAsked.map((key) => `Bearer ${key}`),
      );
      assert.deepEqual(asked.waits, waits);
      if (error === undefined) {
        assert.equal(asked.error, undefined);
        assert.equal(textOfEvents(asked.events), "Hello");
        return;
      }
      assert.equal(agentError(asked.error).kind, error.kind);
      assert.equal(agentError(asked.error).retryAfterMs, error.retryAfterMs);
    });
  }

  test("no message holds any of them", async (context) => {
    const upstream = await startUpstream(context, [
      jsonAnswer(429, { error: { message: "key-1111 is limited" } }),
      jsonAnswer(400, { error: { message: "key-2222 or key-1111?" } }),
    ]);
    const { error } = await ask(upstream.url, {
      env: { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: "key-1111,key-2222" },
    });
    assert.match(agentError(error).message, /\*\*\* or \*\*\*\?/);
  });
});
