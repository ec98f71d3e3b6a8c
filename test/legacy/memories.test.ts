import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { status } from "@grpc/grpc-js";
import { labelOf, memoryTerms, searchWords } from "../../src/rpc/legacy/memory-terms.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";

/** Ended after the last test of this file, the latest first. */
const endings: (() => unknown)[] = [];
const file = { after: (end?: unknown) => void (typeof end === "function" && endings.unshift(() => end())) };
after(async () => {
  for (const end of endings) await end();
});

let sessionNumber = 0;
let app: Awaited<ReturnType<typeof startTestApp>>;
let eras: Record<"L0" | "L1" | "L2", LegacyClient>;
before(async () => {
  app = await startTestApp(file);
  eras = legacyClients(file, app.app.url);
});

/** A session of its own for a test. */
async function newSession(): Promise<string> {
  const sessionId = `memories-${++sessionNumber}`;
  await app.client.createSession({ sessionId });
  return sessionId;
}

const call = (rpc: string, request: LegacyMessage) => eras.L2.call(rpc, request);
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : assert.fail("no list"));

async function stored(sessionId: string, memory: LegacyMessage): Promise<string> {
  const answer = await call("StoreMemory", { session_id: sessionId, memory });
  assert.equal(answer["success"], true);
  return String(answer["memory_id"]);
}

async function found(sessionId: string, request: LegacyMessage): Promise<string> {
  const answer = await call("SearchMemories", { session_id: sessionId, ...request });
  return list(answer["memories"])
    .map((memory) => at(memory, "id"))
    .join(" ");
}

