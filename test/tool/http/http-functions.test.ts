import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import fc from "fast-check";
import { CodeAgentService } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolService } from "../../../gen/codeagent/v1/tool_service_pb.ts";
import { startApp } from "../../../src/app.ts";
import type { ToolResult } from "../../../src/chat/tool-result.ts";
import { readConfig } from "../../../src/config.ts";
import { indexFunctions } from "../../../src/tool/function-index.ts";
import { readHttpSection } from "../../../src/tool/http/http-section.ts";
import { openHttpFunctions } from "../../../src/tool/http/open-http-functions.ts";
import { addressPolicy } from "../../../src/tool/net/address-policy.ts";
import { runFunction } from "../../../src/tool/run-function.ts";
import { json, type SeenRequest, startService } from "../net/http-service.ts";

const secret = 's3cret/token+with "odd" signs';
const env = { ITEMS_TOKEN: secret };
/** As the configuration writes it. */
const fromEnvironment = (name: string) => `$\{env:${name}}`;

/** Opens one function as an operator would write it, and calls it as a model would. */
async function opened(section: Readonly<Record<string, unknown>>, allow = ["127.0.0.1"]) {
  const sections = [readHttpSection("items", section, "codeagent.yaml: http.items", (path) => path)];
  const providers = await openHttpFunctions(sections, {
    policy: addressPolicy({ allow }),
    env,
    report: () => undefined,
  });
  const functions = await indexFunctions(providers);
  const call = (given: unknown): Promise<ToolResult> =>
    runFunction(
      functions,
      { name: "items", argumentsText: JSON.stringify(given) },
      { sessionId: "s", turnId: "t", toolCallId: "c", workspace: "/srv/one", signal: new AbortController().signal },
    );
  return { functions, call };
}

const strings = (...names: readonly string[]) => Object.fromEntries(names.map((name) => [name, { type: "string" }]));
const echo = (context: TestContext) =>
  startService(context, ({ method, target, body, headers }, response) =>
    json(response, { method, target, body, type: headers["content-type"] }),
  );

describe("arguments find their places", () => {
  type Row = readonly [name: string, section: object, given: object, wanted: Partial<SeenRequest>];
  const rows: readonly Row[] = [
    [
      "path",
      { url: "/a/{id}/b", parameters: { properties: strings("id"), required: ["id"] } },
      { id: "x y" },
      { method: "GET", target: "/a/x%20y/b" },
    ],
    [
      "the rest goes into the query",
      { url: "/a?fixed=1", parameters: { properties: { q: {}, tags: {}, no: {} } } },
      { q: "a&b=c", tags: ["x", "y"] },
      { target: "/a?fixed=1&q=a%26b%3Dc&tags=x&tags=y" },
    ],
    [
      "query of the template",
      { url: "/a?q=all:{q}&n={n}", parameters: { properties: { q: {}, n: {} } } },
      { q: "#1" },
      { target: "/a?q=all:%231" },
    ],
    [
      "named query",
      { url: "/a", query: { page: "{n}", "per page": 5 }, parameters: { properties: { n: {}, other: {} } } },
      { n: 2, other: 1 },
      { target: "/a?page=2&per%20page=5" },
    ],
    [
      "JSON by default",
      { url: "/a/{id}", method: "POST", parameters: { properties: { id: {}, n: {}, s: {} }, required: ["id"] } },
      { id: 7, n: 1.5, s: null },
      { method: "POST", target: "/a/7", body: '{"n":1.5,"s":null}' },
    ],
    [
      "a template of a body",
      {
        url: "/a",
        method: "PUT",
        body: { user: { id: "{id}", label: "no {id}" }, tags: ["{tag}", "fixed"], on: true },
        parameters: { properties: { id: {}, tag: {} } },
      },
      { id: 7 },
      { body: '{"user":{"id":7,"label":"no 7"},"tags":["fixed"],"on":true}' },
    ],
    [
      "the argument as the body",
      { url: "/a", method: "PATCH", body: "{list}", parameters: { properties: { list: {} } } },
      { list: [1, { a: 2 }] },
      { body: '[1,{"a":2}]' },
    ],
    [
      "a form",
      { url: "/a", method: "POST", body_type: "form", parameters: { properties: { a: {}, b: {} } } },
      { a: "x&y=1", b: [1, 2] },
      { body: "a=x%26y%3D1&b=1&b=2" },
    ],
  ];
  for (const [name, section, given, wanted] of rows) {
    test(name, async (context) => {
      const { url, seen } = await echo(context);
      const written = { description: "d", ...section };
      const path = "url" in section ? String(section.url) : "";
      const { call } = await opened({ ...written, url: `${url}${path}` });
      const result = await call(given);
      assert.equal(result.error, undefined);
      for (const [key, value] of Object.entries(wanted)) assert.equal({ ...seen[0] }[key as keyof SeenRequest], value);
      assert.equal(seen.length, 1);
    });
  }
});

