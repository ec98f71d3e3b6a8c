import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { FoundMemories, MemorySearch, NewMemory, SearchWord } from "../../src/log/memory-store.ts";
import type { Store } from "../../src/log/store.ts";

/** What every store has to do with memories; a part of `storeContract`. */
export function memoryContract(name: string, open: (context: TestContext) => Promise<Store>): void {
  const bytes = (text: string) => new TextEncoder().encode(text);
  const made = async (store: Store, sessionId: string, tenant = "default") =>
    store.createSession({
      ...{ sessionId, tenant, parentId: "", parentSeq: 0, config: bytes("c"), summary: bytes("{}"), blobs: [] },
      ...{ requestId: "", requestHash: "", atMs: 1 },
    });
  const memory = (memoryId: string, more: Partial<NewMemory> = {}): NewMemory => ({
    ...{ tenant: "default", sessionId: "one", memoryId, kind: "semantic", importance: 0, atMs: 1000 },
    ...{ body: bytes(memoryId), terms: [], ...more },
  });
  const search = (more: Partial<MemorySearch> = {}): MemorySearch => ({
    ...{ tenant: "default", sessionId: "one", order: "best", limit: 10, ...more },
  });
  const ids = ({ memories }: FoundMemories) => memories.map(({ memoryId }) => memoryId);
  const whole = (term: string) => ({ term, isPrefix: false });
  const beginning = (term: string) => ({ term, isPrefix: true });

  describe(`memories in a store: ${name}`, () => {
    test("what is stored is recalled, and each recall is counted", async (context) => {
      const store = await open(context);
      await made(store, "one");
      const given = { memoryId: "m", kind: "semantic", importance: 700_000, atMs: 1000, body: bytes("\0 body") };
      const stored = await store.storeMemory(memory("m", given), 10);
      assert.ok(typeof stored === "object");
      const shown = { ...stored, body: [...stored.body] };
      assert.deepEqual(shown, { ...given, body: [...given.body], accessCount: 0, accessedMs: undefined });
      assert.equal((await store.recallMemory("default", "one", "m", 5000))?.accessCount, 1);
      const second = await store.recallMemory("default", "one", "m", 6000);
      assert.deepEqual([second?.accessCount, second?.accessedMs, second?.atMs], [2, 6000, 1000]);
      assert.equal(await store.recallMemory("default", "one", "other", 1), undefined);
      assert.equal(await store.recallMemory("default", "two", "m", 1), undefined);
    });

    test("one that has the id is replaced, with what it is found by; its recalls stay counted", async (context) => {
      const store = await open(context);
      await made(store, "one");
      await store.storeMemory(memory("m", { terms: ["old", "both"] }), 1);
      await store.recallMemory("default", "one", "m", 5000);
      const changed = { body: bytes("new"), kind: "working", importance: 3, atMs: 7, terms: ["both", "new"] };
      assert.notEqual(await store.storeMemory(memory("m", changed), 1), "full");
      const read = await store.recallMemory("default", "one", "m", 6000);
      assert.deepEqual([...(read?.body ?? [])], [...changed.body]);
      assert.deepEqual([read?.kind, read?.importance, read?.atMs, read?.accessCount], ["working", 3, 7, 2]);
      const found = async (term: string) => (await store.searchMemories(search({ words: [whole(term)] }))).totalCount;
      assert.deepEqual([await found("old"), await found("both"), await found("new")], [0, 1, 1]);
    });

    test("a session that has as many as it may takes no other; a session that is not there takes none", async (context) => {
      const store = await open(context);
      await made(store, "one");
      await made(store, "two");
      for (const id of ["a", "b"]) assert.equal(typeof (await store.storeMemory(memory(id), 2)), "object");
      assert.equal(await store.storeMemory(memory("c"), 2), "full");
      assert.equal(typeof (await store.storeMemory(memory("b"), 2)), "object");
      assert.equal(typeof (await store.storeMemory(memory("c", { sessionId: "two" }), 2)), "object");
      assert.equal(await store.storeMemory(memory("a", { sessionId: "none" }), 2), undefined);
    });

    test("memories are found by whole words, beginnings and labels, the best first", async (context) => {
      const store = await open(context);
      await made(store, "one");
      await made(store, "two");
      const rows: readonly [id: string, terms: readonly string[], importance: number, atMs: number][] = [
        ["a", ["deploy", "friday", "#ops"], 1, 10],
        ["b", ["deployment", "monday", "#ops", "#rule"], 5, 20],
        ["c", ["部署", "署策", "#rule"], 9, 30],
        ["d", ["deploy", "monday"], 1, 40],
        ["e", ["deplo\u{ffff}y"], 0, 50],
      ];
      for (const [id, terms, importance, atMs] of rows)
        await store.storeMemory(memory(id, { terms, importance, atMs }), 10);
      await store.storeMemory(memory("x", { sessionId: "two", terms: ["deploy", "#ops"] }), 10);
      const cases: readonly [Partial<MemorySearch>, expected: string][] = [
        [{}, "c b d a e"],
        [{ order: "newest" }, "e d c b a"],
        [{ minImportance: 5 }, "c b"],
        [{ words: [whole("deploy")] }, "d a"],
        [{ words: [beginning("deploy")] }, "b d a"],
        [{ words: [beginning("deplo")] }, "b d a e"],
        [{ words: [beginning("deploy"), whole("monday")] }, "b d a"],
        [{ words: [whole("deploy"), whole("monday")] }, "d b a"],
        [{ words: [whole("deploy"), whole("monday")], order: "newest" }, "d b a"],
        [{ words: [beginning("部")] }, "c"],
        [{ words: [beginning("署")] }, "c"],
        [{ words: [whole("deplo")] }, ""],
        [{ words: [beginning("%")] }, ""],
        [{ words: [] }, ""],
        [{ labels: ["#ops"] }, "b a"],
        [{ labels: ["#ops", "#rule"] }, "c b a"],
        [{ labels: ["#op"] }, ""],
        [{ labels: [] }, ""],
        [{ labels: ["#ops"], words: [whole("friday")] }, "a"],
        [{ labels: ["#rule"], words: [whole("friday")] }, ""],
        [{ labels: ["#ops"], minImportance: 2 }, "b"],
      ];
      for (const [asked, expected] of cases) {
        const found = await store.searchMemories(search(asked));
        assert.equal(ids(found).join(" "), expected, JSON.stringify(asked));
        assert.equal(found.totalCount, found.memories.length);
        const one = await store.searchMemories(search({ ...asked, limit: 1 }));
        assert.equal(one.totalCount, found.totalCount, "the limit changes nothing of how many there are");
        assert.equal(ids(one).join(" "), expected.split(" ")[0] ?? "");
      }
    });

    test("every term is one word, whatever it is made of, and nothing in a query is a command", async (context) => {
      const store = await open(context);
      await made(store, "one");
      const random = randomNumbers(7);
      const pick = <Item>(items: readonly Item[]): Item => items[random(items.length)] ?? assert.fail();
      const piece = () => (random(4) === 0 ? String.fromCodePoint(random(0xd800)) : pick(pieces));
      const term = () => Array.from({ length: 1 + random(3) }, piece).join("");
      const memories = Array.from({ length: 60 }, (_, n) => ({ id: `m${n}`, terms: [term(), term(), pick(pieces)] }));
      await Promise.all(memories.map(({ id, terms }, atMs) => store.storeMemory(memory(id, { terms, atMs }), 100)));
      const known = memories.flatMap(({ terms }) => terms);
      const word = () => {
        const characters = [...pick(known)];
        if (random(2) === 0) return whole(characters.join(""));
        return beginning(characters.slice(0, 1 + random(characters.length)).join(""));
      };
      for (let round = 0; round < 60; round++) {
        const words = [word(), word(), whole(term())];
        const labels = [pick(known), pick(known), pick(known)];
        const has = (terms: readonly string[], { term: wanted, isPrefix }: SearchWord) =>
          terms.some((each) => (isPrefix ? each.startsWith(wanted) : each === wanted));
        const byWords = memories
          .map(({ id, terms }, at) => ({ id, at, score: words.filter((each) => has(terms, each)).length }))
          .filter(({ score }) => score > 0)
          .sort((a, b) => b.score - a.score || b.at - a.at);
        const found = await store.searchMemories(search({ words, limit: 100 }));
        assert.deepEqual(
          ids(found),
          byWords.map(({ id }) => id),
          JSON.stringify(words),
        );
        const byLabels = memories.filter(({ terms }) => labels.some((label) => terms.includes(label)));
        const labelled = await store.searchMemories(search({ labels, order: "newest", limit: 100 }));
        assert.deepEqual(ids(labelled), byLabels.map(({ id }) => id).reverse(), JSON.stringify(labels));
      }
    });

    test("they are counted and cleared by kind", async (context) => {
      const store = await open(context);
      await made(store, "one");
      for (const [id, kind] of Object.entries({ a: "semantic", b: "semantic", c: "working", d: "episodic" }))
        await store.storeMemory(memory(id, { kind, terms: ["term"] }), 10);
      const counts = async () => Object.fromEntries(await store.countMemories("default", "one"));
      assert.deepEqual(await counts(), { semantic: 2, working: 1, episodic: 1 });
      assert.equal(await store.clearMemories("default", "one", []), 0);
      assert.equal(await store.clearMemories("default", "one", ["semantic", "working", "other"]), 3);
      assert.deepEqual(await counts(), { episodic: 1 });
      assert.deepEqual(ids(await store.searchMemories(search({ words: [whole("term")] }))), ["d"]);
    });

    test("they go with their session, and a later session of its id has none", async (context) => {
      const store = await open(context);
      await made(store, "one");
      await made(store, "two");
      for (const sessionId of ["one", "two"]) await store.storeMemory(memory("m", { sessionId, terms: ["term"] }), 10);
      await store.deleteSession("default", "one");
      assert.equal(await store.recallMemory("default", "one", "m", 1), undefined);
      await made(store, "one");
      assert.deepEqual(await store.searchMemories(search()), { memories: [], totalCount: 0 });
      await store.storeMemory(memory("m", { terms: ["other"] }), 10);
      assert.deepEqual(ids(await store.searchMemories(search({ words: [whole("term")] }))), []);
      assert.equal((await store.recallMemory("default", "two", "m", 1))?.accessCount, 1);
    });

    test("nobody sees, changes or clears another tenant's", async (context) => {
      const store = await open(context);
      await made(store, "one");
      await store.storeMemory(memory("m", { terms: ["term"] }), 10);
      const tenant = "other";
      assert.equal(await store.storeMemory(memory("n", { tenant }), 10), undefined);
      assert.equal(await store.recallMemory(tenant, "one", "m", 1), undefined);
      assert.deepEqual(await store.searchMemories(search({ tenant })), { memories: [], totalCount: 0 });
      assert.equal((await store.countMemories(tenant, "one")).size, 0);
      assert.equal(await store.clearMemories(tenant, "one", ["semantic"]), 0);
      const words = [whole("term")];
      assert.deepEqual(ids(await store.searchMemories(search({ words }))), ["m"]);
    });

    test("of many that are stored at once none is lost", async (context) => {
      const store = await open(context);
      await made(store, "one");
      const names = Array.from({ length: 20 }, (_, number) => `m${number % 10}`);
      await Promise.all(names.map((id) => store.storeMemory(memory(id, { terms: [id, "all"] }), 100)));
      const found = await store.searchMemories(search({ words: [whole("all")], limit: 100 }));
      assert.equal(found.totalCount, 10);
    });
  });
}

