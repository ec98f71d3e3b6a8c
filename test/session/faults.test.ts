import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { AgentError } from "../../src/chat/error.ts";
import { plainPermissions } from "../../src/chat/session-config.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import type { Store } from "../../src/log/store.ts";
import { isPruned } from "../../src/session/follow-log.ts";
import { defaultSessionLimits } from "../../src/session/run-turn.ts";
import { plainConfig } from "../../src/session/session-worker.ts";
import { Sessions } from "../../src/session/sessions.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { FunctionSets } from "../../src/tool/function-sets.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const inTime = { timeout: 30_000 };

function failsWith(code: Code) {
  return (error: unknown) => error instanceof ConnectError && error.code === code;
}

/** A function that says when it begins and never ends. */
function stuckFunction() {
  const { promise: begun, resolve } = Promise.withResolvers<void>();
  const provider: FunctionProvider = {
    source: "local",
    list: async () => [
      {
        name: "stuck",
        description: "never ends",
        parameters: '{"type":"object"}',
        source: "local",
        readOnly: true,
        timeoutMs: 30_000,
      },
    ],
    call: () => {
      resolve();
      return new Promise(() => undefined);
    },
    close: async () => undefined,
  };
  return { provider, begun };
}

describe("deleting", () => {
  test("a turn sent at the same moment ends with NOT_FOUND", inTime, async (context) => {
    const { client } = await startTestApp(context);
    for (let round = 0; round < 5; round++) {
      const sessionId = `s${round}`;
      await client.createSession({ sessionId });
      const asked = assert.rejects(client.generate({ sessionId, messages: [user("go")] }), failsWith(Code.NotFound));
      await client.deleteSession({ sessionId });
      await asked;
    }
  });

  test("a session of the same id works while a tool of the old one still ends", inTime, async (context) => {
    const { provider, begun } = stuckFunction();
    const { client, reports } = await startTestApp(context, {
      functions: [provider],
      script: "- when: { text: call }\n  tool_calls: [{ name: stuck, arguments: {} }]\n- text: hello\n",
    });
    await client.createSession({ sessionId: "again" });
    const old = client.generate({ sessionId: "again", messages: [user("call")] });
    const gone = assert.rejects(old, failsWith(Code.NotFound));
    await begun;
    await client.deleteSession({ sessionId: "again" });
    await client.createSession({ sessionId: "again" });
    const answer = await client.generate({ sessionId: "again", messages: [user("go")] });
    assert.equal(answer.message?.contentType.value, "hello");
    await gone;
    assert.equal((await client.getSession({ sessionId: "again" })).state, "idle");
    assert.deepEqual(reports, []);
  });
});

test("turns that come at once are counted before they run", inTime, async (context) => {
  const { client } = await startTestApp(context, {
    flags: { "limits.max_turns_in_flight": 2 },
    script: "- { text: hello, first_delay_ms: 300 }\n",
  });
  const ids = await Promise.all([1, 2, 3, 4, 5, 6].map(async () => (await client.createSession({})).sessionId));
  const ended = await Promise.allSettled(
    ids.map((sessionId) => client.generate({ sessionId, messages: [user("go")] })),
  );
  assert.equal(ended.filter((each) => each.status === "fulfilled").length, 2);
  for (const each of ended)
    if (each.status === "rejected") assert.ok(failsWith(Code.ResourceExhausted)(each.reason), String(each.reason));
});

test("an answer too large for an event ends its step and its turn in order", inTime, async (context) => {
  const { client } = await startTestApp(context, {
    script: `- { tool_calls: [{ name: read_file, arguments: "${"x".repeat(320 * 1024)}" }], chunk: 8000, delay_ms: 1 }\n`,
  });
  const { sessionId } = await client.createSession({});
  const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("go")] }), 1n);
  const last = chunks.at(-1)?.event;
  assert.equal(last?.case === "turnFinished" ? last.value.error?.reason : "", "PROVIDER_PROTOCOL");
});

test("an answer is never a message of the request", inTime, async (context) => {
  const { client } = await startTestApp(context);
  const earlier = { role: "assistant", contentType: { case: "content" as const, value: "earlier" } };
  const options = { budget: { maxTotalTokens: 0n } };
  const answer = await client.generate({ messages: [user("a"), earlier, user("b")], options });
  assert.equal(answer.finishReason, "budget");
  assert.notEqual(answer.message?.contentType.value, "earlier");
});