describe("no argument changes where a request goes", () => {
  const section = (url: string) => ({
    description: "d",
    url: `${url}/v1/{a}/items/{b}.json?x={c}&y=1`,
    parameters: { properties: strings("a", "b", "c", "h"), required: ["a", "b", "c"] },
    headers: { "X-Note": "note {h}" },
  });
  const refused = [
    "..",
    ".",
    "../..",
    "%2e%2e",
    "%2E.",
    "..%2f",
    "%252e%252e",
    "..\\x",
    "/..",
    "a/../b",
    "..;x",
    "",
    "a\r\nb",
    "a\u0000",
    "%25252e%25252e",
  ];
  for (const value of refused) {
    test(`${JSON.stringify(value)} is refused in a path`, async (context) => {
      const { url, seen } = await echo(context);
      const { call } = await opened(section(url));
      const result = await call({ a: value, b: "b", c: "c", h: "h" });
      assert.match(result.error ?? "", /part of the path|another path|half a character/);
      assert.deepEqual(seen, []);
    });
  }
  const kept = [
    "?x=2",
    "#f",
    "%2f",
    "{b}",
    "a/b",
    "//evil.example",
    "@evil.example",
    ":80",
    "\\\\evil",
    "a b",
    "é",
    "%",
    "x;y",
    fromEnvironment("ITEMS_TOKEN"),
    "&y=2",
    "__proto__",
  ];
  for (const value of kept) {
    test(`${JSON.stringify(value)} stays a value`, async (context) => {
      const { url, seen, host } = await echo(context);
      const { call } = await opened(section(url));
      assert.equal((await call({ a: value, b: value, c: value, h: "h" })).success, true);
      const encoded = encodeURIComponent(value);
      assert.equal(seen[0]?.target, `/v1/${encoded}/items/${encoded}.json?x=${encoded}&y=1`);
      assert.equal(seen[0]?.headers["host"], host);
    });
  }
  for (const value of ["a\r\nX-Evil: 1", "a\nb", "é", "a\u0000b"]) {
    test(`${JSON.stringify(value)} is refused in a header`, async (context) => {
      const { url, seen } = await echo(context);
      const { call } = await opened(section(url));
      assert.match((await call({ a: "a", b: "b", c: "c", h: value })).error ?? "", /header X-Note: one line of ASCII/);
      assert.deepEqual(seen, []);
    });
  }

  test("for any texts origin, shape of the path and names of the query stay", async (context) => {
    const { url, seen, host } = await echo(context);
    const { call } = await opened(section(url));
    const anyUnit = fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code));
    const nasty = fc.constantFrom(
      "..",
      "/",
      "%2f",
      "?",
      "#",
      "&",
      "=",
      "\\",
      "@",
      ":",
      ";",
      "{a}",
      "\r\n",
      "\u0000",
      "%",
      ".",
      "a",
      "\ud800",
    );
    const text = fc.oneof(
      fc.string({ unit: anyUnit, maxLength: 12 }),
      fc.array(nasty, { maxLength: 6 }).map((parts) => parts.join("")),
    );
    await fc.assert(
      fc.asyncProperty(text, text, text, async (a, b, c) => {
        const before = seen.length;
        await call({ a, b, c });
        for (const { target, headers } of seen.slice(before)) {
          assert.equal(headers["host"], host);
          const asked = new URL(target, "http://x");
          const parts = asked.pathname.split("/");
          assert.deepEqual([parts.length, parts[1], parts[3]], [5, "v1", "items"]);
          assert.equal(decodeURIComponent(parts[2] ?? ""), a);
          assert.equal(decodeURIComponent(parts[4] ?? ""), `${b}.json`);
          assert.deepEqual([...asked.searchParams.keys()], ["x", "y"]);
          assert.equal(asked.hash, "");
        }
      }),
      // Most random texts have something that no path can hold: of so many, enough do get through.
      { numRuns: 300 },
    );
    assert.ok(seen.length > 20, `only ${seen.length} calls got through`);
  });
});

