import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogRecord } from "../../src/chat/log-event.ts";
import { LiveTails } from "../../src/session/live-tails.ts";

function record(seq: number): LogRecord {
  return { seq, turnId: "", timeMs: seq, event: { type: "notice", level: "info", code: "X", message: "x" } };
}

test("who listens hears of what is new in every log, written here or elsewhere, and of nothing that was there", () => {
  const tails = new LiveTails();
  const heard: unknown[][] = [];
  const stop = tails.listen((sessionId, afterSeq, records) =>
    heard.push([sessionId, afterSeq, records?.map(({ seq }) => seq)]),
  );
  const { tail, release } = tails.hold("a");
  tails.advance("a", 3); // what was there when it was begun to be read
  tail.publish([record(4)]);
  tail.publish([record(4), record(5)]); // told again, in part
  tails.advance("a", 7);
  tails.advance("a", 7);
  tails.advance("b", 9); // nobody reads it here
  const other = tails.hold("b");
  other.tail.advanceTo(9);
  tails.advance("b", 10);
  assert.deepEqual(heard, [
    ["a", 3, [4]],
    ["a", 4, [5]],
    ["a", 5, undefined],
    ["b", 9, undefined],
  ]);
  stop();
  tail.publish([record(8)]);
  assert.equal(heard.length, 4);
  release();
  other.release();
});
