import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  Code,
  type CodeAgentClient,
  chatCompletion,
  createCodeAgentClient,
  followSession,
  streamChatCompletion,
  streamTurn,
} from "../../sdk/index.ts";
import type { GenerateChunk } from "../../sdk/proto.ts";
import { startTestServer } from "./start-app.ts";

// Long enough that a turn never ends by itself before the test has looked, short enough that one that goes on does end.
const script = `
- when: { text: { contains: wait } }
  first_delay_ms: 60000
  text: late
- text: "word "
  repeat: 60
  chunk: 5
  delay_ms: 10
`;
const wholeText = "word ".repeat(60);
const prompt = [{ role: "user", content: "hello" } as const];
const messages = [{ role: "user", contentType: { case: "content" as const, value: "hello" } }];

type Stream = ReturnType<typeof streamTurn>;

class Thrown extends Error {}

/** Ways out of a loop, after the first delta was seen. `end` is how a turn of a session ends then. */
const ways: readonly {
  name: string;
  end: "stop" | "cancelled";
  leave: (stream: Stream, abort: AbortController) => Promise<void>;
  throws?: object;
}[] = [
  {
    name: "break",
    end: "stop",
    async leave(stream) {
      for await (const chunk of stream) if (chunk.event.case === "blockDelta") break;
    },
  },
  {
    name: "return",
    end: "stop",
    async leave(stream) {
      for await (const chunk of stream) if (chunk.event.case === "blockDelta") return;
    },
  },
  {
    name: "throw",
    end: "stop",
    throws: Thrown,
    async leave(stream) {
      for await (const chunk of stream) if (chunk.event.case === "blockDelta") throw new Thrown();
    },
  },
  {
    name: "return() while a read waits",
    end: "stop",
    async leave(stream) {
      while ((await stream.next()).value?.event.case !== "blockDelta");
      const reads = [stream.next(), stream.next(), stream.next()];
      await stream.return();
      await Promise.all(reads);
      assert.deepEqual(await stream.next(), { done: true, value: undefined });
    },
  },
  {
    name: "abort()",
    end: "cancelled",
    async leave(stream) {
      let after = 0;
      let aborted: Promise<void> | undefined;
      for await (const chunk of stream) {
        if (aborted !== undefined) after += 1;
        if (chunk.event.case === "blockDelta") aborted ??= stream.abort();
      }
      await aborted;
      assert.equal(after, 0, "nothing is read after the abort");
    },
  },
  {
    name: "a signal",
    end: "cancelled",
    throws: { name: "AbortError" },
    async leave(stream, abort) {
      for await (const chunk of stream) if (chunk.event.case === "blockDelta") abort.abort();
    },
  },
  {
    name: "a signal with a reason",
    end: "cancelled",
    throws: Thrown,
    async leave(stream, abort) {
      for await (const chunk of stream) if (chunk.event.case === "blockDelta") abort.abort(new Thrown());
    },
  },
];

/** Reads a log until the turn in it has ended. */
async function lastOf(client: CodeAgentClient, sessionId: string): Promise<GenerateChunk | undefined> {
  for await (const chunk of followSession(client, { sessionId })) if (chunk.event.case === "turnFinished") return chunk;
  return undefined;
}

function finishReasonOf(chunk: GenerateChunk | undefined): string {
  return chunk?.event.case === "turnFinished" ? chunk.event.value.finishReason : "none";
}