describe("what comes back", () => {
  test("the part that a pointer names", async (context) => {
    const { url } = await startService(context, (_, response) => json(response, { data: { "a/b": [1, "two"] } }));
    const at = async (response: string) => (await opened({ description: "d", url, response })).call({});
    assert.equal((await at("/data/a~1b/1")).output, "two");
    assert.equal((await at("/data")).output, '{"a/b":[1,"two"]}');
    const missing = await at("/data/none");
    assert.deepEqual(
      [missing.success, missing.error],
      [false, "the answer is not as it was expected: there is nothing at data.none"],
    );
    assert.match((await at("/constructor")).error ?? "", /nothing at constructor/);
  });

  test("a failure with its status, its body and when to ask again", async (context) => {
    const { url } = await startService(context, (_, response) => {
      response
        .writeHead(429, { "content-type": "text/plain", "retry-after": "7" })
        .end(`slow down ${"x".repeat(50_000)}`);
    });
    const result = await (await opened({ description: "d", url })).call({});
    assert.equal(result.error, "the service answered 429 Too Many Requests; it may be asked again in 7 s");
    assert.match(result.output, /^slow down x+/);
    assert.ok(result.output.length < 20_000);
  });

  test("secrets are sent and never shown, however the service writes them", async (context) => {
    const { url, seen } = await startService(context, ({ headers, target }, response) => {
      const given = String(headers["authorization"]);
      const token = given.slice("Bearer ".length);
      const text = [
        given,
        token,
        encodeURIComponent(token),
        JSON.stringify(token),
        Buffer.from(token).toString("base64"),
      ].join("\n");
      if (target === "/ok") json(response, { text });
      else response.writeHead(500, { "content-type": "text/plain" }).end(text);
    });
    for (const [path, more] of [
      ["/ok", {}],
      ["/ok", { response: "/text" }],
      ["/fail", {}],
      ["/ok", { response: "/none" }],
    ] as const) {
      const { call, functions } = await opened({
        description: "d",
        url: `${url}${path}`,
        headers: { Authorization: `Bearer ${fromEnvironment("ITEMS_TOKEN")}` },
        ...more,
      });
      const result = JSON.stringify([await call({}), functions.definitions]);
      assert.ok(result.includes("[hidden]"));
      for (const part of ["s3cret", "c2VjcmV0", "czNjcmV0"]) assert.ok(!result.includes(part), result);
    }
    assert.equal(seen[0]?.headers["authorization"], `Bearer ${secret}`);
  });

  test("credentials stay with their origin", async (context) => {
    const other = await echo(context);
    const { url } = await startService(
      context,
      (_, response) => void response.writeHead(302, { location: `${other.url}/x` }).end(),
    );
    const { call } = await opened({
      description: "d",
      url,
      headers: { Authorization: `Bearer ${fromEnvironment("ITEMS_TOKEN")}`, "X-Key": "abcdef" },
    });
    assert.equal((await call({})).success, true);
    assert.deepEqual(
      [other.seen[0]?.headers["authorization"], other.seen[0]?.headers["x-key"]],
      [undefined, undefined],
    );
    const post = await opened({ description: "d", url, method: "POST" });
    assert.match((await post.call({})).error ?? "", /redirects a POST to elsewhere/);
    assert.equal(other.seen.length, 1);
  });

  test("what is no text, and what takes too long", async (context) => {
    const { url } = await startService(context, ({ target }, response) => {
      if (target === "/image") response.writeHead(200, { "content-type": "image/png", "content-length": 3 }).end("abc");
    });
    const image = await opened({ description: "d", url: `${url}/image` });
    assert.equal((await image.call({})).error, "the service answered with image/png, 3 bytes long; only text is taken");
    const slow = await opened({ description: "d", url, timeout_ms: 80 });
    assert.match((await slow.call({})).error ?? "", /within 80 ms|stopped after 80 ms/);
  });

  test("loopback without net.allow is refused", async (context) => {
    const { url, seen } = await echo(context);
    const { call } = await opened({ description: "d", url }, []);
    assert.match((await call({})).error ?? "", /loopback address, which may not be reached/);
    assert.deepEqual(seen, []);
  });
});