/** What the text searches of databases part words at, leave out, fold or take for commands, and what begins alike. */
const pieces: readonly string[] = [
  ...["a", "A", "b", "é", "É", "e\u0301", "ß", "ẞ", "İ", "i", "ı", "\u212a", "k", "ﬁ", "fi", "0", "1e5", "-1", "3.14"],
  ...[
    "_",
    "_5f",
    "%",
    "'",
    "''",
    '"',
    "\\",
    "*",
    ":",
    ":*",
    "&",
    "|",
    "!",
    "(",
    ")",
    "#",
    "<->",
    "^",
    "-",
    "+",
    "{",
    "~",
  ],
  ...[" ", "  ", "\t", "\n", "\0", "\u00a0", "\u00ad", "\u200b", "\u202e", "\u3000", "\ufeff", "\uffff", "\u{10ffff}"],
  ...[
    "部",
    "署",
    "策",
    "สวัส",
    "ดี",
    "\u0e49",
    "한국",
    "لا",
    "😀",
    "👨‍👩‍👧",
    "and",
    "or",
    "not",
    "NEAR",
    "the",
    "running",
  ],
  ...["http://x.y/z?q=1", "a@b.c", "<b>", "&amp;", "/a/b", "terms", "rank"],
];

/** Whole numbers from 0 to below a limit, the same ones in each run. */
function randomNumbers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}
