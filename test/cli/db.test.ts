import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { openPostgresStore } from "../../src/log/postgres.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import type { Store } from "../../src/log/store.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { startTestApp, user } from "../support/test-app.ts";

after(stopTestDatabases);

const entry = fileURLToPath(new URL("../../bin/codeagent.js", import.meta.url));

function folderOf(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-db-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function db(folder: string, words: readonly string[], env: Record<string, string> = {}) {
  const run = spawnSync(process.execPath, ["--disable-warning=ExperimentalWarning", entry, "db", ...words], {
    cwd: folder,
    env: { HOME: folder, ...env },
    encoding: "utf8",
  });
  return { status: run.status, said: `${run.stdout}${run.stderr}` };
}

/** A data directory with sessions of all kinds of content in it. */
async function filled(context: TestContext, dataDir: string) {
  const { app, client, transport } = await startTestApp(context, { dataDir });
  await client.createSession({ sessionId: "one", title: "with a title", metadata: { key: "wörth" } });
  await client.generate({ sessionId: "one", messages: [user("hello")], requestId: "first" });
  await client.forkSession({ sessionId: "one", newSessionId: "two" });
  await client.generate({ sessionId: "two", messages: [user("x".repeat(300_000))] });
  const plans = createClient(PlanService, transport);
  const { id } = await plans.createPlan({ requirement: "Nothing.", plan: { goal: "Nothing happens." } });
  await plans.refinePlan({ planId: id, plan: { goal: "Nothing at all happens." } });
  await app.close();
  const store = openSqliteStore(join(dataDir, "codeagent.db"));
  for (const [memoryId, words] of Object.entries({ first: ["deploy", "部署", "it's #1"], second: ["test"] })) {
    const memory = { tenant: "default", sessionId: "one", memoryId, kind: "semantic", importance: 1, atMs: 5 };
    await store.storeMemory({ ...memory, body: new Uint8Array([1, 2]), terms: words }, 10);
  }
  await store.close();
}

/** Which memories of the session `one` have a word that begins so. */
async function remembered(store: Store, term: string): Promise<string> {
  const search = { tenant: "default", sessionId: "one", order: "newest", limit: 10 } as const;
  const { memories } = await store.searchMemories({ ...search, words: [{ term, isPrefix: true }] });
  return memories.map(({ memoryId }) => memoryId).join(" ");
}

test("what is exported from SQLite is the same after a way through PostgreSQL, and goes on there", {
  skip: noPostgres,
}, async (context) => {
  const folder = folderOf(context);
  const dataDir = join(folder, "data");
  await filled(context, dataDir);
  const url = await testDatabase();
  const steps = [
    db(folder, ["export", "first", "--data-dir", dataDir]),
    db(folder, ["import", "first"], { DATABASE_URL: url }),
    db(folder, ["export", "second"], { DATABASE_URL: url }),
    db(folder, ["import", "second", "--data-dir", join(folder, "other")]),
    db(folder, ["export", "third", "--data-dir", join(folder, "other")]),
  ];
  for (const { status, said } of steps) assert.equal(status, 0, said);
  const [first, second, third] = ["first", "second", "third"].map((name) => readFileSync(join(folder, name), "utf8"));
  assert.match(first ?? "", /x{1000}|base64/);
  assert.equal(second, first);
  assert.equal(third, first);
  const { client, transport } = await startTestApp(context, { flags: { database_url: url } });
  const again = await client.generate({ sessionId: "one", messages: [user("hello")], requestId: "first" });
  assert.equal(
    again.lastSeq,
    (await client.getSession({ sessionId: "one" })).headSeq,
    "the turn is known, not run again",
  );
  const next = await client.generate({ sessionId: "two", messages: [user("and now?")] });
  assert.equal(next.finishReason, "stop");
  const plans = createClient(PlanService, transport);
  const [plan] = (await plans.listPlans({})).plans;
  assert.deepEqual([plan?.version, plan?.goal], [2, "Nothing at all happens."]);
  assert.equal((await plans.getPlan({ planId: plan?.id ?? "", version: 1 })).goal, "Nothing happens.");
  const stores = [openSqliteStore(join(folder, "other", "codeagent.db")), await openPostgresStore({ url })];
  for (const store of stores) {
    const found = await Promise.all(["dep", "部", "it's", "t", "one"].map((term) => remembered(store, term)));
    assert.deepEqual(found, ["first", "first", "first", "second", ""]);
    await store.close();
  }
});

test("an export that was changed or cut, and a store that is not empty, are refused with nothing taken over", async (context) => {
  const folder = folderOf(context);
  const dataDir = join(folder, "data");
  await filled(context, dataDir);
  assert.equal(db(folder, ["export", "whole", "--data-dir", dataDir]).status, 0);
  const whole = readFileSync(join(folder, "whole"), "utf8");
  const cases: [name: string, text: string, said: RegExp][] = [
    ["changed", whole.replace('"default"', '"another"'), /does not add up/],
    ["changed in an id", whole.replace('"two"', '"two2"'), /does not add up/],
    ["cut", whole.slice(0, whole.lastIndexOf("\n", whole.length - 2) + 1), /is cut off after line/],
    ["another file", "hello\n", /line 1 can't be read/],
    ["of a newer build", whole.replace('"version":1', '"version":99'), /version 99; this build reads 1/],
  ];
  for (const [name, text, said] of cases) {
    writeFileSync(join(folder, "broken"), text);
    const empty = join(folder, name);
    const { status, said: heard } = db(folder, ["import", "broken", "--data-dir", empty]);
    assert.equal(status, 1, name);
    assert.match(heard, said, name);
    assert.equal(db(folder, ["import", "whole", "--data-dir", empty]).status, 0, `${name}: nothing was left behind`);
  }
  const full = db(folder, ["import", "whole", "--data-dir", dataDir]);
  assert.match(full.said, /there are sessions in .* already/);
  const there = db(folder, ["export", "whole", "--data-dir", dataDir]);
  assert.match(there.said, /whole is there already/);
});