describe("what an operator wrote wrong is said", () => {
  const good = {
    description: "d",
    url: "https://example.org/{id}",
    parameters: { properties: strings("id"), required: ["id"] },
  };
  const rows: readonly (readonly [section: object, message: RegExp])[] = [
    [{ url: "https://{id}.example.org/" }, /\.url: no argument may decide the host/],
    [{ url: "https://example.org:{id}/" }, /no argument may decide the host/],
    [{ url: "{id}" }, /an http: or https: URL/],
    [{ url: "file:///etc/passwd" }, /an http: or https: URL/],
    [{ url: "https://user:pass@example.org/" }, /no user and no password/],
    [{ url: "https://example.org/#x" }, /without #/],
    [{ url: "https://example.org/../{id}" }, /"\." and "\.\." are not wanted/],
    [{ url: "https://example.org/?{id}=1" }, /name of a query parameter/],
    [{ url: "https://example.org/{other}" }, /\{other\} is not one of the parameters/],
    [{ parameters: { properties: strings("id") } }, /\{id\} is a part of the path, so it has to be required/],
    [{ parameters: { type: "string" } }, /of the type object/],
    [{ parameters: { properties: { id: { type: "nonsense" } } } }, /no JSON Schema that can be used/],
    [{ method: "TRACE" }, /\.method: one of GET/],
    [{ body: {} }, /GET has no body/],
    [{ description: "" }, /\.description: a text is wanted/],
    [{ response: "data" }, /JSON Pointer/],
    [{ timeout_ms: 0 }, /whole number/],
    [{ read_only: "yes" }, /true or false/],
    [{ headers: { Host: "x" } }, /belongs to the connection/],
    [{ headers: { "a b": "x" } }, /no header's name/],
    [{ headers: { "X-Key": "line\r\nline" } }, /X-Key: a text in ASCII on one line/],
    [{ headers: { "X-Key": fromEnvironment("MISSING") } }, /headers\.X-Key: the environment has no MISSING/],
    [{ allow_private: true }, /there is no allow_private/],
    [{ url: "https://example.org:25/{id}" }, /\.url: port 25/],
  ];
  for (const [section, message] of rows) {
    test(JSON.stringify(section).slice(0, 70), async () => {
      await assert.rejects(opened({ ...good, ...section }), (error) => {
        assert.ok(error instanceof Error);
        assert.match(error.message, /^codeagent\.yaml: http\.items/);
        assert.match(error.message, message);
        return true;
      });
    });
  }
});

test("a configured function and fetch_url are tools of the service, asked for and bounded as all are", async (context) => {
  const { url, host, seen } = await startService(context, ({ target, headers }, response) =>
    json(response, { data: { target, asked: headers["x-key"] } }),
  );
  const folder = await mkdtemp(join(tmpdir(), "http-functions-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  await mkdir(join(folder, "workspace"));
  await writeFile(
    join(folder, "codeagent.yaml"),
    JSON.stringify({
      net: { allow: [host] },
      http: {
        look: {
          description: "Looks.",
          url: `${url}/look/{id}`,
          parameters: { properties: strings("id"), required: ["id"] },
          response: "/data",
          headers: { "X-Key": fromEnvironment("LOOK_KEY") },
        },
        change: { description: "Changes.", method: "POST", url: `${url}/change` },
      },
    }),
  );
  const flags = { port: 0, data_dir: join(folder, "data"), workspace: join(folder, "workspace") };
  const config = readConfig({ env: {}, workingDirectory: folder, flags });
  const app = await startApp({ config, env: { LOOK_KEY: "topsecret" }, report: () => undefined });
  context.after(() => app.close(0));
  const transport = createGrpcTransport({ baseUrl: app.url });
  const tools = createClient(ToolService, transport);
  const { sessionId } = await createClient(CodeAgentService, transport).createSession({
    permissions: { allow: ["fetch_url"] },
  });
  const listed = (await tools.listTools({ sessionId })).tools.map(({ name, source, readOnly }) => [
    name,
    source,
    readOnly,
  ]);
  for (const row of [
    ["look", "http:look", true],
    ["change", "http:change", false],
    ["fetch_url", "local", false],
  ])
    assert.ok(
      listed.some((one) => JSON.stringify(one) === JSON.stringify(row)),
      JSON.stringify(listed),
    );
  const call = async (name: string, given: object, session = sessionId) =>
    (await tools.executeTool({ sessionId: session, name, arguments: JSON.stringify(given) })).result;
  assert.equal((await call("look", { id: "a/b" }))?.output, '{"target":"/look/a%2Fb","asked":"[hidden]"}');
  assert.match((await call("fetch_url", { url }))?.output ?? "", /status: 200/);
  assert.match((await call("fetch_url", { url: "http://127.0.0.1:1234/" }))?.error ?? "", /loopback/);
  const before = seen.length;
  await assert.rejects(call("change", {}));
  await assert.rejects(call("fetch_url", { url }, ""));
  assert.equal(seen.length, before);
});
