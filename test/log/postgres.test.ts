import { after, type TestContext } from "node:test";
import { openPostgresStore, type PostgresStoreOptions } from "../../src/log/postgres.ts";
import type { StoreListener } from "../../src/log/store.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { storeContract } from "./store-contract.ts";

after(stopTestDatabases);

const quiet: StoreListener = {
  grown: () => undefined,
  runnable: () => undefined,
  commanded: () => undefined,
  deleted: () => undefined,
  shortened: () => undefined,
  heldBack: () => undefined,
  fenced: () => undefined,
  watched: () => [],
};

async function opened(context: TestContext, options: PostgresStoreOptions, listener: Partial<StoreListener> = {}) {
  const store = await openPostgresStore(options);
  context.after(() => store.close());
  await store.start({ ...quiet, ...listener });
  return store;
}

if (noPostgres === false) {
  storeContract("postgresql", async (context) => opened(context, { url: await testDatabase() }));
  storeContract("postgresql through PgBouncer", async (context) =>
    opened(context, { url: await testDatabase(), pgbouncer: true }),
  );
}
