import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { ToolService, type WatchToolsResponse } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { watchTools } from "../../src/rpc/watch-tools.ts";
import type { FunctionDefinition, FunctionProvider } from "../../src/tool/function-provider.ts";
import { FunctionSets } from "../../src/tool/function-sets.ts";
import { startTestApp, user } from "../support/test-app.ts";

/** A source whose functions come and go. */
function changingFunctions(...names: string[]) {
  const definition = (name: string, description = name): FunctionDefinition => ({
    name,
    description,
    parameters: '{"type":"object"}',
    source: "local",
    readOnly: true,
    timeoutMs: 1000,
  });
  let functions = names.map((name) => definition(name));
  const listeners = new Set<() => void>();
  const provider: FunctionProvider = {
    source: "local",
    list: async () => functions,
    call: async ({ name }) => ({ success: true, output: `${name} ran` }),
    watch(onChange) {
      listeners.add(onChange);
      return () => listeners.delete(onChange);
    },
    close: async () => {},
  };
  return {
    provider,
    listeners,
    change(...changed: (string | [name: string, description: string])[]) {
      functions = changed.map((each) => (typeof each === "string" ? definition(each) : definition(...each)));
      for (const listener of listeners) listener();
    },
  };
}

async function startWatched(context: TestContext, script?: string) {
  const source = changingFunctions("one", "two");
  const options = { functions: [source.provider], ...(script === undefined ? {} : { script }) };
  const sample = await startTestApp(context, options);
  return { ...sample, source, tools: createClient(ToolService, sample.transport) };
}

/** What a frame says, in short; names of the server's own functions left out. */
function said({ event }: WatchToolsResponse) {
  assert.equal(event.case, "generation");
  const { added, removed, changed } = event.value;
  const ours = (names: readonly string[]) => names.filter((name) => ["one", "two", "three"].includes(name));
  return { added: ours(added), removed: ours(removed), changed: ours(changed) };
}

test("a watcher is told the set that holds and each change after it, until it goes", async (context) => {
  const { tools, source } = await startWatched(context);
  const stop = new AbortController();
  const frames = tools.watchTools({}, { signal: stop.signal })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await frames.next();
    assert.ok(!done);
    return value;
  };
  const first = await next();
  assert.deepEqual(said(first), { added: ["one", "two"], removed: [], changed: [] });
  source.change("one", "three");
  const second = await next();
  assert.deepEqual(said(second), { added: ["three"], removed: ["two"], changed: [] });
  source.change(["one", "another"], "three");
  const third = await next();
  assert.deepEqual(said(third), { added: [], removed: [], changed: ["one"] });
  const generations = [first, second, third].map(({ event }) =>
    event.case === "generation" ? event.value : undefined,
  );
  const numbers = generations.map((each) => each?.generation ?? 0n);
  assert.ok(numbers[0] !== undefined && numbers[1] !== undefined && numbers[0] < numbers[1]);
  const { generation, tools: listed } = await tools.listTools({});
  assert.equal(generation, numbers[2]);
  assert.equal(generations[2]?.toolCount, listed.length);

  stop.abort();
  await assert.rejects(() => frames.next());
});

test("whoever has seen a generation is told of the next one, and in silence that the stream is alive", async () => {
  const source = changingFunctions("one");
  const functions = new FunctionSets({ providers: [source.provider], now: Date.now });
  const { generation } = await functions.current("/");
  const stop = new AbortController();
  const options = { afterGeneration: generation, silenceMs: 5, signal: stop.signal };
  const frames = watchTools(functions, "/", options);
  const silence = await frames.next();
  assert.equal(silence.value?.event.case, "keepAlive");
  source.change("one", "two");
  let next = await frames.next();
  while (next.value?.event.case === "keepAlive") next = await frames.next();
  assert.ok(next.value);
  assert.deepEqual(said(next.value), { added: ["two"], removed: [], changed: [] });
  stop.abort();
  while (!(await frames.next()).done);
  functions.close();
  assert.equal(source.listeners.size, 0);
});

test("a watcher is told that the server stops", async (context) => {
  const { tools, app } = await startWatched(context);
  const frames = tools.watchTools({})[Symbol.asyncIterator]();
  await frames.next();
  const end = frames.next();
  await Promise.all([assert.rejects(end, /shutting down; come back/), app.close(0)]);
});

test("the turn after a change says what changed, and a running turn keeps its functions", async (context) => {
  const script = `
- when: { role: tool }
  text: done
- when: { text: go }
  tool_calls: [{ name: one, arguments: {} }]
- text: nothing
`;
  const { client, source } = await startWatched(context, script);
  await client.createSession({ sessionId: "watched" });
  const turn = async (content: string, onToolStart?: () => void) => {
    const events = [];
    for await (const { event } of client.streamGenerate({ sessionId: "watched", messages: [user(content)] })) {
      if (event.case === "stepFinished") onToolStart?.();
      if (event.case === "toolsChanged" || event.case === "toolFinished") events.push(event);
    }
    return events;
  };
  const [ran, ...others] = await turn("go", () => source.change("two", "three"));
  assert.ok(ran?.case === "toolFinished");
  assert.deepEqual([ran.value.result?.success, ran.value.result?.output, others.length], [true, "one ran", 0]);
  const [changed] = await turn("more");
  assert.ok(changed?.case === "toolsChanged");
  const { added, removed, changed: different } = changed.value;
  assert.deepEqual([added, removed, different], [["three"], ["one"], []]);
  assert.deepEqual(await turn("and more"), []);
});