describe("leaving the loop", { timeout: 60_000 }, () => {
  for (const transport of ["grpc", "connect", "grpc-web"] as const) {
    for (const way of ways) {
      for (const kind of ["session", "one-off"] as const) {
        const end = kind === "one-off" ? "cancelled" : way.end;
        test(`${transport}: by ${way.name}, a ${kind} turn ends ${end}`, async () => {
          await using server = await startTestServer(script);
          using client = createCodeAgentClient({ baseUrl: server.url, transport });
          using watcher = createCodeAgentClient({ baseUrl: server.url });
          const sessionId = kind === "session" ? (await client.createSession({})).sessionId : "";
          const abort = new AbortController();
          let known = "";
          const source = streamTurn(client, { sessionId, messages }, { signal: abort.signal });
          const stream: Stream = {
            ...source,
            async next() {
              const result = await source.next();
              known = result.value?.sessionId ?? known;
              return result;
            },
            [Symbol.asyncIterator]() {
              return this;
            },
          };
          const begun = performance.now();
          const left = way.leave(stream, abort);
          await (way.throws === undefined ? left : assert.rejects(left, way.throws));
          assert.equal(finishReasonOf(await lastOf(watcher, known)), end);
          if (end === "cancelled")
            assert.ok(performance.now() - begun < 1500, "it ends at once, not after a grace time");
          if (kind === "session" && end === "stop") {
            const { messages: history } = await watcher.listMessages({ sessionId });
            assert.equal(history.at(-1)?.contentType.value, wholeText);
          }
          if (kind === "session") assert.equal((await watcher.getSession({ sessionId })).state, "idle");
        });
      }
    }
  }

  test("completions too: break leaves a session's turn alone, abort() cancels it", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    for (const [leave, end] of [
      ["break", "stop"],
      ["abort", "cancelled"],
    ]) {
      const { sessionId } = await client.createSession({});
      const stream = streamChatCompletion(client, { messages: prompt, session_id: sessionId });
      for await (const chunk of stream) {
        if (!chunk.choices[0]?.delta.content) continue;
        if (leave === "break") break;
        await stream.abort();
      }
      assert.equal(finishReasonOf(await lastOf(client, sessionId)), end);
    }
  });

  test("a signal ends a completion that is waited for, and its turn", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const abort = new AbortController();
    const reason = new Thrown();
    const completion = chatCompletion(client, {
      messages: [{ role: "user", content: "wait" }],
      session_id: sessionId,
      signal: abort.signal,
    });
    for await (const chunk of followSession(client, { sessionId })) if (chunk.event.case === "stepStarted") break;
    abort.abort(reason);
    await assert.rejects(completion, reason);
    assert.equal(finishReasonOf(await lastOf(client, sessionId)), "cancelled");
  });

  test("an abort before the server has said anything still cancels the turn", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const stream = streamTurn(client, { sessionId, messages });
    const read = stream.next();
    await stream.abort();
    assert.deepEqual(await read, { done: true, value: undefined });
    assert.equal(finishReasonOf(await lastOf(client, sessionId)), "cancelled");
  });

  test("an answer that somebody else cancels is an error, not a whole answer", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const params = { messages: prompt, session_id: sessionId, request_id: "r1" };
    const expected = { name: "CodeAgentError", code: Code.Canceled, reason: "TURN_CANCELLED" };
    const completion = assert.rejects(chatCompletion(client, params), expected);
    let text = "";
    const read = async () => {
      for await (const chunk of streamChatCompletion(client, params)) {
        text += chunk.choices[0]?.delta.content ?? "";
        if (text.length === 5) await client.cancelTurn({ sessionId });
      }
    };
    await assert.rejects(read, expected);
    await completion;
    assert.ok(wholeText.startsWith(text) && text.length >= 5);
  });

  test("a signal that was aborted before asks for nothing", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const signal = AbortSignal.abort(new Thrown());
    await assert.rejects(chatCompletion(client, { messages: prompt, session_id: sessionId, signal }), Thrown);
    assert.equal((await client.getSession({ sessionId })).headSeq, 0n);
  });

  test("leaving after the end cancels nothing", async () => {
    await using server = await startTestServer("- text: done\n");
    using client = createCodeAgentClient({ baseUrl: server.url });
    let cancelled = 0;
    const counting: CodeAgentClient = {
      ...client,
      cancelTurn(request, options) {
        cancelled += 1;
        return client.cancelTurn(request, options);
      },
    };
    for await (const chunk of streamTurn(counting, { messages })) if (chunk.event.case === "turnFinished") break;
    const stream = streamTurn(counting, { messages });
    for await (const _ of stream);
    await stream.abort();
    assert.equal(cancelled, 0);
  });
});

describe("slow readers", { timeout: 60_000 }, () => {
  for (const transport of ["grpc", "connect", "grpc-web"] as const) {
    test(`${transport}: who takes 50 ms for each chunk loses none`, async (t) => {
      await using server = await startTestServer(`- { text: "0123456789", repeat: 30, chunk: 10, delay_ms: 1 }\n`);
      using client = createCodeAgentClient({ baseUrl: server.url, transport });
      let text = "";
      let count = 0;
      for await (const chunk of streamChatCompletion(client, { messages: prompt })) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        text += chunk.choices[0]?.delta.content ?? "";
        count += 1;
      }
      assert.equal(text, "0123456789".repeat(30));
      t.diagnostic(`${count} chunks`);
    });
  }
});
