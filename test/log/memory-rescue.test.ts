import assert from "node:assert/strict";
import { closeSync, copyFileSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, describe, type TestContext, test } from "node:test";
import { encodeSessionConfig } from "../../src/convert/proto/session-config.ts";
import { indexedTerm } from "../../src/log/memory-store.ts";
import { openOrRescue } from "../../src/log/open-or-rescue.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import type { Store } from "../../src/log/store.ts";
import { plainConfig } from "../../src/session/session-worker.ts";
import { summaryOfLog } from "../../src/session/summary-of-log.ts";

const folder = mkdtempSync(join(tmpdir(), "codeagent-rescue-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const sample = join(folder, "sample.db");
const sessionIds = ["one", "two", "three"];
const perSession = 80;
const pageBytes = 4096;

await (async () => {
  const store = openSqliteStore(sample);
  const config = encodeSessionConfig(plainConfig("/workspace"));
  for (const sessionId of sessionIds) {
    const parent = { parentId: "", parentSeq: 0, requestId: "", requestHash: "", blobs: [] };
    const summary = summaryOfLog(config, []);
    await store.createSession({ sessionId, tenant: "default", ...parent, config, summary, atMs: 1 });
    for (let number = 0; number < perSession; number++)
      await store.storeMemory(
        {
          ...{ tenant: "default", sessionId, memoryId: `m${number}`, kind: "semantic", importance: 0, atMs: number },
          ...{ body: new TextEncoder().encode("x".repeat(200)), terms: ["all", `only${number}`, `of-${sessionId}`] },
        },
        1000,
      );
  }
  await store.close();
})();

/** Opens a copy of the sample that something happened to, and says what was reported. */
function opened(context: TestContext, damage: (path: string) => void) {
  const path = join(mkdtempSync(join(folder, "copy-")), "codeagent.db");
  copyFileSync(sample, path);
  damage(path);
  const reports: Record<string, unknown>[] = [];
  const report = (_level: string, _message: string, facts: Record<string, unknown>) => void reports.push(facts);
  const store = openOrRescue({ path, report, summaryOfLog, now: () => 5000 });
  context.after(() => store.close());
  return { path, store, reports };
}

/** How many memories there are; each is found by its own word, and all of a session by a word of all. */
async function memoriesIn(store: Store): Promise<number> {
  let count = 0;
  for (const sessionId of sessionIds) {
    const search = { tenant: "default", sessionId, order: "newest", limit: 1000 } as const;
    const { memories, totalCount } = await store.searchMemories(search);
    const words = [{ term: "al", isPrefix: true }];
    const byWord = await store.searchMemories({ ...search, words });
    assert.deepEqual(byWord, { memories, totalCount });
    for (const { memoryId } of memories.slice(0, 3)) {
      const own = await store.searchMemories({
        ...search,
        words: [{ term: `only${memoryId.slice(1)}`, isPrefix: false }],
      });
      assert.deepEqual(
        own.memories.map((memory) => memory.memoryId),
        [memoryId],
      );
    }
    count += totalCount;
  }
  return count;
}

function pagesOf(path: string) {
  const database = new DatabaseSync(path, { readOnly: true });
  const sql = `select name, pageno, pagetype from dbstat
    where name like 'memor%' or name like '%memories%' or name = 'sqlite_schema' order by pageno`;
  const rows = database.prepare(sql).all();
  database.close();
  return rows.map((row) => ({ name: String(row["name"]), page: Number(row["pageno"]), type: String(row["pagetype"]) }));
}

function overwrite(path: string, position: number, bytes: Uint8Array): void {
  const file = openSync(path, "r+");
  writeSync(file, bytes, 0, bytes.length, position);
  closeSync(file);
}

test("what is sound is opened as it is", async (context) => {
  const { store, reports } = opened(context, () => undefined);
  assert.deepEqual(reports, []);
  assert.equal(await memoriesIn(store), sessionIds.length * perSession);
});

describe("a zeroed page costs at most the memories that were in it:", { timeout: 60_000 }, () => {
  for (const { name, page, type } of pagesOf(sample))
    test(`page ${page}, ${type} of ${name}`, async (context) => {
      const { path, store, reports } = opened(context, (at) =>
        overwrite(at, (page - 1) * pageBytes, new Uint8Array(pageBytes)),
      );
      assert.equal(reports.length, 1);
      assert.deepEqual([reports[0]?.["rescued"], reports[0]?.["lost"]], [sessionIds.length, 0]);
      const count = await memoriesIn(store);
      const isAll = count === sessionIds.length * perSession;
      // Without the page that says where the table begins it can't be found.
      if (isAll || !["memories", "sqlite_schema"].includes(name)) assert.ok(isAll, `${count} are left`);
      else assert.match(String(reports[0]?.["lostWithoutCount"]), /memories/);
      assert.equal(indexed(path), count);
      for (const sessionId of sessionIds) await store.deleteSession("default", sessionId);
      await store.close();
      assert.equal(indexed(path), 0);
    });
});

test("an index that is sound in its pages and not in what they say is made anew", async (context) => {
  const { store, reports } = opened(context, (path) => {
    const database = new DatabaseSync(path);
    database.enableDefensive(false);
    const spoilt = "update memory_index_data set block = randomblob(length(block)) where id > 10";
    assert.ok(database.prepare(spoilt).run().changes > 0);
    database.close();
  });
  assert.match(String(reports[0]?.["found"]), /memory_index/);
  assert.equal(await memoriesIn(store), sessionIds.length * perSession);
});

/** How many memories of all sessions the index alone still finds. */
function indexed(path: string): number {
  const database = new DatabaseSync(path);
  const find = database.prepare("select count(*) as count from memory_index(?)");
  const counts = sessionIds.map((sessionId) => Number(find.get(`"${indexedTerm(sessionId, "")}"*`)?.["count"]));
  database.close();
  return counts.reduce((sum, count) => sum + count, 0);
}
