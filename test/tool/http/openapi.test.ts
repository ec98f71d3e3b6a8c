import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { indexFunctions } from "../../../src/tool/function-index.ts";
import { readHttpSection } from "../../../src/tool/http/http-section.ts";
import { type OpenHttpOptions, openHttpFunctions } from "../../../src/tool/http/open-http-functions.ts";
import { openApiFunctions } from "../../../src/tool/http/openapi.ts";
import { addressPolicy } from "../../../src/tool/net/address-policy.ts";
import { runFunction } from "../../../src/tool/run-function.ts";
import { json, startService } from "../net/http-service.ts";

const shopFile = fileURLToPath(new URL("fixtures/shop-3.0.yaml", import.meta.url));
const shop = readFileSync(shopFile, "utf8");
const pets = readFileSync(new URL("fixtures/pets-3.1.json", import.meta.url), "utf8");
const plain = { source: "http:shop", include: [], headers: [], timeoutMs: 1000 };

async function opened(context: Pick<TestContext, "after">, section: object, more: Partial<OpenHttpOptions> = {}) {
  const reports: string[] = [];
  const providers = await openHttpFunctions(
    [readHttpSection("shop", section, "codeagent.yaml: http.shop", (path) => path)],
    {
      policy: addressPolicy({ allow: ["127.0.0.1"] }),
      env: { SHOP_KEY: "abcdefgh" },
      report: (_level, message) => reports.push(message),
      ...more,
    },
  );
  const [provider] = providers;
  assert.ok(provider !== undefined);
  context.after(() => provider.close());
  const call = async (name: string, given: object) =>
    runFunction(
      await indexFunctions(providers),
      { name, argumentsText: JSON.stringify(given) },
      { sessionId: "s", turnId: "t", toolCallId: "c", workspace: "/srv/one", signal: new AbortController().signal },
    );
  return { provider, reports, call };
}

test("OpenAPI 3.0: what can be a function is one, and the rest is said", () => {
  const { functions, diagnostics } = openApiFunctions(shop, plain);
  const shown = functions.map(({ definition: { name, readOnly, source, description } }) => [
    name,
    readOnly,
    source,
    description,
  ]);
  assert.deepEqual(shown, [
    ["getOrder", true, "http:shop", "One order"],
    ["get_Order", false, "http:shop", "DELETE /orders/{order-id}"],
    ["order_create_v1", false, "http:shop", "POST /orders"],
    ["post_tree", false, "http:shop", "POST /tree"],
    ["login", false, "http:shop", "POST /login"],
  ]);
  const wanted = [
    /^GET \/orders\/\{order-id\}: the parameter filter is left out: filter has the style deepObject/,
    /^POST \/upload is left out: it wants a body of the type multipart\/form-data/,
    /^GET \/remote is left out: it refers to other\.yaml#\/X, outside the document/,
    /^GET \/circle is left out: its references lead in a circle/,
    /^GET \/cookie is left out: c goes into the cookie/,
    /^GET \/elsewhere is left out: it has a server of its own/,
    /^GET \/missing\/\{id\} is left out: its path has \{id\}, which is no parameter/,
    /^GET \/broken is left out: its schemas cannot be used/,
    /^GET \/a\/\.\.\/b is left out: its path has/,
  ];
  assert.equal(diagnostics.length, wanted.length, diagnostics.join("\n"));
  for (const [index, pattern] of wanted.entries()) assert.match(diagnostics[index] ?? "", pattern);
});

test("schemas of 3.0 become JSON Schema: references inlined, those in a circle kept, what is only read left out", () => {
  const { functions } = openApiFunctions(shop, plain);
  const schemaOf = (name: string): unknown =>
    JSON.parse(functions.find(({ definition }) => definition.name === name)?.definition.parameters ?? "null");
  assert.deepEqual(schemaOf("order_create_v1"), {
    type: "object",
    properties: {
      body: {
        type: "object",
        required: ["item", "count"],
        properties: {
          item: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
          count: { type: "integer", exclusiveMinimum: 0 },
          note: { type: ["string", "null"], enum: ["gift", "plain", null] },
          "x-odd": { type: "string" },
        },
      },
    },
    required: ["body"],
    additionalProperties: false,
  });
  const node = {
    type: "object",
    properties: { name: { type: "string" }, children: { type: "array", items: { $ref: "#/$defs/Node" } } },
  };
  assert.deepEqual(schemaOf("post_tree"), {
    type: "object",
    properties: { body: { $ref: "#/$defs/Node" } },
    additionalProperties: false,
    $defs: { Node: node },
  });
  const properties = schemaOf("getOrder");
  assert.deepEqual(Object.keys(Object(Object(properties).properties)), [
    "order-id",
    "expand",
    "fields",
    "X-Trace",
    "where",
  ]);
});

