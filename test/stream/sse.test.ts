import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { readSse, type SseLimits, type SseMessage, TooLongError } from "../../src/stream/sse.ts";

async function read(pieces: Iterable<Uint8Array>, limits?: SseLimits): Promise<SseMessage[]> {
  const messages: SseMessage[] = [];
  const body = (async function* () {
    yield* pieces;
  })();
  for await (const some of readSse(body, limits)) messages.push(...some);
  return messages;
}

const cases: readonly { name: string; text: string; messages: SseMessage[] }[] = [
  { name: "events with line feeds", text: "data: a\n\ndata: b\n\n", messages: [{ data: "a" }, { data: "b" }] },
  { name: "carriage returns", text: "data: a\r\rdata: b\r\r", messages: [{ data: "a" }, { data: "b" }] },
  { name: "both line ends", text: "data: a\r\n\r\ndata: b\r\n\r\n", messages: [{ data: "a" }, { data: "b" }] },
  { name: "a byte order mark", text: "\ufeffdata: a\n\n", messages: [{ data: "a" }] },
  { name: "comments and blank lines", text: "\n\n: wait\n\n:\ndata: a\n\n", messages: [{ data: "a" }] },
  { name: "event before data", text: "event: x\ndata: a\n\n", messages: [{ event: "x", data: "a" }] },
  { name: "data before event", text: "data: a\nevent: x\n\n", messages: [{ event: "x", data: "a" }] },
  { name: "several data lines", text: "data: a\ndata:b\n\n", messages: [{ data: "a\nb" }] },
  { name: "fields nobody reads", text: "id: 1\nretry: 5\nfoo: x\nbar\ndata: a\n\n", messages: [{ data: "a" }] },
  { name: "characters of several bytes", text: "data: ü€😀\n\n", messages: [{ data: "ü€😀" }] },
  { name: "no blank line at the end", text: "data: a\n", messages: [{ data: "a", unterminated: true }] },
  {
    name: "no line end at the end",
    text: "event: x\ndata: a",
    messages: [{ event: "x", data: "a", unterminated: true }],
  },
  { name: "a carriage return at the end", text: "data: a\r", messages: [{ data: "a", unterminated: true }] },
  { name: "a field cut at the end", text: "data: a\n\ndat", messages: [{ data: "a" }] },
  { name: "nothing", text: "", messages: [] },
];

describe("readSse", () => {
  for (const { name, text, messages } of cases) {
    test(`${name}: cut anywhere, the events are the same`, async () => {
      const bytes = Buffer.from(text, "utf8");
      await fc.assert(
        fc.asyncProperty(fc.array(fc.nat({ max: bytes.length }), { maxLength: 8 }), async (cuts) => {
          const ends = [...new Set(cuts)].sort((one, other) => one - other);
          const pieces = [...ends, bytes.length].map((end, position) => bytes.subarray(ends[position - 1] ?? 0, end));
          assert.deepEqual(await read(pieces), messages);
        }),
        { numRuns: 50 },
      );
      assert.deepEqual(await read([...bytes].map((byte) => Uint8Array.of(byte))), messages);
    });
  }

  test("what one read brought comes as one array", async () => {
    const arrays: SseMessage[][] = [];
    const body = (async function* () {
      yield Buffer.from("data: a\n\ndata: b\n\nda");
      yield Buffer.from("ta: c");
      yield Buffer.from("\n\n");
    })();
    for await (const some of readSse(body)) arrays.push(some);
    assert.deepEqual(arrays, [[{ data: "a" }, { data: "b" }], [{ data: "c" }]]);
  });

  const tooLong: readonly { name: string; text: string; limits: SseLimits }[] = [
    { name: "a line without an end", text: `data: ${"x".repeat(200)}`, limits: { maxEventLength: 100 } },
    { name: "a line that came at once", text: `data: ${"x".repeat(200)}\n\n`, limits: { maxEventLength: 100 } },
    { name: "an event of many lines", text: "data: 123456789\n".repeat(20), limits: { maxEventLength: 100 } },
    { name: "a body of many events", text: "data: 123456789\n\n".repeat(20), limits: { maxBodyBytes: 100 } },
  ];
  for (const { name, text, limits } of tooLong) {
    test(`${name} is an error at its limit`, async () => {
      for (const size of [7, 1000]) {
        const bytes = Buffer.from(text);
        const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, position) =>
          bytes.subarray(position * size, (position + 1) * size),
        );
        await assert.rejects(read(pieces, limits), (error) => {
          return error instanceof TooLongError && error.message.includes("100");
        });
      }
    });
  }

  test("an event that repeats a long answer is read, one beyond all measure is not", async () => {
    const event = (length: number) => Buffer.from(`data: ${"x".repeat(length)}\n\n`);
    const pieces = (bytes: Buffer) =>
      Array.from({ length: Math.ceil(bytes.length / 65_536) }, (_, position) =>
        bytes.subarray(position * 65_536, (position + 1) * 65_536),
      );
    const [message] = await read(pieces(event(7 * 1024 * 1024)));
    assert.equal(message?.data.length, 7 * 1024 * 1024);
    await assert.rejects(read(pieces(event(9 * 1024 * 1024))), TooLongError);
  });

  test("leaving early returns the body", async () => {
    let returned = false;
    const body = (async function* () {
      try {
        for (;;) yield Buffer.from("data: a\n\n");
      } finally {
        returned = true;
      }
    })();
    for await (const _ of readSse(body)) break;
    assert.equal(returned, true);
  });
});
