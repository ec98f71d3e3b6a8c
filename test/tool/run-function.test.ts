import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import type { ToolResult } from "../../src/chat/tool-result.ts";
import { type FunctionIndex, indexFunctions } from "../../src/tool/function-index.ts";
import type { FunctionCall, FunctionContext, FunctionProvider } from "../../src/tool/function-provider.ts";
import { runFunction } from "../../src/tool/run-function.ts";

type Body = (call: FunctionCall, context: FunctionContext) => Promise<ToolResult>;

interface Fake {
  readonly name?: string;
  readonly parameters?: unknown;
  readonly timeoutMs?: number;
  readonly run?: Body;
}

function provider(source: string, fakes: readonly Fake[]): FunctionProvider {
  return {
    source,
    list: async () =>
      fakes.map((fake) => ({
        name: fake.name ?? "f",
        description: "",
        parameters: typeof fake.parameters === "string" ? fake.parameters : JSON.stringify(fake.parameters ?? {}),
        source,
        readOnly: true,
        timeoutMs: fake.timeoutMs ?? 30_000,
      })),
    call: (call, context) => {
      const fake = fakes.find((each) => (each.name ?? "f") === call.name);
      assert.ok(fake, `unplanned call of ${call.name}`);
      return (fake.run ?? echo)(call, context);
    },
    close: async () => {},
  };
}

const echo: Body = async (call) => ({ success: true, output: JSON.stringify(call.arguments) });
const index = (...fakes: Fake[]): Promise<FunctionIndex> => indexFunctions([provider("fake", fakes)]);

function context(signal: AbortSignal = new AbortController().signal): FunctionContext {
  return { sessionId: "s", turnId: "t", toolCallId: "c", workspace: "/srv/spaces/one", signal };
}

async function run(fake: Fake, argumentsText: string, limits = {}): Promise<ToolResult> {
  return runFunction(await index(fake), { name: fake.name ?? "f", argumentsText }, context(), limits);
}

const readFile = {
  type: "object",
  properties: {
    path: { type: "string", minLength: 1 },
    start_line: { type: "integer", minimum: 1 },
    mode: { enum: ["text", "hex"] },
    edits: { type: "array", items: { type: "object", properties: { old: { type: "string" } } } },
    when: { type: "string", format: "date" },
    choice: { anyOf: [{ type: "string" }, { type: "number" }] },
  },
  required: ["path"],
  additionalProperties: false,
};