describe("memories of the earlier service", { timeout: 30_000 }, () => {
  for (const era of ["L1", "L2"] as const) {
    test(`${era}: what is stored is retrieved, found by word and by tag, and counted`, async () => {
      const client = eras[era];
      const session_id = await newSession();
      const memory = {
        ...{ content: "The user prefers tabs over spaces", importance: 0.7, tags: ["style", "Editor"] },
        ...{ memory_type: "MEMORY_TYPE_SEMANTIC", metadata: { source: "chat" }, timestamp: "1700000000000" },
      };
      const { success, memory_id } = await client.call("StoreMemory", { session_id, memory });
      assert.equal(success, true);
      assert.match(String(memory_id), /^mem_\w+$/);
      const { memory: read } = await client.call("RetrieveMemory", { session_id, memory_id });
      const { importance, last_accessed, ...rest } = { ...(typeof read === "object" ? read : {}) } as LegacyMessage;
      assert.equal(Math.fround(Number(importance)), Math.fround(0.7));
      assert.ok(Math.abs(Number(last_accessed) - Date.now()) < 60_000);
      assert.partialDeepStrictEqual(rest, {
        ...{ id: memory_id, content: memory.content, tags: memory.tags, metadata: memory.metadata },
        ...{ memory_type: memory.memory_type, timestamp: memory.timestamp, access_count: 1 },
      });
      for (const request of [{ query: "TABS" }, { tags: ["editor"] }, { query: "tab", tags: ["style"] }]) {
        const answer = await client.call("SearchMemories", { session_id, ...request });
        assert.deepEqual([at(answer, "memories.0.id"), at(answer, "total_count")], [memory_id, 1]);
      }
      const none = await client.call("SearchMemories", { session_id, query: "semicolons" });
      assert.deepEqual([none["memories"], none["total_count"]], [[], 0]);
      const { stats } = await client.call("GetMemoryStats", { session_id });
      assert.deepEqual({ ...(stats as object) }, { long_term_count: "1", short_term_count: "0", working_count: "0" });
    });
  }

  test("an id that the client gives is kept; the same one again replaces what was there", async () => {
    const session_id = await newSession();
    const before = Date.now();
    assert.equal(await stored(session_id, { id: "mine.1", content: "first word" }), "mine.1");
    await call("RetrieveMemory", { session_id, memory_id: "mine.1" });
    await stored(session_id, { id: "mine.1", content: "second", access_count: 77 });
    const { memory } = await call("RetrieveMemory", { session_id, memory_id: "mine.1" });
    assert.deepEqual([at(memory, "content"), at(memory, "access_count")], ["second", 2]);
    assert.ok(Number(at(memory, "timestamp")) >= before, "the time is now where none is given");
    assert.deepEqual([await found(session_id, { query: "first" }), await found(session_id, {})], ["", "mine.1"]);
  });

  test("searches rank by words, then importance, then time; bounds and totals are told", async () => {
    const session_id = await newSession();
    const rows = [
      { id: "a", content: "deploy on friday", importance: 0.1, timestamp: "1000", tags: ["ops"] },
      { id: "b", content: "never deploy by hand", importance: 0.9, timestamp: "2000", tags: ["ops", "rule"] },
      { id: "c", content: "deployment takes an hour", importance: 0.5, timestamp: "3000" },
      { id: "d", content: "我们每周五部署到生产环境", importance: 0.2, timestamp: "4000", tags: ["运维"] },
      { id: "e", content: "call useUserStore before rendering", importance: 0.5, timestamp: "5000" },
    ];
    for (const row of rows) await stored(session_id, row);
    const cases: readonly [LegacyMessage, expected: string][] = [
      [{}, "b e c d a"],
      [{ recent_only: true }, "e d c b a"],
      [{ query: "deploy" }, "b c a"],
      [{ query: "deploy friday" }, "a b c"],
      [{ query: "Deploy", recent_only: true }, "c b a"],
      [{ query: "部署" }, "d"],
      [{ query: "什么时候部署？" }, "d"],
      [{ query: "产" }, "d"],
      [{ query: "境" }, "d"],
      [{ query: "署部" }, ""],
      [{ query: "运维" }, "d"],
      [{ query: "store" }, "e"],
      [{ query: "useuserstore" }, "e"],
      [{ query: "de" }, ""],
      [{ query: "*" }, ""],
      [{ query: '"deploy" OR NEAR( * )' }, "b c a"],
      [{ query: "ops'; drop table memories;--" }, "b a"],
      [{ query: "  " }, "b e c d a"],
      [{ tags: ["ops"] }, "b a"],
      [{ tags: ["OPS", "运维"] }, "b d a"],
      [{ tags: ["op"] }, ""],
      [{ query: "friday", tags: ["ops"] }, "a"],
      [{ query: "friday", tags: ["rule"] }, ""],
      [{ min_importance: 0.5 }, "b e c"],
      [{ query: "deploy", min_importance: 0.9 }, "b"],
    ];
    for (const [request, expected] of cases)
      assert.equal(await found(session_id, request), expected, JSON.stringify(request));
    const first = await call("SearchMemories", { session_id, query: "deploy", limit: 1 });
    assert.deepEqual([list(first["memories"]).length, first["total_count"]], [1, 3]);
  });

  test("ten are given where no limit is said, and never more than a hundred", async () => {
    const session_id = await newSession();
    await Promise.all(Array.from({ length: 105 }, (_, number) => stored(session_id, { content: `note ${number}` })));
    const lengths = async (limit: number) => {
      const answer = await call("SearchMemories", { session_id, query: "note", limit });
      return [list(answer["memories"]).length, answer["total_count"]];
    };
    assert.deepEqual(
      [await lengths(0), await lengths(11), await lengths(4_000_000_000)],
      [
        [10, 105],
        [11, 105],
        [100, 105],
      ],
    );
  });

  test("tiers follow from the type; clearing takes the chosen ones only", async () => {
    const session_id = await newSession();
    for (const type of ["UNKNOWN", "EPISODIC", "SEMANTIC", "PROCEDURAL", "WORKING"])
      await stored(session_id, { content: type, memory_type: `MEMORY_TYPE_${type}` });
    const stats = async () => {
      const { stats } = await call("GetMemoryStats", { session_id });
      return ["long_term_count", "short_term_count", "working_count"].map((name) => at(stats, name)).join(" ");
    };
    const cleared = async (chosen: LegacyMessage) => {
      const answer = await call("ClearMemories", { session_id, ...chosen });
      assert.equal(answer["success"], true);
      return answer["cleared_count"];
    };
    assert.equal(await stats(), "2 2 1");
    assert.equal(await cleared({}), "0");
    assert.equal(await stats(), "2 2 1");
    assert.equal(await cleared({ clear_working: true, clear_long_term: true }), "3");
    assert.equal(await stats(), "0 2 0");
    assert.equal(await cleared({ clear_short_term: true, clear_working: true }), "2");
    assert.equal(await stats(), "0 0 0");
  });

  test("a session's memories are its own and go with it; later ones of its name begin without", async () => {
    const [one, two] = [await newSession(), await newSession()];
    await stored(one, { id: "m", content: "of one" });
    await stored(two, { id: "m", content: "of two" });
    assert.equal(at(await call("RetrieveMemory", { session_id: two, memory_id: "m" }), "memory.content"), "of two");
    await app.client.deleteSession({ sessionId: one });
    await assert.rejects(call("RetrieveMemory", { session_id: one, memory_id: "m" }), { code: status.NOT_FOUND });
    await app.client.createSession({ sessionId: one });
    assert.equal(await found(one, {}), "");
    assert.equal(await found(two, { query: "of" }), "m");
  });

  test("bad calls are named, unknown ones are not found", async () => {
    const session_id = await newSession();
    const memory = (more: LegacyMessage) => ["StoreMemory", { session_id, memory: { content: "x", ...more } }] as const;
    const cases: readonly (readonly [rpc: string, request: LegacyMessage, code: number, said: RegExp])[] = [
      ["StoreMemory", { session_id: "none", memory: { content: "x" } }, status.NOT_FOUND, /session none/],
      ["RetrieveMemory", { session_id: "none", memory_id: "m" }, status.NOT_FOUND, /session none/],
      ["SearchMemories", { session_id: "none" }, status.NOT_FOUND, /session none/],
      ["GetMemoryStats", { session_id: "none" }, status.NOT_FOUND, /session none/],
      ["ClearMemories", { session_id: "none" }, status.NOT_FOUND, /session none/],
      ["RetrieveMemory", { session_id, memory_id: "none" }, status.NOT_FOUND, /no memory none/],
      ["RetrieveMemory", { session_id, memory_id: "\0'" }, status.NOT_FOUND, /no memory/],
      ["RetrieveMemory", { session_id }, status.INVALID_ARGUMENT, /memory_id/],
      ["StoreMemory", { session_id: "a/b", memory: {} }, status.INVALID_ARGUMENT, /session_id/],
      ["StoreMemory", { session_id }, status.INVALID_ARGUMENT, /memory: is missing/],
      [...memory({ content: " \n" }), status.INVALID_ARGUMENT, /memory\.content: is empty/],
      [...memory({ content: "é".repeat(8193) }), status.INVALID_ARGUMENT, /16386 bytes; 16384 is the most/],
      [...memory({ id: "a b" }), status.INVALID_ARGUMENT, /memory\.id/],
      [...memory({ id: "a".repeat(129) }), status.INVALID_ARGUMENT, /memory\.id: has 129/],
      [...memory({ importance: 1.1 }), status.INVALID_ARGUMENT, /memory\.importance/],
      [...memory({ importance: Number.NaN }), status.INVALID_ARGUMENT, /memory\.importance/],
      [...memory({ timestamp: "-1" }), status.INVALID_ARGUMENT, /memory\.timestamp/],
      [...memory({ memory_type: 9 }), status.INVALID_ARGUMENT, /memory\.memory_type/],
      [...memory({ tags: ["good", ""] }), status.INVALID_ARGUMENT, /memory\.tags\[1\]/],
      [...memory({ tags: ["a\0b"] }), status.INVALID_ARGUMENT, /memory\.tags\[0\]/],
      [...memory({ tags: Array(51).fill("x") }), status.INVALID_ARGUMENT, /51 tags/],
      [...memory({ tags: ["x".repeat(101)] }), status.INVALID_ARGUMENT, /101 characters/],
      [...memory({ metadata: { key: "x".repeat(16 * 1024) } }), status.INVALID_ARGUMENT, /memory\.metadata/],
      ["SearchMemories", { session_id, query: "x".repeat(1001) }, status.INVALID_ARGUMENT, /query/],
      ["SearchMemories", { session_id, min_importance: -0.5 }, status.INVALID_ARGUMENT, /min_importance/],
    ];
    for (const [rpc, request, code, said] of cases)
      await assert.rejects(call(rpc, request), (error: { code: number; message: string }) => {
        assert.equal(error.code, code, `${rpc}: ${error.message}`);
        assert.match(error.message, said);
        return true;
      });
    assert.equal(await found(session_id, {}), "", "nothing of it was stored");
  });

  test("a restart keeps them, with what is known of their recalls", async (context) => {
    const dataDir = await mkdtemp(join(tmpdir(), "codeagent-memories-"));
    context.after(() => rm(dataDir, { recursive: true, force: true }));
    const first = await startTestApp(context, { dataDir });
    await first.client.createSession({ sessionId: "kept" });
    const [before] = [legacyClients(context, first.app.url).L2];
    const memory = { id: "m", content: "survives a restart", memory_type: "MEMORY_TYPE_WORKING" };
    await before.call("StoreMemory", { session_id: "kept", memory });
    await before.call("RetrieveMemory", { session_id: "kept", memory_id: "m" });
    await first.app.close(0);
    const second = await startTestApp(context, { dataDir });
    const after = legacyClients(context, second.app.url).L2;
    const answer = await after.call("SearchMemories", { session_id: "kept", query: "restart" });
    assert.deepEqual([at(answer, "memories.0.id"), at(answer, "memories.0.access_count")], ["m", 1]);
  });
});