test("OpenAPI 3.1: types in lists, references with a description, names that are taken twice", () => {
  const { functions, diagnostics } = openApiFunctions(pets, { ...plain, baseUrl: "https://pets.example/v2/" });
  assert.deepEqual(diagnostics, []);
  const [find, add, get] = functions;
  assert.deepEqual(JSON.parse(find?.definition.parameters ?? ""), {
    type: "object",
    properties: { limit: { type: ["integer", "null"], exclusiveMinimum: 0 } },
    additionalProperties: false,
  });
  const added = JSON.parse(add?.definition.parameters ?? "");
  assert.deepEqual(Object.keys(added.properties), ["body", "body_body"]);
  assert.equal(added.properties.body_body.description, "the pet");
  assert.equal(get?.definition.name, "get_pets_id");
  assert.equal(get?.requestFor({ id: "a/b", id_query: "c&d" }).url, "https://pets.example/v2/pets/a%2Fb?id=c%26d");
});

test("only what include names, and a word for what is not there", () => {
  const include = ["find*", "GET /pets/{id}", "nothing"];
  const { functions, diagnostics } = openApiFunctions(pets, { ...plain, baseUrl: "https://pets.example", include });
  assert.deepEqual(
    functions.map(({ definition }) => definition.name),
    ["findPets", "get_pets_id"],
  );
  assert.deepEqual(diagnostics, ["nothing in it is called nothing (include)"]);
});

