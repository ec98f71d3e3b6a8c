import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { AnsweredRequest, Claim, NewInboxEntry, NewRequest, NewSession, Store } from "../../src/log/store.ts";
import { memoryContract } from "./memory-contract.ts";
import { planContract } from "./plan-contract.ts";
import { scheduleContract } from "./schedule-contract.ts";

/** What every store has to do; each driver runs the same suite. */
export function storeContract(name: string, open: (context: TestContext) => Promise<Store>): void {
  const bytes = (text: string) => new TextEncoder().encode(text);
  const text = (body: Uint8Array) => new TextDecoder().decode(body);
  const session = (sessionId: string, more: Partial<NewSession> = {}): NewSession => ({
    sessionId,
    tenant: "default",
    parentId: "",
    parentSeq: 0,
    config: bytes("config"),
    summary: bytes("{}"),
    blobs: [],
    requestId: "",
    requestHash: "",
    atMs: 1000,
    ...more,
  });
  const entry = (sessionId: string, key: string, more: Partial<NewInboxEntry> = {}): NewInboxEntry => ({
    sessionId,
    tenant: "default",
    key,
    kind: "turn",
    turnId: `turn-${key}`,
    principal: "somebody",
    body: bytes(`body of ${key}`),
    hash: `hash of ${key}`,
    atMs: 2000,
    waitingLimit: 16,
    ...more,
  });
  const claimed = async (store: Store, sessionId: string): Promise<Claim> => {
    const claim = await store.claim(sessionId);
    assert.ok(claim !== undefined, `${sessionId} can be claimed`);
    return claim;
  };
  const append = (store: Store, sessionId: string, { fence }: Claim, events: readonly string[], more = {}) =>
    store.append({
      sessionId,
      fence,
      events: events.map((event) => ({ kind: event.split(" ")[0] ?? "", body: bytes(event) })),
      turnId: "turn-1",
      atMs: 3000,
      ...more,
    });
  const logOf = async (store: Store, sessionId: string, afterSeq = 0, limit = 100, limitBytes = 1_000_000) =>
    (await store.readEvents(sessionId, afterSeq, limit, limitBytes)).map(({ seq, body }) => `${seq} ${text(body)}`);

  describe(`store: ${name}`, () => {
    test("a session is created once; the id keeps its first owner", async (context) => {
      const store = await open(context);
      const first = await store.createSession(session("one", { requestId: "r1", requestHash: "h1" }));
      assert.equal(first.created, true);
      const second = await store.createSession(session("one", { config: bytes("other"), requestId: "r2" }));
      assert.equal(second.created, false);
      assert.equal(text(second.session.config), "config");
      assert.equal(second.session.requestId, "r1");
      assert.equal(second.session.headSeq, 0);
    });

    test("a request id makes one session, whatever id that has; an empty one makes as many as are asked for", async (context) => {
      const store = await open(context);
      await store.createSession(session("one", { requestId: "r1", requestHash: "h1" }));
      await store.createSession(session("parent"));
      const again = await store.createSession(session("two", { requestId: "r1", requestHash: "h2" }));
      const forked = await store.forkSession("parent", 0, session("three", { requestId: "r1", requestHash: "h3" }));
      for (const taken of [again, forked]) {
        assert.equal(taken?.created, false);
        assert.deepEqual([taken?.session.sessionId, taken?.session.requestHash], ["one", "h1"]);
      }
      const others = [session("four"), session("five"), session("six", { requestId: "r1", tenant: "another" })];
      for (const other of others) assert.equal((await store.createSession(other)).created, true);
    });

    test("nobody sees a session of another tenant", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      assert.equal(await store.readSession("other", "one"), undefined);
      assert.deepEqual(await store.listSessions("other", undefined, 10), []);
      assert.equal(await store.deleteSession("other", "one"), false);
      assert.equal(await store.send({ ...entry("one", "a"), tenant: "other" }), undefined);
    });

    test("lists are newest first and go on where the page before ended", async (context) => {
      const store = await open(context);
      for (const [position, id] of ["a", "b", "c", "d", "e"].entries()) {
        await store.createSession(session(id, { atMs: position < 3 ? 100 : 200 }));
      }
      const seen: string[] = [];
      let before: { createdMs: number; sessionId: string } | undefined;
      for (;;) {
        const page = await store.listSessions("default", before, 2);
        seen.push(...page.map(({ sessionId }) => sessionId));
        before = page.at(-1);
        if (page.length < 2) break;
      }
      assert.deepEqual(seen, ["e", "d", "c", "b", "a"]);
    });

    test("a config is replaced only by who read its last version", async (context) => {
      const store = await open(context);
      const { session: created } = await store.createSession(session("one"));
      assert.equal(await store.updateConfig("one", created.configVersion, bytes("second"), 5000), true);
      assert.equal(await store.updateConfig("one", created.configVersion, bytes("third"), 6000), false);
      const read = await store.readSession("default", "one");
      assert.equal(text(read?.config ?? bytes("")), "second");
      assert.equal(read?.updatedMs, 5000);
    });

    test("the inbox keeps the order of arrival and takes a key once", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const sent = await Promise.all(["b", "a", "c"].map((key) => store.send(entry("one", key))));
      assert.deepEqual(
        sent.map((each) => (typeof each === "object" ? each.inserted : each)),
        [true, true, true],
      );
      const again = await store.send(entry("one", "a", { turnId: "turn-new", hash: "hash of other" }));
      assert.deepEqual(again, {
        inserted: false,
        turnId: "turn-a",
        hash: "hash of a",
        firstSeq: undefined,
        headSeq: 0,
      });
      assert.deepEqual(
        (await store.readInbox("one")).map(({ key }) => key),
        ["b", "a", "c"],
      );
      assert.equal((await store.readSession("default", "one"))?.waitingTurns, 3);
      assert.equal(await store.send(entry("none", "a")), undefined);
    });

    test("a command is read while it waits, with the config as it is then", async (context) => {
      const store = await open(context);
      const { session: created } = await store.createSession(session("one"));
      await store.send(entry("one", "a"));
      await store.updateConfig("one", created.configVersion, bytes("newer"), 5000);
      const command = await store.readCommand("one", "a");
      assert.deepEqual(
        [command?.body, command?.config].map((body) => text(body ?? bytes(""))),
        ["body of a", "newer"],
      );
      await append(store, "one", await claimed(store, "one"), ["turn-started"], { takenKeys: ["a"] });
      assert.equal(await store.readCommand("one", "a"), undefined);
    });

    test("an inbox that is full takes nothing more", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const sent = await Promise.all(["a", "b", "c"].map((key) => store.send(entry("one", key, { waitingLimit: 2 }))));
      assert.equal(sent[2], "full");
      const cancel = await store.send(entry("one", "x", { kind: "cancel", waitingLimit: 2 }));
      assert.notEqual(cancel, "full", "commands of another kind are counted by themselves");
    });

    test("one owner at a time; each claim has a new epoch and token", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      await store.send(entry("one", "a"));
      assert.deepEqual(await store.runnableSessions(10), ["one"]);
      const claims = (await Promise.all([1, 2, 3].map(() => store.claim("one")))).filter(
        (claim) => claim !== undefined,
      );
      assert.equal(claims.length, 1);
      assert.deepEqual(await store.runnableSessions(10), []);
      const [first] = claims;
      assert.ok(first !== undefined);
      assert.equal(await store.release("one", first.fence, false), true, "a command waits");
      const second = await claimed(store, "one");
      assert.ok(second.fence.epoch > first.fence.epoch);
      assert.notEqual(second.fence.token, first.fence.token);
      assert.equal(second.previousToken, first.fence.token);
      assert.equal(second.tenant, "default");
      assert.equal(await store.claim("none"), undefined);
    });

    test("who was fenced writes nothing", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const old = await claimed(store, "one");
      await store.release("one", old.fence, false);
      const now = await claimed(store, "one");
      const appended = await Promise.all([
        append(store, "one", old, ["old"]),
        append(store, "one", now, ["new"]),
        append(store, "one", { ...now, fence: { ...now.fence, token: "guessed" } }, ["guessed"]),
        append(store, "one", { ...now, fence: { ...now.fence, epoch: now.fence.epoch + 1 } }, ["ahead"]),
      ]);
      assert.deepEqual(appended, [undefined, { baseSeq: 1 }, undefined, undefined]);
      assert.deepEqual(await logOf(store, "one"), ["1 new"]);
      assert.equal(await store.release("one", old.fence, true), false, "who was fenced releases nothing");
      assert.deepEqual(await append(store, "one", now, ["more"]), { baseSeq: 2 });
    });

    test("events are numbered without a gap and read by cursor", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      await store.createSession(session("two"));
      const one = await claimed(store, "one");
      const two = await claimed(store, "two");
      await Promise.all([
        append(store, "one", one, ["a", "b"]),
        append(store, "two", two, ["x"]),
        append(store, "one", one, ["c"]),
      ]);
      assert.deepEqual(await logOf(store, "one"), ["1 a", "2 b", "3 c"]);
      assert.deepEqual(await logOf(store, "two"), ["1 x"]);
      assert.deepEqual(await logOf(store, "one", 1, 1), ["2 b"]);
      assert.deepEqual(await logOf(store, "one", 3), []);
      assert.deepEqual(await logOf(store, "one", 0, 100, 1), ["1 a"], "a page is bounded in bytes, and never empty");
      assert.equal((await store.readSession("default", "one"))?.headSeq, 3);
    });

    test("history leaves out what a fold does not need", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const one = await claimed(store, "one");
      const kinds = ["turn-started", "block-start", "block-delta", "block-stop", "tool-output", "turn-finished"];
      await append(store, "one", one, kinds);
      assert.deepEqual(
        (await store.readHistory("one", 0, 100)).map(({ seq, body }) => `${seq} ${text(body)}`),
        ["1 turn-started", "4 block-stop", "6 turn-finished"],
      );
    });

    test("what an append says besides its events is committed with them", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      await store.send(entry("one", "a"));
      const claim = await claimed(store, "one");
      const extras = { takenKeys: ["a"], blobs: [{ digest: "d1", body: bytes("large") }], summary: bytes("noted") };
      await append(store, "one", claim, ["turn-started"], extras);
      assert.deepEqual(await store.readInbox("one"), []);
      assert.equal(text((await store.readBlob("one", "d1")) ?? bytes("")), "large");
      assert.equal(await store.readBlob("one", "d2"), undefined);
      const read = await store.readSession("default", "one");
      assert.equal(text(read?.summary ?? bytes("")), "noted");
      assert.equal(read?.waitingTurns, 0);
      const again = await store.send(entry("one", "a"));
      assert.deepEqual(again, { inserted: false, turnId: "turn-a", hash: "hash of a", firstSeq: 1, headSeq: 1 });
      assert.equal(await store.release("one", claim.fence, false), false, "nothing waits");
      assert.deepEqual(await store.runnableSessions(10), []);
    });

    test("an unfinished turn keeps its session runnable", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const claim = await claimed(store, "one");
      assert.equal(await store.release("one", claim.fence, true), true);
      assert.deepEqual(await store.runnableSessions(10), ["one"]);
    });

    test("a parked session is woken by a command, or looked at when its time has come", async (context) => {
      const store = await open(context);
      for (const id of ["one", "two", "three"]) await store.createSession(session(id));
      assert.equal(await store.park("one", (await claimed(store, "one")).fence, 7000, []), false);
      assert.equal(await store.park("two", (await claimed(store, "two")).fence, 6000, []), false);
      await claimed(store, "three");
      assert.deepEqual(await store.runnableSessions(10), []);
      const parked = [
        { sessionId: "two", wakeAtMs: 6000 },
        { sessionId: "one", wakeAtMs: 7000 },
      ];
      assert.deepEqual(await store.parkedSessions(10), parked);
      assert.deepEqual(await store.parkedSessions(1), parked.slice(0, 1));

      await store.send(entry("two", "change", { kind: "change" }));
      assert.deepEqual(await store.runnableSessions(10), ["two"]);
      assert.deepEqual(
        (await store.readInbox("two")).map(({ key, kind }) => [key, kind]),
        [["change", "change"]],
      );
      assert.equal(await store.park("two", (await claimed(store, "two")).fence, 6000, ["change"]), false);

      await store.send(entry("one", "answer", { kind: "answer" }));
      assert.deepEqual(await store.runnableSessions(10), ["one"]);
      assert.deepEqual(
        (await store.readInbox("one")).map(({ key, kind }) => [key, kind]),
        [["answer", "answer"]],
      );
      const again = await claimed(store, "one");
      assert.deepEqual(await store.parkedSessions(10), parked.slice(0, 1), "who is owned is not parked");
      await store.send(entry("one", "turn"));
      assert.equal(await store.park("one", again.fence, 8000, ["answer"]), true, "a turn has come that was not seen");
      const third = await claimed(store, "one");
      assert.equal(await store.park("one", third.fence, 8000, ["answer", "turn"]), false);
      assert.equal(await store.park("one", again.fence, 9000, []), false, "who was fenced parks nothing");
      await store.release("one", (await claimed(store, "one")).fence, true);
      assert.deepEqual(await store.parkedSessions(10), parked.slice(0, 1), "who goes on is parked no more");
    });

    test("a session that is paused is looked at when its pause is over, and nobody has it before", async (context) => {
      const store = await open(context);
      for (const id of ["paused", "parked", "free"]) await store.createSession(session(id));
      const beforeMs = Date.now();
      await store.release("paused", (await claimed(store, "paused")).fence, true, 60_000);
      await store.release("free", (await claimed(store, "free")).fence, true);
      await store.park("parked", (await claimed(store, "parked")).fence, 7000, []);
      assert.equal(await store.claim("paused"), undefined);
      assert.deepEqual(await store.runnableSessions(10), ["free"]);
      const [parked, paused, ...others] = await store.parkedSessions(10);
      assert.deepEqual([parked, others], [{ sessionId: "parked", wakeAtMs: 7000 }, []]);
      assert.equal(paused?.sessionId, "paused");
      const pauseMs = (paused?.wakeAtMs ?? 0) - beforeMs;
      assert.ok(pauseMs > 55_000 && pauseMs < 90_000, `${pauseMs} ms`);
    });

    test("sessions that wait for an answer are listed by how long they wait", async (context) => {
      const store = await open(context);
      const waits = async (id: string, since: number | null | undefined, tenant = "default") => {
        await store.createSession(session(id, { tenant }));
        const claim = await claimed(store, id);
        const note = { summary: bytes(`summary of ${id}`), ...(since === undefined ? {} : { waitingSinceMs: since }) };
        await append(store, id, claim, ["request-opened"], note);
        await append(store, id, claim, ["tool-finished"]);
        return claim;
      };
      await waits("b", 500);
      const a = await waits("a", 500);
      await waits("c", 400);
      await waits("never", undefined);
      await waits("foreign", 100, "another");
      const list = async (after?: { waitingSinceMs: number; sessionId: string }, limit = 10) =>
        (await store.listWaiting("default", after, limit)).map(
          ({ sessionId, waitingSinceMs, summary }) => `${sessionId} ${waitingSinceMs} ${text(summary)}`,
        );
      assert.deepEqual(await list(), ["c 400 summary of c", "a 500 summary of a", "b 500 summary of b"]);
      assert.deepEqual(await list(undefined, 1), ["c 400 summary of c"]);
      assert.deepEqual(await list({ waitingSinceMs: 500, sessionId: "a" }), ["b 500 summary of b"]);
      await append(store, "a", a, ["request-resolved"], { waitingSinceMs: null });
      assert.deepEqual(await list(), ["c 400 summary of c", "b 500 summary of b"]);
      await store.deleteSession("default", "c");
      assert.deepEqual(await list(), ["b 500 summary of b"]);
    });

    test("a fork has the beginning of the log and goes its own way", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const one = await claimed(store, "one");
      await append(store, "one", one, ["a", "b", "c"], { blobs: [{ digest: "d1", body: bytes("large") }] });
      const forked = await store.forkSession("one", 2, session("two", { parentId: "one", parentSeq: 2 }));
      assert.equal(forked?.created, true);
      const two = await claimed(store, "two");
      assert.deepEqual(await append(store, "two", two, ["mine"]), { baseSeq: 3 });
      assert.deepEqual(await logOf(store, "two"), ["1 a", "2 b", "3 mine"]);
      assert.deepEqual(await logOf(store, "one"), ["1 a", "2 b", "3 c"]);
      assert.equal(text((await store.readBlob("two", "d1")) ?? bytes("")), "large");
      const taken = await store.forkSession("one", 1, session("two"));
      assert.equal(taken?.created, false);
      await store.deleteSession("default", "one");
      assert.equal(await store.forkSession("one", 1, session("three")), undefined, "the parent is gone");
    });

    test("a deleted session is gone with all of it, and its owner is fenced", async (context) => {
      const store = await open(context);
      await store.createSession(session("one", { blobs: [{ digest: "d1", body: bytes("large") }] }));
      await store.send(entry("one", "a"));
      const claim = await claimed(store, "one");
      await append(store, "one", claim, ["a"]);
      assert.equal(await store.deleteSession("default", "one"), true);
      assert.equal(await append(store, "one", claim, ["b"]), undefined);
      assert.deepEqual(await logOf(store, "one"), []);
      assert.deepEqual(await store.readInbox("one"), []);
      assert.equal(await store.readBlob("one", "d1"), undefined);
      assert.equal(await store.deleteSession("default", "one"), false);
    });

    test("bytes come back as they were", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const claim = await claimed(store, "one");
      const body = Uint8Array.from({ length: 70_000 }, (_, position) => position % 256);
      await store.append({ sessionId: "one", fence: claim.fence, events: [{ kind: "k", body }], turnId: "", atMs: 1 });
      const [event] = await store.readEvents("one", 0, 10, 10);
      assert.deepEqual(Uint8Array.from(event?.body ?? []), body);
    });

    test("an append that does not go where its owner believes the log ends writes nothing", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const claim = await claimed(store, "one");
      assert.deepEqual(await append(store, "one", claim, ["a"], { firstSeq: 1 }), { baseSeq: 1 });
      assert.equal(await append(store, "one", claim, ["c"], { firstSeq: 3 }), undefined);
      assert.deepEqual(await append(store, "one", claim, ["b"], { firstSeq: 2 }), { baseSeq: 2 });
    });

    test("a session that was given up with a pause is left alone for that time; a cancel ends the pause", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      await store.send(entry("one", "a"));
      const claim = await claimed(store, "one");
      await store.release("one", claim.fence, true, 600_000);
      assert.deepEqual(await store.runnableSessions(10), []);
      assert.equal(await store.claim("one"), undefined);
      assert.equal((await store.readSession("default", "one"))?.heldBack, false);
      await store.send(entry("one", "x", { kind: "cancel" }));
      assert.deepEqual(await store.runnableSessions(10), ["one"]);
      assert.notEqual(await store.claim("one"), undefined);
    });

    const logged = ["turn-started", "block-start", "block-delta 1", "block-delta 2", "block-stop", "tool-started"];
    const ended = ["tool-output", "tool-finished", "turn-finished"];
    const pruned = async (store: Store, untilMs: number, limit = 100) => {
      let removed = 0;
      for (let calls = 0; calls < 50; calls++) {
        const done = await store.pruneDeltas(untilMs, limit);
        assert.ok(done.removed <= limit);
        removed += done.removed;
        if (!done.more) return removed;
      }
      return assert.fail("pruning does not come to an end");
    };

    test("deltas of turns that finished are pruned, and all at once out of reach", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      await store.createSession(session("two"));
      const one = await claimed(store, "one");
      await append(store, "one", one, [...logged, ...ended]);
      await append(store, "one", one, ["turn-started", "block-start", "turn-finished"], { atMs: 5000 });
      await append(store, "one", one, ["turn-started", "block-start", "block-delta"]);
      await append(store, "two", await claimed(store, "two"), logged);
      assert.deepEqual(await store.pruneDeltas(2999, 100), { removed: 0, more: false });
      const whole = await logOf(store, "one");
      assert.equal(whole.length, 15);

      const kept = ["1 turn-started", "5 block-stop", "6 tool-started", "8 tool-finished", "9 turn-finished"];
      assert.deepEqual(await store.pruneDeltas(3000, 1), { removed: 0, more: true });
      assert.deepEqual(await logOf(store, "one"), [...kept, ...whole.slice(9)]);
      assert.deepEqual(await logOf(store, "one", 3, 2), ["5 block-stop", "6 tool-started"]);
      assert.equal((await store.readSession("default", "one"))?.prunedSeq, 7);
      assert.equal(await pruned(store, 3000, 1), 4);
      assert.equal(await pruned(store, 3000), 0);
      assert.deepEqual(await logOf(store, "one"), [...kept, ...whole.slice(9)]);
      assert.equal((await store.readHistory("one", 0, 100)).length, 8);

      assert.equal(await pruned(store, 9000), 1);
      assert.equal((await store.readSession("default", "one"))?.prunedSeq, 11);
      assert.equal((await logOf(store, "one")).at(-1), "15 block-delta", "a turn that runs is left as it is");
      await append(store, "one", one, ["turn-finished"], { atMs: 9500 });
      assert.equal(await pruned(store, 9500), 2);
      assert.equal((await store.readSession("default", "two"))?.prunedSeq, 0);
      assert.equal((await logOf(store, "two")).length, logged.length);
    });

    test("two that prune at once remove what one would", async (context) => {
      const store = await open(context);
      for (const id of ["one", "two", "three"]) {
        await store.createSession(session(id));
        await append(store, id, await claimed(store, id), [...logged, ...ended]);
      }
      const removed = await Promise.all([pruned(store, 3000, 2), pruned(store, 3000, 2)]);
      assert.equal(removed[0] + removed[1], 12);
      for (const id of ["one", "two", "three"]) assert.equal((await logOf(store, id)).length, 5);
    });

    test("a fork of a pruned session knows what it lacks, and what it may prune", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      const one = await claimed(store, "one");
      await append(store, "one", one, [...logged, ...ended]);
      await append(store, "one", one, ["turn-started", "block-start", "block-stop", "turn-finished"], { atMs: 5000 });
      const forkAt = async (seq: number, id: string) => {
        await store.forkSession("one", seq, session(id));
        return [(await logOf(store, id)).length, (await store.readSession("default", id))?.prunedSeq];
      };
      await pruned(store, 3000);
      assert.deepEqual(await forkAt(13, "later"), [9, 7]);
      // Out of reach and not yet removed.
      while ((await store.readSession("default", "one"))?.prunedSeq !== 11)
        assert.ok((await store.pruneDeltas(5000, 1)).more);
      assert.deepEqual(await forkAt(13, "hidden"), [8, 11]);
      await pruned(store, 5000);
      assert.deepEqual(await forkAt(13, "both"), [8, 11]);
      assert.deepEqual(await forkAt(9, "first"), [5, 7], "the fork ends before what was pruned last");
      assert.deepEqual(await logOf(store, "later", 9), ["10 turn-started", "12 block-stop", "13 turn-finished"]);
    });

    const request = (requestId: string, more: Partial<NewRequest> = {}): NewRequest => ({
      tenant: "default",
      requestId,
      method: "Method",
      hash: "h1",
      atMs: 1000,
      ...more,
    });
    const answered = (requestId: string, answer = "answer"): AnsweredRequest => ({
      ...request(requestId),
      answer: bytes(answer),
    });
    const answerOf = async (store: Store, requestId: string, tenant = "default") => {
      const noted = await store.readRequest(tenant, requestId);
      return noted === undefined ? "none" : noted.answer === undefined ? "begun" : text(noted.answer);
    };

    test("a request is begun once, answered once, and forgotten", async (context) => {
      const store = await open(context);
      const begun = await Promise.all([1, 2, 3].map(() => store.beginRequest(request("r1", { hash: "h" }))));
      assert.equal(begun.filter((noted) => noted === undefined).length, 1);
      const noted = { method: "Method", hash: "h", answer: undefined, owner: "here" as const };
      for (const other of begun) if (other !== undefined) assert.deepEqual(other, noted);
      assert.equal(await answerOf(store, "r1", "another"), "none");
      assert.equal(await store.beginRequest(request("r1", { tenant: "another" })), undefined);
      await store.answerRequest(answered("r1"));
      await store.answerRequest(answered("r1", "later"));
      await store.answerRequest(answered("r2", "not begun"));
      assert.equal(await answerOf(store, "r1"), "answer");
      assert.equal(await answerOf(store, "r2"), "not begun");
      assert.equal(await answerOf(store, "r1", "another"), "begun");
      assert.equal(await store.pruneRequests(1000, 10), 0);
      assert.equal(await store.pruneRequests(1001, 2), 2);
      assert.equal(await store.pruneRequests(1001, 2), 1);
      assert.equal(await answerOf(store, "r1"), "none");
    });

    test("a change and the note of its request are one: both or none", async (context) => {
      const store = await open(context);
      const { session: one } = await store.createSession(session("one"));
      const updates = () => store.updateConfig("one", one.configVersion, bytes("new"), 1, answered("update"));
      // Which of two at once comes first is the store's choice.
      const once = (results: readonly unknown[]) => assert.deepEqual(new Set(results), new Set([true, "answered"]));
      once(await Promise.all([updates(), updates()]));
      assert.equal(await store.updateConfig("one", one.configVersion, bytes("x"), 1, answered("stale")), false);
      const create = () => store.createSession(session("two", { requestId: "create" }), answered("create"));
      const forked = (requestId: string) => store.forkSession("one", 0, session("three"), answered(requestId));
      const made = await Promise.all([create(), create()]);
      once(made.map((each) => (each === "answered" ? each : each.created)));
      assert.equal((await store.createSession(session("two"), answered("taken"))) !== "answered", true);
      assert.notEqual(await forked("fork"), "answered");
      assert.equal(await forked("fork"), "answered");
      assert.equal(await store.forkSession("none", 0, session("four"), answered("no parent")), undefined);
      assert.equal(await store.deleteSession("default", "two", answered("delete")), true);
      assert.equal(await store.deleteSession("default", "two", answered("delete")), "answered");
      assert.equal(await store.deleteSession("default", "two", answered("late")), false);
      assert.equal(await create(), "answered", "what was deleted since is not made again");
      for (const done of ["update", "create", "fork", "delete"]) assert.equal(await answerOf(store, done), "answer");
      for (const failed of ["stale", "taken", "no parent", "late"]) assert.equal(await answerOf(store, failed), "none");
    });

    test("a closed store refuses to write", async (context) => {
      const store = await open(context);
      await store.createSession(session("one"));
      await store.close();
      await assert.rejects(store.createSession(session("two")), /closed/);
    });
  });

  scheduleContract(name, open);
  planContract(name, open);
  memoryContract(name, open);
}