describe("what memories are found by", () => {
  const terms: readonly [content: string, tags: readonly string[], expected: string][] = [
    ["Hello, World! hello", [], "hello world"],
    ["snake_case-and.dots", [], "snake case and dots"],
    ["useUserStore v2Api", [], "useuserstore v2api use user store v2 api"],
    ["部署", [], "部署 署"],
    ["部", [], "部"],
    ["用TypeScript写", ["Lang"], "用 typescript 写 type script lang #lang"],
    ["ﬁne Ｆｕｌｌ", [], "fine full"],
    ["サーバー", [], "サー ーバ バー ー"],
    ["한국어 문장", [], "한국어 문장"],
    ["", ["Two Words"], "two words #two words"],
    ["!?", [], ""],
  ];
  for (const [content, tags, expected] of terms)
    test(`terms of ${JSON.stringify(content)} ${tags}`, () => {
      const found = memoryTerms(content, tags);
      assert.ok(isDeepStrictEqual(new Set(found.join(" ").split(" ")), new Set(expected.split(" "))), found.join(" "));
    });

  test("queries are words and nothing else, at most 32 of them", () => {
    const shown = (query: string) => searchWords(query).map(({ term, isPrefix }) => (isPrefix ? `${term}*` : term));
    assert.deepEqual(shown("Is it deployed?"), ["is", "it", "deployed*"]);
    assert.deepEqual(shown("a:b* NOT (x)"), ["a", "b", "not*", "x"]);
    assert.deepEqual(shown("数据库"), ["数据", "据库"]);
    assert.deepEqual(shown("数"), ["数*"]);
    assert.deepEqual(shown("😀 !"), []);
    assert.equal(searchWords(Array.from({ length: 99 }, (_, number) => `word${number}`).join(" ")).length, 32);
    assert.equal(searchWords("x".repeat(500))[0]?.term.length, 64);
    assert.equal(labelOf(" ＯＰＳ "), "#ops");
  });
});