describe("documents that cannot be used", () => {
  const rows: readonly (readonly [text: string, message: RegExp, documentUrl?: URL])[] = [
    ["{", /can't be read/],
    ["- a\n", /no mapping/],
    ["swagger: '2.0'", /no document of OpenAPI 3\.0 or 3\.1 \(openapi: 2\.0\)/],
    ["openapi: 3.1.0\npaths: {}", /names no server; set base_url/],
    ["openapi: 3.1.0\nservers: [{ url: /v1 }]", /names no server/],
    ["openapi: 3.1.0\nservers: [{ url: 'https://u:p@x.example' }]", /names no server/],
    [
      "openapi: 3.1.0\nservers: [{ url: https://evil.example }]",
      /its server is evil\.example, not docs\.example/,
      new URL("https://docs.example/a.yaml"),
    ],
    ["a: &a [x]\nb: [*a, *a]", /can't be read: .*alias/i],
    [`{"openapi":"3.1.0","x":${"[".repeat(500)}${"]".repeat(500)}}`, /nested more than 100 levels/],
    [`openapi: 3.1.0\nx: ${"a".repeat(3_000_000)}`, /at most 2097152 are taken, more as JSON/],
  ];
  for (const [text, message, documentUrl] of rows) {
    test(JSON.stringify(text.slice(0, 60)), () => {
      const options = documentUrl === undefined ? plain : { ...plain, documentUrl };
      assert.throws(() => openApiFunctions(text, options), message);
    });
  }
});

test("a schema that grows beyond measure when it is inlined keeps its references", () => {
  const schemas = Object.fromEntries(
    Array.from({ length: 20 }, (_, level) => [
      `L${level}`,
      {
        type: "object",
        properties: {
          a: { $ref: `#/components/schemas/L${level + 1}` },
          b: { $ref: `#/components/schemas/L${level + 1}` },
        },
      },
    ]),
  );
  const document = {
    openapi: "3.1.0",
    servers: [{ url: "https://x.example" }],
    paths: {
      "/a": {
        post: {
          operationId: "a",
          requestBody: { content: { "application/json": { schema: { $ref: "#/components/schemas/L0" } } } },
        },
      },
    },
    components: { schemas: { ...schemas, L20: { type: "string" } } },
  };
  const { functions, diagnostics } = openApiFunctions(JSON.stringify(document), plain);
  assert.deepEqual(diagnostics, []);
  assert.ok((functions[0]?.definition.parameters.length ?? 0) < 5000);
});

test("requests: paths, lists, headers, JSON and forms; credentials are ours", async (context) => {
  const { url, seen } = await startService(context, ({ target }, response) => json(response, { target }));
  const key = `$\{env:SHOP_KEY}`;
  const { call } = await opened(context, { openapi: shopFile, base_url: `${url}/api`, headers: { "X-Key": key } });
  await call("getOrder", {
    "order-id": "a?b",
    expand: ["x", "y&z"],
    fields: ["p", "q,r"],
    "X-Trace": "t1",
    where: { a: [1] },
  });
  assert.equal(seen[0]?.target, "/api/orders/a%3Fb?expand=x&expand=y%26z&fields=p,q%2Cr&where=%7B%22a%22%3A%5B1%5D%7D");
  assert.deepEqual([seen[0]?.headers["x-trace"], seen[0]?.headers["x-key"]], ["t1", "abcdefgh"]);
  assert.match((await call("getOrder", { "order-id": ".." })).error ?? "", /another path/);
  assert.match((await call("getOrder", { "order-id": "1", "X-Trace": "a\r\nb" })).error ?? "", /header X-Trace/);
  await call("order_create_v1", { body: { item: { name: "n" }, count: 2 } });
  assert.deepEqual(
    [seen[1]?.body, seen[1]?.headers["content-type"]],
    ['{"item":{"name":"n"},"count":2}', "application/json"],
  );
  await call("login", { body: { user: "a&b", pin: 7 } });
  assert.deepEqual(
    [seen[2]?.body, seen[2]?.headers["content-type"]],
    ["user=a%26b&pin=7", "application/x-www-form-urlencoded"],
  );
  await call("post_tree", { body: { name: "r", children: [{ name: "c" }] } });
  assert.equal(seen.length, 4);
});

test("a document that cannot be had comes later, and watch says so", async (context) => {
  let isThere = false;
  const { url, seen } = await startService(context, ({ target }, response) => {
    if (target !== "/openapi.json") json(response, { target });
    else if (isThere) response.writeHead(200, { "content-type": "application/json" }).end(pets);
    else response.writeHead(503).end();
  });
  const { provider, reports, call } = await opened(
    context,
    { openapi: `${url}/openapi.json`, headers: { "X-Key": "abcdefgh" } },
    { startWaitMs: 30, retryMs: 5 },
  );
  assert.deepEqual(await provider.list(), []);
  const changed = Promise.withResolvers<void>();
  provider.watch?.(changed.resolve);
  isThere = true;
  await changed.promise;
  assert.deepEqual(
    (await provider.list()).map(({ name }) => name),
    ["findPets", "addPet", "get_pets_id"],
  );
  assert.match(
    reports[0] ?? "",
    /^http:shop: the document cannot be had \(127\.0\.0\.1:\d+ answered 503\); it is asked for again in 5 ms$/,
  );
  // A document is fetched without our credentials; its functions have them.
  assert.equal(seen[0]?.headers["x-key"], undefined);
  assert.equal((await call("findPets", { limit: 3 })).output, '{"target":"/pets?limit=3"}');
  assert.equal(seen.at(-1)?.headers["x-key"], "abcdefgh");
});

test("a provider that is closed asks no more", async (context) => {
  const { url, seen } = await startService(context, (_, response) => void response.writeHead(503).end());
  const { provider } = await opened(context, { openapi: `${url}/x` }, { startWaitMs: 20, retryMs: 1 });
  await provider.close();
  const before = seen.length;
  await provider.close();
  assert.equal(seen.length, before);
});

test("a file that is missing or none is said at the start", async (context) => {
  await assert.rejects(
    opened(context, { openapi: "/nowhere/x.yaml" }),
    /http\.shop\.openapi: \/nowhere\/x\.yaml can't be read/,
  );
  const section = { openapi: fileURLToPath(import.meta.url) };
  await assert.rejects(opened(context, section), /openapi\.test\.ts: it /);
});