describe("arguments the model can correct", () => {
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ["not JSON", '{"path": ', /not valid JSON \(.+\); send one JSON object/],
    ["an array", "[1]", /must be one JSON object; an array of 1 was given/],
    ["null", "null", /must be one JSON object; null was given/],
    ["missing", "{}", /do not fit f: "path" is missing/],
    ["blank text is no arguments", " \n", /"path" is missing/],
    ["wrong type", '{"path":"a","start_line":"7"}', /"start_line" must be integer; "7" was given/],
    ["too small", '{"path":"a","start_line":0}', /"start_line" must be >= 1; 0 was given/],
    ["unknown name", '{"path":"a","file":1}', /"file" is not an argument it has \(it has: path, start_line, /],
    ["enumeration", '{"path":"a","mode":"bin"}', /"mode" must be one of \["text","hex"\]; "bin" was given/],
    ["inside a list", '{"path":"a","edits":[{"old":1}]}', /"edits\[0\]\.old" must be string; 1 was given/],
    ["format", '{"path":"a","when":"soon"}', /"when" must match format "date"; "soon" was given/],
    [
      "choice",
      '{"path":"a","choice":[]}',
      /^the arguments do not fit f: "choice" fits none [^;]+; an array of 0 was given$/,
    ],
    ["two at once", '{"start_line":true}', /"path" is missing; "start_line" must be integer; true was given/],
    ["__proto__ is a name like others", '{"path":"a","__proto__":{"x":1}}', /"__proto__" is not an argument/],
    ["long values are shortened", `{"path":"a","mode":"${"x".repeat(5000)}"}`, /^.{1,300}$/],
    ["deep", `{"path":${"[".repeat(5000)}${"]".repeat(5000)}}`, /nested more than 64 levels/],
    ["huge", `{"path":"${"x".repeat(1024 * 1024)}"}`, /are 1048587 bytes long; at most 1048576/],
  ];
  for (const [title, text, expected] of cases) {
    test(title, async () => {
      const result = await run({ parameters: readFile }, text);
      assert.equal(result.success, false);
      assert.match(result.error ?? "", expected);
    });
  }

  test("good arguments arrive as they were written", async () => {
    const result = await run({ parameters: readFile }, '{"path":"a","start_line":2,"when":"2026-01-31"}');
    assert.equal(result.output, '{"path":"a","start_line":2,"when":"2026-01-31"}');
    assert.ok(Number.isInteger(result.durationMs));
  });

  test("__proto__ stays data and changes no prototype", async () => {
    const result = await run({}, '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}');
    assert.equal(result.output, '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}');
    assert.equal(Reflect.get({}, "polluted"), undefined);
  });

  test("an inherited name does not count as given", async () => {
    const result = await run({ parameters: { type: "object", required: ["constructor", "toString"] } }, "{}");
    assert.match(result.error ?? "", /"constructor" is missing; "toString" is missing/);
  });

  test("no schema means no arguments", async () => {
    assert.equal((await run({ parameters: "" }, "")).success, true);
    assert.match((await run({ parameters: "" }, '{"a":1}')).error ?? "", /"a" is not an argument it has \(it has none/);
  });
});

describe("schemas nobody has checked", () => {
  const cases: readonly (readonly [string, unknown, string, RegExp])[] = [
    ["not JSON", "{", "{}", /argument schema is unusable \(not JSON\)/],
    ["a list", [], "{}", /unusable \(not a JSON object\)/],
    ["reference to the network", { $ref: "http://127.0.0.1/x" }, "{}", /unusable \(refers to http:\/\/127\.0\.0\.1\/x/],
    ["reference to a file", { properties: { a: { $ref: "file:///etc/passwd" } } }, "{}", /outside itself/],
    ["unknown type", { type: "thing" }, "{}", /unusable/],
    ["bad pattern", { properties: { a: { pattern: "(" } } }, '{"a":"b"}', /unusable \(Invalid regular expression/],
    ["endless reference", { $ref: "#" }, "{}", /cannot be checked|unusable/],
    ["too large", { description: "x".repeat(256 * 1024) }, "{}", /262\d+ bytes, at most 262144/],
    ["too deep", JSON.parse(`${'{"not":'.repeat(70)}{}${"}".repeat(70)}`), "{}", /unusable \(nested more than 64/],
    [
      "a pattern that would run for years",
      { properties: { a: { type: "string", pattern: "^(a+)+$" } } },
      `{"a":"${"a".repeat(60)}b"}`,
      /took more than 150 ms to check/,
    ],
    [
      "uniqueness of a great list",
      { properties: { a: { uniqueItems: true } } },
      JSON.stringify({ a: Array.from({ length: 60_000 }, (_, i) => [i]) }),
      /took more than 150 ms to check/,
    ],
  ];
  for (const [title, parameters, text, expected] of cases) {
    test(title, { timeout: 10_000 }, async () => {
      const startMs = performance.now();
      const result = await run({ parameters }, text);
      assert.equal(result.success, false);
      assert.match(result.error ?? "", expected);
      assert.ok(performance.now() - startMs < 3000);
    });
  }

  const usable: readonly (readonly [string, unknown, string])[] = [
    ["an older draft that names itself", { $schema: "http://json-schema.org/draft-07/schema#", type: "object" }, "{}"],
    [
      "a reference to itself",
      { $defs: { s: { type: "string" } }, properties: { a: { $ref: "#/$defs/s" } } },
      '{"a":""}',
    ],
    ["a pattern without the u flag", { properties: { a: { pattern: "^[\\w-.]+$" } } }, '{"a":"b-c.d"}'],
    ["a format nobody knows", { properties: { a: { format: "colour" } } }, '{"a":"red"}'],
  ];
  for (const [title, parameters, text] of usable) {
    test(`works: ${title}`, async () => assert.equal((await run({ parameters }, text)).error, undefined));
  }
});

describe("a tool that does not exist", () => {
  const fakes = ["read_file", "list_files", "search_text"].map((name) => ({ name }));
  const cases: readonly (readonly [string, RegExp])[] = [
    [
      "readFile",
      /no tool "readFile"\. Did you mean read_file\? The tools are: .*list_files, read_file, search_text.*\./,
    ],
    ["list_file", /Did you mean list_files\?/],
    ["xyz", /no tool "xyz"\. The tools are/],
    ["__proto__", /no tool "__proto__"\. The tools are/],
    [`a\u001b[31m${"b".repeat(10_000)}`, /no tool "a␛\[31mb{1,100}"/],
  ];
  for (const [name, expected] of cases) {
    test(name.slice(0, 12), async () => {
      const result = await runFunction(await index(...fakes), { name, argumentsText: "{}" }, context());
      assert.equal(result.success, false);
      assert.match(result.error ?? "", expected);
    });
  }
  test("none at all", async () => {
    const result = await runFunction(await index(), { name: "a", argumentsText: "" }, context());
    assert.match(result.error ?? "", /The tools are: none/);
  });
});

describe("a fault in a function", () => {
  const cases: readonly (readonly [unknown, string])[] = [
    [new Error("no such file, open '/srv/spaces/one/a/b.txt'"), "f failed: no such file, open 'a/b.txt'"],
    [new Error("cannot read /etc/secret/key.pem: denied"), "f failed: cannot read <path>: denied"],
    [new Error("at file:///srv/app/src/x.ts:1"), "f failed: at <path>:1"],
    [new Error("GET https://example.org/a/b gave 500"), "f failed: GET https://example.org/a/b gave 500"],
    [new AgentError("unavailable", "the server is away"), "the server is away"],
    ["a string", "f failed: a string"],
    [undefined, "f failed"],
  ];
  for (const [thrown, expected] of cases) {
    test(expected, async () => {
      const result = await run({ run: () => Promise.reject(thrown) }, "");
      assert.deepEqual({ ...result, durationMs: 0 }, { success: false, output: "", error: expected, durationMs: 0 });
    });
  }
  test("thrown before there is a promise", async () => {
    const result = await run({ run: () => assert.fail("at once") }, "");
    assert.equal(result.error, "f failed: at once");
  });
});

describe("time", () => {
  const untilStopped: Body = (_, { signal }) =>
    new Promise((resolve) => {
      signal.addEventListener("abort", () => resolve({ success: true, output: "so far" }));
    });

  test("a function that stops when told keeps its output", { timeout: 5000 }, async () => {
    const result = await run({ timeoutMs: 20, run: untilStopped }, "");
    assert.equal(result.success, false);
    assert.equal(result.output, "so far");
    assert.equal(result.error, "f was stopped after 20 ms, the longest it may take");
    assert.ok((result.durationMs ?? 0) >= 19);
  });

  test("a function that never ends is left behind", { timeout: 5000 }, async () => {
    const result = await run({ timeoutMs: 20, run: () => new Promise(() => {}) }, "", { graceMs: 10 });
    assert.equal(result.error, "f was stopped after 20 ms, the longest it may take");
  });

  test("the caller's reason is thrown, and the function is told", { timeout: 5000 }, async () => {
    const controller = new AbortController();
    const reason = new Error("the turn was cancelled");
    let told: unknown;
    const running = runFunction(
      await index({
        run: (call, inner) => {
          queueMicrotask(() => controller.abort(reason));
          inner.signal.addEventListener("abort", () => {
            told = inner.signal.reason;
          });
          return untilStopped(call, inner);
        },
      }),
      { name: "f", argumentsText: "" },
      context(controller.signal),
    );
    await assert.rejects(running, (error) => error === reason);
    assert.equal(told, reason);
  });

  test("a call that is cancelled before it starts does not start", async () => {
    const functions = await index({ run: () => assert.fail("it ran") });
    const reason = new Error("too late");
    await assert.rejects(
      runFunction(functions, { name: "f", argumentsText: "" }, context(AbortSignal.abort(reason))),
      (error) => error === reason,
    );
  });

  test("output for people ends with the run", async () => {
    let late: FunctionContext | undefined;
    const heard: string[] = [];
    const functions = await index({
      run: async (_, inner) => {
        late = inner;
        inner.onOutput?.("stdout", "during");
        return { success: true, output: "" };
      },
    });
    await runFunction(
      functions,
      { name: "f", argumentsText: "" },
      { ...context(), onOutput: (_, text) => heard.push(text) },
    );
    late?.onOutput?.("stdout", "after");
    assert.deepEqual(heard, ["during"]);
  });
});

describe("output", () => {
  const output = (text: string, outputLimitBytes?: number) =>
    run({ run: async () => ({ success: true, output: text }) }, "", outputLimitBytes ? { outputLimitBytes } : {});

  test("three quarters of head and one quarter of tail are kept", async () => {
    const result = await output(`${"a".repeat(500)}${"b".repeat(500)}`, 100);
    assert.equal(result.output, `${"a".repeat(75)}\n[... 900 bytes left out ...]\n${"b".repeat(25)}`);
    assert.equal(result.truncated, true);
  });

  test("the default limit is 256 KiB", async () => {
    assert.equal((await output("a".repeat(256 * 1024))).truncated, undefined);
    const over = await output("a".repeat(256 * 1024 + 1));
    assert.match(over.output, /\[\.\.\. 1 bytes left out \.\.\.\]/);
  });

  const cut: readonly (readonly [string, string, number])[] = [
    ["two-byte characters", "ä".repeat(400), 101],
    ["three-byte characters", "€".repeat(400), 101],
    ["four-byte characters", "😀".repeat(400), 101],
    ["control characters", "\u0000".repeat(400), 101],
    ["lone surrogates", "\ud83d".repeat(400), 101],
    ["just above", "€".repeat(34), 101],
  ];
  for (const [title, text, limit] of cut) {
    test(`no character is halved: ${title}`, async () => {
      const result = await output(text, limit);
      const kept = result.output.replace(/\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n/, "");
      const missing = Number(/(\d+) bytes left out/.exec(result.output)?.[1]);
      assert.ok(result.output.isWellFormed());
      assert.ok(Buffer.byteLength(kept) <= limit);
      assert.ok(Buffer.byteLength(kept) > limit - 8);
      const units = kept.length / text.length;
      assert.equal(missing, Math.round(Buffer.byteLength(text) * (1 - units)));
      if (title.includes("byte")) assert.doesNotMatch(kept, /\ufffd/);
    });
  }

  test("control characters are shown, not obeyed", async () => {
    const result = await output("a\u0000b\u001b[2Jc\rd\r\ne\tf\u0085\u007f\ud800");
    assert.equal(result.output, "a␀b␛[2Jc␍d\r\ne\tf\ufffd␡\ufffd");
  });

  test("the error is bounded too", async () => {
    const result = await run(
      { run: async () => ({ success: false, output: "", error: "x\u0000".repeat(100_000) }) },
      "",
    );
    assert.equal(result.error?.length, 2048);
    assert.ok(!result.error?.includes("\u0000"));
  });
});

describe("the index", () => {
  test("sorted within a provider; the first of two keeps the name, the other gets one with its source", async () => {
    const functions = await indexFunctions([
      provider("one", [{ name: "b" }, { name: "a" }]),
      provider("two", [{ name: "a" }, { name: "c" }]),
    ]);
    assert.deepEqual(
      functions.definitions.map(({ name, source }) => `${source}/${name}`),
      ["one/a", "one/b", "two/two__a", "two/c"],
    );
    assert.equal(functions.find("a")?.provider.source, "one");
    assert.deepEqual(
      functions.renamed.map(({ definition, name }) => [definition.source, definition.name, name]),
      [["two", "two__a", "a"]],
    );
    assert.equal(functions.find("constructor"), undefined);
  });
});
