import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { shortName } from "../../src/tool/function-index.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { FunctionSets } from "../../src/tool/function-sets.ts";

/** A source whose functions can be changed, and that counts how often it is asked. */
function source(name: string, ...functions: string[]) {
  let listeners: (() => void)[] = [];
  const state = { functions, asked: 0 };
  const provider: FunctionProvider = {
    source: name,
    async list() {
      state.asked++;
      return state.functions.map((each) => ({
        name: each,
        description: `${each} of ${name}`,
        parameters: "{}",
        source: name,
        readOnly: true,
        timeoutMs: 1000,
      }));
    },
    call: async (call) => ({ success: true, output: `${name} ran ${call.name}` }),
    watch(onChange) {
      listeners.push(onChange);
      return () => {
        listeners = listeners.filter((each) => each !== onChange);
      };
    },
    close: async () => {},
  };
  return {
    provider,
    state,
    listening: () => listeners.length,
    change(...changed: string[]) {
      state.functions = changed;
      for (const listener of listeners) listener();
    },
  };
}

function setsOf(providers: readonly FunctionProvider[], order?: readonly string[]): FunctionSets {
  return new FunctionSets({ providers, now: () => 1, ...(order === undefined ? {} : { order }) });
}

test("only an MCP server's function has the name of one", async () => {
  const pretending = source("skill:theirs", "mcp__github__list", "mcp");
  const sets = setsOf([pretending.provider, source("mcp:github", "mcp__github__list").provider]);
  assert.deepEqual(await names(sets), [
    "skill:theirs mcp",
    "skill:theirs skill_theirs__mcp__github__list",
    "mcp:github mcp__github__list",
  ]);
});

const names = async (sets: FunctionSets, workspace = "/w") =>
  (await sets.current(workspace)).definitions.map(({ name, source }) => `${source} ${name}`);

describe("a set is composed", () => {
  const rows: [what: string, order: string[], expected: string[]][] = [
    [
      "as the providers come",
      [],
      ["local a", "local b", "skill:s skill_s__a", "skill:s z", "mcp:m mcp_m__a", "mcp:m c"],
    ],
    [
      "by the operator's order of kinds",
      ["mcp", "skill"],
      ["local a", "local b", "mcp:m mcp_m__a", "mcp:m c", "skill:s skill_s__a", "skill:s z"],
    ],
    [
      "by the operator's order of single sources",
      ["skill:other", "mcp:m", "skill"],
      ["local a", "local b", "mcp:m mcp_m__a", "mcp:m c", "skill:s skill_s__a", "skill:s z"],
    ],
    [
      "what is not named comes after what is, and what has no kind before all",
      ["local", "mcp"],
      ["local a", "local b", "mcp:m mcp_m__a", "mcp:m c", "skill:s skill_s__a", "skill:s z"],
    ],
  ];
  for (const [what, order, expected] of rows) {
    test(what, async () => {
      const [local, skill, mcp] = [source("local", "b", "a"), source("skill:s", "z", "a"), source("mcp:m", "c", "a")];
      assert.deepEqual(await names(setsOf([local.provider, skill.provider, mcp.provider], order)), expected);
    });
  }

  test("a function with a qualified name runs under its own", async () => {
    const [local, skill] = [source("local", "a"), source("skill:s", "a")];
    const set = await setsOf([local.provider, skill.provider]).current("/w");
    const found = set.find("skill_s__a");
    assert.deepEqual([found?.name, found?.provider, found?.definition.source], ["a", skill.provider, "skill:s"]);
    assert.deepEqual(set.renamed, [found]);
  });

  test("what goes takes nothing of another one with it, and gives its name back", async () => {
    const [local, skill] = [source("local", "a"), source("skill:s", "a")];
    const sets = setsOf([local.provider, skill.provider]);
    assert.deepEqual(await names(sets), ["local a", "skill:s skill_s__a"]);
    skill.change();
    assert.deepEqual(await names(sets), ["local a"]);
    skill.change("a");
    local.change();
    assert.deepEqual(await names(sets), ["skill:s a"]);
  });

  test("names are what model providers take, however long their sources are", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.tuple(fc.string({ unit: "grapheme", minLength: 1, maxLength: 80 }), fc.constantFrom("a", "b".repeat(64))),
          {
            minLength: 2,
            maxLength: 6,
          },
        ),
        async (given) => {
          const set = await setsOf(given.map(([from, name]) => source(from, name).provider)).current("/w");
          const all = set.definitions.map(({ name }) => name);
          assert.equal(new Set(all).size, given.length);
          for (const name of all) assert.match(name, /^[A-Za-z0-9_-]{1,64}$/);
        },
      ),
      { numRuns: 50 },
    );
    assert.equal(shortName("n".repeat(64)), "n".repeat(64));
    assert.notEqual(shortName(`${"n".repeat(70)}1`), shortName(`${"n".repeat(70)}2`));
  });
});

