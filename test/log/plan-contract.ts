import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { NewPlan, StoredPlan } from "../../src/log/plan-store.ts";
import type { AnsweredRequest, Store } from "../../src/log/store.ts";

/** What every store has to do with plans; a part of `storeContract`. */
export function planContract(name: string, open: (context: TestContext) => Promise<Store>): void {
  const bytes = (text: string) => new TextEncoder().encode(text);
  const newPlan = (planId: string, more: Partial<NewPlan> = {}): NewPlan => ({
    ...{ tenant: "default", planId, sessionId: "", body: bytes(`${planId} 1`), atMs: 1000, ...more },
  });
  const next = (planId: string, seenVersion: number, tenant = "default") => ({
    ...{ tenant, planId, seenVersion, body: bytes(`${planId} ${seenVersion + 1}`), atMs: 2000 },
  });
  const request: AnsweredRequest = {
    ...{ tenant: "default", requestId: "r1", method: "CreatePlan", hash: "h", atMs: 1000, answer: bytes("answer") },
  };
  const shown = (plan: StoredPlan | undefined) => {
    if (plan === undefined) return undefined;
    const { body, version, newestVersion, createdMs, updatedMs } = plan;
    return [new TextDecoder().decode(body), version, newestVersion, createdMs, updatedMs];
  };

  describe(`plans in a store: ${name}`, () => {
    test("what is created is read; nobody sees another tenant's", async (context) => {
      const store = await open(context);
      const made = await store.createPlan(newPlan("p", { sessionId: "one" }));
      assert.ok(made !== "answered" && made.created);
      assert.deepEqual(made.plan, await store.readPlan("default", "p"));
      const { body, ...plan } = made.plan ?? {};
      assert.equal(new TextDecoder().decode(body), "p 1");
      assert.deepEqual(plan, {
        ...{ planId: "p", tenant: "default", sessionId: "one", version: 1, newestVersion: 1 },
        ...{ createdMs: 1000, updatedMs: 1000, executionId: "" },
      });
      assert.equal(await store.readPlan("default", "other"), undefined);
      assert.equal(await store.readPlan("other", "p"), undefined);
      assert.equal(await store.readPlan("other", "p", 1), undefined);
      assert.deepEqual(await store.listPlans("other", "", undefined, 10), []);
      assert.equal(await store.addPlanVersion(next("p", 1, "other")), undefined);
      assert.equal(await store.setPlanExecution("other", "p", "exec"), false);
      const taken = await store.createPlan(newPlan("p", { tenant: "other" }));
      assert.deepEqual(taken, { created: false, plan: undefined });
      assert.deepEqual(shown(await store.readPlan("default", "p")), ["p 1", 1, 1, 1000, 1000]);
    });

    test("versions follow each other, and all stay", async (context) => {
      const store = await open(context);
      await store.createPlan(newPlan("p"));
      const second = await store.addPlanVersion(next("p", 1));
      assert.ok(typeof second === "object");
      assert.deepEqual(shown(second), ["p 2", 2, 2, 1000, 2000]);
      assert.equal(await store.addPlanVersion(next("p", 1)), "stale");
      assert.equal(await store.addPlanVersion(next("p", 3)), "stale");
      assert.equal(await store.addPlanVersion(next("none", 1)), undefined);
      assert.deepEqual(shown(await store.readPlan("default", "p", 1)), ["p 1", 1, 2, 1000, 1000]);
      assert.deepEqual(shown(await store.readPlan("default", "p", 2)), ["p 2", 2, 2, 1000, 2000]);
      assert.deepEqual(await store.readPlan("default", "p"), second);
      assert.equal(await store.readPlan("default", "p", 3), undefined);
    });

    test("of those that add the next version at once, one does", async (context) => {
      const store = await open(context);
      await store.createPlan(newPlan("p"));
      const added = await Promise.all([1, 1, 1, 1].map((seen) => store.addPlanVersion(next("p", seen))));
      assert.equal(added.filter((plan) => typeof plan === "object").length, 1);
      assert.equal(added.filter((plan) => plan === "stale").length, 3);
      assert.equal((await store.readPlan("default", "p"))?.version, 2);
    });

    test("an id is taken once, and a request noted with its change", async (context) => {
      const store = await open(context);
      await store.createPlan(newPlan("p"));
      const again = await store.createPlan(newPlan("p", { body: bytes("other") }), request);
      assert.ok(again !== "answered" && !again.created);
      assert.equal(shown(again.plan)?.[0], "p 1");
      assert.equal(await store.addPlanVersion(next("p", 7), request), "stale");
      assert.equal(await store.readRequest("default", "r1"), undefined);
      await store.createPlan(newPlan("q"), request);
      assert.equal((await store.readRequest("default", "r1"))?.method, "CreatePlan");
      assert.equal(await store.createPlan(newPlan("r"), request), "answered");
      assert.equal(await store.addPlanVersion(next("q", 1), request), "answered");
      assert.equal(await store.readPlan("default", "r"), undefined);
      assert.equal((await store.readPlan("default", "q"))?.version, 1);
      const added = await store.addPlanVersion(next("q", 1), { ...request, requestId: "r2" });
      assert.ok(typeof added === "object");
      assert.equal((await store.readRequest("default", "r2"))?.hash, "h");
    });

    test("lists are newest first, in the newest version, of one session when asked", async (context) => {
      const store = await open(context);
      for (const [index, id] of ["a", "b", "c", "d", "e"].entries()) {
        const sessionId = id === "c" ? "" : id < "c" ? "one" : "two";
        await store.createPlan(newPlan(id, { atMs: index < 3 ? 100 : 200, sessionId }));
      }
      await store.addPlanVersion(next("b", 1));
      const seen: unknown[] = [];
      for (let before: StoredPlan | undefined; ; ) {
        const page = await store.listPlans("default", "", before, 2);
        seen.push(...page.map((plan) => shown(plan)?.[0]));
        before = page.at(-1);
        if (page.length < 2) break;
      }
      assert.deepEqual(seen, ["e 1", "d 1", "c 1", "b 2", "a 1"]);
      const ofTwo = await store.listPlans("default", "two", undefined, 10);
      assert.deepEqual(
        ofTwo.map(({ planId }) => planId),
        ["e", "d"],
      );
    });

    test("the newest execution stands beside all versions; a session that goes leaves its plans", async (context) => {
      const store = await open(context);
      const session = { sessionId: "one", tenant: "default", parentId: "", parentSeq: 0, blobs: [], atMs: 1 };
      const empty = { config: bytes("config"), summary: bytes("{}"), requestId: "", requestHash: "" };
      await store.createSession({ ...session, ...empty });
      await store.createPlan(newPlan("p", { sessionId: "one" }));
      assert.equal(await store.setPlanExecution("default", "p", "exec_1"), true);
      assert.equal(await store.setPlanExecution("default", "none", "exec_1"), false);
      await store.addPlanVersion(next("p", 1));
      assert.equal((await store.readPlan("default", "p"))?.executionId, "exec_1");
      assert.equal((await store.readPlan("default", "p", 1))?.executionId, "exec_1");
      await store.setPlanExecution("default", "p", "exec_2");
      assert.equal((await store.readPlan("default", "p"))?.executionId, "exec_2");
      await store.deleteSession("default", "one");
      assert.equal((await store.readPlan("default", "p"))?.sessionId, "one");
    });
  });
}