/** A store whose writes fail while `broken` says so. */
async function breakableSessions(context: { after(end: () => Promise<void>): void }) {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-test-"));
  const inner = openSqliteStore(join(folder, "codeagent.db"));
  const broken = new Set<string>();
  const tries: string[] = [];
  const store: Store = new Proxy(inner, {
    get(target, name) {
      const method: unknown = Reflect.get(target, name);
      if (typeof method !== "function") return method;
      return (...given: unknown[]) => {
        tries.push(String(name));
        return broken.has(String(name))
          ? Promise.reject(new AgentError("resource_exhausted", "no room"))
          : Reflect.apply(method, target, given);
      };
    },
  });
  let ids = 0;
  const sessions = new Sessions({
    store,
    defaultModel: "p/m",
    oneOff: { workspace: folder },
    environment: {
      models: {
        find: () => [
          {
            provider: "p",
            model: "m",
            dialect: "d",
            features: ["streaming", "tools"],
            check: () => undefined,
            refusal: () => undefined,
            withholds: () => false,
            contextWindow: async () => undefined,
            hasPrice: async () => false,
            priced: async (usage) => usage,
            async *stream() {
              yield [{ type: "text-delta", index: 0, text: "hello" }];
            },
          },
        ],
      },
      functions: new FunctionSets({ providers: [], now: Date.now }),
      permissions: { ...plainPermissions, sandbox: "none" },
      systemPrompt: "",
      profiles: new Map(),
      limits: defaultSessionLimits,
      now: Date.now,
      newId: (prefix) => `${prefix}_${++ids}`,
      report: () => undefined,
    },
  });
  context.after(async () => {
    await sessions.drain(0);
    await inner.close();
    await rm(folder, { recursive: true, force: true });
  });
  const caller = { tenant: "t", name: "n" };
  await sessions.create(caller, plainConfig(folder), "s", "");
  const start = () =>
    sessions.startTurn(caller, {
      sessionId: "s",
      messages: [{ role: "user", blocks: [{ type: "text", text: "go" }] }],
      model: "",
      options: {},
      tools: [],
      requestId: "",
    });
  return { sessions, broken, tries, start, caller };
}

test("a message of many bytes is weighed without holding up everybody else", inTime, async (context) => {
  const { client } = await startTestApp(context);
  const delays = monitorEventLoopDelay({ resolution: 10 });
  delays.enable();
  const block = { block: { case: "thinking" as const, value: { thinking: "hm", raw: new Uint8Array(12_000_000) } } };
  await client.generate({ messages: [user("a"), { role: "assistant", blocks: [block] }, user("b")] });
  delays.disable();
  assert.ok(delays.max < 1.5e9, `the loop stood still for ${Math.round(delays.max / 1e6)} ms`);
});

test("a turn cancelled just before the server died ends in order at the next start", inTime, async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-test-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const first = await startTestApp(context, {
    dataDir: folder,
    script: "- { text: abcdef, chunk: 1, delay_ms: 100 }\n",
  });
  await first.client.createSession({ sessionId: "cut" });
  let turnId = "";
  for await (const chunk of first.client.streamGenerate({ sessionId: "cut", messages: [user("go")] })) {
    turnId = chunk.turnId;
    if (chunk.event.case === "blockDelta") break;
  }
  await first.app.close(0);
  const database = new DatabaseSync(join(folder, "codeagent.db"));
  database
    .prepare(`insert into inbox (session_id, key, kind, turn_id, principal, body, hash, at)
      values ('cut', ?, 'cancel', ?, 'n', x'', '', 1)`)
    .run(`cancel:${turnId}`, turnId);
  database.close();
  const { client } = await startTestApp(context, { dataDir: folder });
  // The turn after it waits for its end.
  await client.generate({ sessionId: "cut", messages: [user("next")] });
  const log = await collect(client.subscribeSession({ sessionId: "cut" }), 1n);
  assert.deepEqual(
    log.flatMap(({ event }) => (event.case === "turnFinished" ? [event.value.finishReason] : [])),
    ["cancelled", "stop"],
  );
});

describe("a store that fails", () => {
  test("while a session is claimed: the turn that was admitted runs when it works again", inTime, async (context) => {
    const { sessions, broken, start, caller } = await breakableSessions(context);
    broken.add("claim");
    const turn = await start();
    await assert.rejects(async () => {
      for await (const _ of turn.read(new AbortController().signal));
    }, /no room/);
    broken.clear();
    const log = await sessions.subscribe(caller, "s", 0, true);
    const signal = AbortSignal.timeout(20_000);
    reading: for await (const records of log.read(signal))
      if (!isPruned(records)) for (const { event } of records) if (event.type === "turn-finished") break reading;
  });

  test("while the server shuts down: the shutdown ends", inTime, async (context) => {
    const { sessions, broken, tries, start } = await breakableSessions(context);
    broken.add("append").add("release");
    const turn = await start();
    const drained = sessions.drain(10_000);
    await assert.rejects(async () => {
      for await (const _ of turn.read(new AbortController().signal));
    }, /no room|shutting down/);
    await drained;
    const before = tries.length;
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(tries.length, before, "nothing is tried after the shutdown");
  });

  test("what no waiting mends is told to whoever asks", inTime, async (context) => {
    const folder = await mkdtemp(join(tmpdir(), "codeagent-test-"));
    context.after(() => rm(folder, { recursive: true, force: true }));
    const first = await startTestApp(context, { dataDir: folder });
    await first.client.createSession({ sessionId: "damaged" });
    await first.app.close(0);
    const database = new DatabaseSync(join(folder, "codeagent.db"));
    database.exec(`insert into inbox (session_id, key, kind, turn_id, principal, body, hash, at)
      values ('damaged', 'turn:k', 'turn', 'turn_1', 'n', x'ffffff', '', 1)`);
    database.close();
    const { client } = await startTestApp(context, { dataDir: folder });
    for (let round = 0; round < 3; round++) {
      await assert.rejects(client.generate({ sessionId: "damaged", messages: [user("go")] }), failsWith(Code.DataLoss));
    }
  });
});
