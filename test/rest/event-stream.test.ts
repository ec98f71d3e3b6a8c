import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { describe, test } from "node:test";
import type { LogEvent } from "../../src/chat/log-event.ts";
import { type RestResponse, writeEventStream } from "../../src/rest/event-stream.ts";
import type { RestAnswer } from "../../src/rest/rest-api.ts";

const stepStarted: LogEvent = { type: "step-started", step: 1, attempt: 1, model: "m", provider: "p" };
const blockStart: LogEvent = { type: "block-start", index: 0, blockType: "text" };
const finished: LogEvent = { type: "turn-finished", finishReason: "stop", steps: 1 };

class FakeResponse extends EventEmitter implements RestResponse {
  headersSent = false;
  destroyed = false;
  written: string[] = [];
  takes = true;
  writeHead(): void {
    this.headersSent = true;
    this.emit("head");
  }
  write(text: string): boolean {
    this.written.push(text);
    this.emit("written");
    return this.takes;
  }
  end(): void {}
  destroy(): void {
    this.destroyed = true;
    this.emit("close");
  }
}

const answer: RestAnswer = {
  push: ({ event }) => {
    if (event.type === "turn-finished" && event.error !== undefined) throw new Error("failed");
    return [{ data: event.type }];
  },
  body: () => ({}),
  failure: () => [],
};

function write(
  response: FakeResponse,
  events: AsyncIterable<LogEvent>,
  { silenceMs = 60_000, headAfterMs = 60_000, slowReaderMs = 0, signal = new AbortController().signal } = {},
) {
  const reading = {
    headSeq: 0,
    earliestSeq: 0,
    async *read() {
      let seq = 0;
      for await (const event of events) yield [{ seq: ++seq, turnId: "t", timeMs: 0, event }];
    },
    waitingBytes: async () => 0,
  };
  const limits = { silenceMs, slowReaderMs, slowReaderBytes: 1 };
  return writeEventStream({ response, reading, answer, signal, limits, headAfterMs, headers: {} });
}

async function* of(...events: LogEvent[]) {
  yield* events;
}

describe("a stream of events", { timeout: 5000 }, () => {
  test("its head waits for the first word, and what failed before is thrown without one", async () => {
    const response = new FakeResponse();
    const error = { kind: "rate_limited", reason: "R", message: "m", detail: {} } as const;
    await assert.rejects(write(response, of(stepStarted, { ...finished, error })), /failed/);
    assert.equal(response.headersSent, false);
    assert.equal(await write(response, of(stepStarted, blockStart, finished)), true);
    assert.deepEqual(response.written, ["data: step-started\n\n", "data: block-start\n\n", "data: turn-finished\n\n"]);
  });

  test("a model that thinks long has the head sent before it speaks", async () => {
    const response = new FakeResponse();
    async function* late() {
      yield stepStarted;
      await new Promise((resolve) => response.once("head", resolve));
      yield finished;
    }
    await write(response, late(), { headAfterMs: 5 });
    assert.deepEqual(response.written, [
      "data: step-started\n\n: waiting for the model\n\n",
      "data: turn-finished\n\n",
    ]);
  });

  test("silence is broken by a comment", async () => {
    const response = new FakeResponse();
    async function* silent() {
      yield blockStart;
      await new Promise((resolve) => {
        response.on("written", () => response.written.includes(": alive\n\n") && resolve(undefined));
      });
      yield finished;
    }
    await write(response, silent(), { silenceMs: 5 });
    assert.equal(response.written.at(-1), "data: turn-finished\n\n");
  });

  test("no more is read than the caller takes", async () => {
    const response = new FakeResponse();
    response.takes = false;
    let read = 0;
    async function* many() {
      for (; read < 100; read++) yield blockStart;
      yield finished;
    }
    const done = write(response, many());
    await new Promise((resolve) => response.once("written", resolve));
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(read < 5, `${read} were read`);
    response.takes = true;
    response.emit("drain");
    assert.equal(await done, true);
    assert.equal(read, 100);
  });

  test("a caller that takes nothing any more is cut off", async () => {
    const response = new FakeResponse();
    response.takes = false;
    const leaving = new AbortController();
    response.on("close", () => leaving.abort(new Error("gone")));
    let isClosed = false;
    async function* endless() {
      try {
        for (;;) yield blockStart;
      } finally {
        isClosed = true;
      }
    }
    await assert.rejects(write(response, endless(), { slowReaderMs: 5, signal: leaving.signal }), /gone/);
    assert.deepEqual([response.destroyed, isClosed, response.listenerCount("drain")], [true, true, 0]);
  });

  test("a turn whose log ends before it is not told as whole", async () => {
    assert.equal(await write(new FakeResponse(), of(blockStart)), false);
  });
});