describe("a set holds until something changes", () => {
  test("nobody is asked again, and the same functions are the same set", async () => {
    const local = source("local", "a", "b");
    const sets = setsOf([local.provider]);
    const first = await sets.current("/w");
    assert.equal(await sets.current("/w"), first);
    assert.equal(local.state.asked, 1);
    local.change("b", "a");
    const second = await sets.current("/w");
    assert.equal(local.state.asked, 2);
    assert.deepEqual([second.digest, second.generation], [first.digest, first.generation]);
    assert.equal(JSON.stringify(second.definitions), JSON.stringify(first.definitions));
  });

  test("a change makes a new generation and is told to whoever watches, until the sets are closed", async () => {
    const local = source("local", "a", "b");
    const sets = setsOf([local.provider]);
    let told = 0;
    const stop = sets.watch("/w", () => told++);
    const before = await sets.current("/w");
    local.change("b", "c");
    const after = await sets.current("/w");
    assert.equal(told, 1);
    assert.ok(after.generation > before.generation);
    assert.deepEqual(sets.changeSince(before.digest, after), { added: ["c"], removed: ["a"], changed: [] });
    assert.equal(sets.changeSince("of another server", after), undefined);
    local.change("a", "b");
    const back = await sets.current("/w");
    assert.deepEqual([back.digest, back.generation > after.generation], [before.digest, true]);
    stop();
    local.change("a");
    assert.equal(told, 2);
    sets.close();
    assert.equal(local.listening(), 0);
  });

  test("workspaces have their own functions after those of all", async () => {
    const local = source("local", "a");
    const own = new Map([["/one", [source("skill:one", "a", "x").provider]]]);
    const none: FunctionProvider[] = [];
    let onChange = () => {};
    const sets = new FunctionSets({
      providers: [local.provider],
      now: () => 1,
      ofWorkspace: {
        providersFor: async (workspace) => own.get(workspace) ?? none,
        watch(_workspace, listener) {
          onChange = listener;
          return () => {
            onChange = () => {};
          };
        },
      },
    });
    assert.deepEqual(await names(sets, "/one"), ["local a", "skill:one skill_one__a", "skill:one x"]);
    assert.deepEqual(await names(sets, "/two"), ["local a"]);
    let told = 0;
    sets.watch("/one", () => told++);
    own.set("/one", [source("skill:one", "y").provider]);
    onChange();
    assert.equal(told, 1);
    assert.deepEqual(await names(sets, "/one"), ["local a", "skill:one y"]);
  });

  test("only so many workspaces are remembered", async () => {
    const local = source("local", "a");
    const sets = setsOf([local.provider]);
    for (let index = 0; index < 300; index++) await sets.current(`/${index}`);
    await sets.current("/299");
    assert.equal(local.state.asked, 300);
    await sets.current("/0");
    assert.equal(local.state.asked, 301);
  });
});
