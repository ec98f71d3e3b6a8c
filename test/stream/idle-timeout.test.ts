import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { withIdleTimeout } from "../../src/stream/idle-timeout.ts";

const idleError = () => new Error("too quiet");

test("a source that speaks in time passes through, and is returned when its reader leaves", async () => {
  let returned = false;
  const source = (async function* () {
    try {
      for (let item = 1; ; item++) yield item;
    } finally {
      returned = true;
    }
  })();
  const items: number[] = [];
  for await (const item of withIdleTimeout(source, 1000, idleError)) {
    items.push(item);
    if (items.length === 3) break;
  }
  assert.deepEqual(items, [1, 2, 3]);
  assert.equal(returned, true);
});

test("a source that falls silent fails, after what it said", async () => {
  const items: number[] = [];
  const source = (async function* () {
    yield 1;
    await new Promise(() => undefined);
  })();
  await assert.rejects(async () => {
    for await (const item of withIdleTimeout(source, 20, idleError)) items.push(item);
  }, /too quiet/);
  assert.deepEqual(items, [1]);
});

test("a slow reader does not count as a silent source", async () => {
  const items: number[] = [];
  const source = (async function* () {
    yield 1;
    yield 2;
  })();
  for await (const item of withIdleTimeout(source, 20, idleError)) {
    items.push(item);
    await wait(60);
  }
  assert.deepEqual(items, [1, 2]);
});

test("what the source throws comes through", async () => {
  const source = (async function* () {
    yield 1;
    throw new Error("broken");
  })();
  await assert.rejects(async () => {
    for await (const _ of withIdleTimeout(source, 1000, idleError));
  }, /broken/);
});

test("each item begins the wait anew", async () => {
  let items = 0;
  const source = (async function* () {
    for (let item = 0; item < 12; item++) {
      await wait(15);
      yield item;
    }
  })();
  for await (const _ of withIdleTimeout(source, 120, idleError)) items++;
  assert.equal(items, 12);
});
