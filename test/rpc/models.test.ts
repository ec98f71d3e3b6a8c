import assert from "node:assert/strict";
import { createServer } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import {
  ListModelsResponseSchema,
  ListProvidersResponseSchema,
  ModelService,
} from "../../gen/codeagent/v1/model_service_pb.ts";
import { createProviderRegistry } from "../../src/provider/registry.ts";
import { type Answer, chunk, hello, jsonAnswer, key, startUpstream } from "../provider/upstream.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";

const september = Date.UTC(2026, 8, 25, 12);

async function startModels(context: TestContext, options: TestAppOptions = {}) {
  const app = await startTestApp(context, { now: () => september, ...options });
  return { ...app, models: createClient(ModelService, app.transport) };
}

async function refusal(call: Promise<unknown>): Promise<ConnectError> {
  const error = await call.then(
    () => assert.fail("it was not refused"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof ConnectError, String(error));
  return error;
}

async function allNames(models: Client<typeof ModelService>, request: { provider?: string; pageSize: number }) {
  const names: string[] = [];
  const sizes: number[] = [];
  let pageToken = "";
  do {
    const page = await models.listModels({ ...request, pageToken });
    names.push(...page.models.map(({ name }) => name));
    sizes.push(page.models.length);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return { names, sizes };
}

describe("ListProviders", () => {
  test("says all there is of each, in order, and no secret", async (context) => {
    const { models } = await startModels(context, {
      env: { OPENAI_API_KEY: key, OPENAI_BASE_URL: `https://user:${key}@proxy.example.org/v1/?api-key=${key}#${key}` },
    });
    const { providers } = await models.listProviders({});
    const ids = providers.map(({ id }) => id);
    assert.deepEqual(ids, [...ids].sort());
    const find = (id: string) => providers.find((provider) => provider.id === id);
    const openai = find("openai");
    assert.deepEqual(
      [openai?.dialect, openai?.configured, openai?.baseUrl, openai?.apiKeyEnv],
      ["openai-chat", true, "https://proxy.example.org/v1", "OPENAI_API_KEY"],
    );
    const anthropic = find("anthropic");
    assert.deepEqual(
      [anthropic?.dialect, anthropic?.configured, anthropic?.baseUrl, anthropic?.apiKeyEnv],
      ["anthropic-messages", false, "https://api.anthropic.com", "ANTHROPIC_API_KEY"],
    );
    const scripted = find("scripted");
    assert.deepEqual([scripted?.configured, scripted?.baseUrl, scripted?.apiKeyEnv], [true, "", ""]);
    assert.ok(providers.every(({ displayName, features }) => displayName !== "" && features.includes("streaming")));
    const shown = JSON.stringify(toJson(ListProvidersResponseSchema, await models.listProviders({})));
    assert.ok(!shown.includes(key) && !shown.includes("user"));
  });
});

describe("ListModels", () => {
  test("names each model with what it can do, reads and costs", async (context) => {
    const { models } = await startModels(context, { env: { OPENAI_API_KEY: key } });
    const found = await models.listModels({ provider: "openai", pageSize: 1000 });
    const model = found.models.find(({ id }) => id === "gpt-5.4");
    assert.ok(model !== undefined);
    const { features, ...facts } = model;
    assert.ok(features.includes("tools"));
    assert.deepEqual(toJson(ListModelsResponseSchema, { ...found, models: [{ ...facts, features: [] }] }), {
      models: [
        {
          name: "openai/gpt-5.4",
          provider: "openai",
          id: "gpt-5.4",
          displayName: "GPT-5.4",
          contextWindowTokens: "1050000",
          prices: [
            {
              inputNanoUsdPerMillionTokens: "2500000000",
              outputNanoUsdPerMillionTokens: "15000000000",
              cacheReadNanoUsdPerMillionTokens: "250000000",
            },
            {
              fromInputTokens: "272000",
              inputNanoUsdPerMillionTokens: "5000000000",
              outputNanoUsdPerMillionTokens: "22500000000",
              cacheReadNanoUsdPerMillionTokens: "500000000",
            },
          ],
          priceSource: "genai-prices 0.1.8 (2026-09-23)",
          configured: true,
        },
      ],
    });
    const o3 = found.models.find(({ id }) => id === "o3");
    assert.equal(o3?.priceTime?.seconds, BigInt(Date.UTC(2025, 5, 10) / 1000));
  });

  test("pages show each model once and in order", async (context) => {
    const { models } = await startModels(context);
    const whole = await models.listModels({ pageSize: 1000 });
    const expected = whole.models.map(({ name }) => name);
    assert.deepEqual(expected, [...expected].sort());
    assert.ok(expected.length > 100);
    const { names, sizes } = await allNames(models, { pageSize: 7 });
    assert.deepEqual(names, expected);
    assert.ok(sizes.slice(0, -1).every((size) => size === 7));
    assert.equal((await models.listModels({})).models.length, 100);
  });

  test("a page of just the rest is the last", async (context) => {
    const { models } = await startModels(context);
    const count = (await models.listModels({ provider: "kimi" })).models.length;
    const page = await models.listModels({ provider: "kimi", pageSize: count });
    assert.deepEqual([page.models.length, page.nextPageToken], [count, ""]);
  });

  test("those of providers that are not configured are left out on request", async (context) => {
    const { models } = await startModels(context, { env: { ANTHROPIC_API_KEY: key } });
    const { models: found } = await models.listModels({ configuredOnly: true, pageSize: 1000 });
    assert.deepEqual(
      new Set(found.map(({ provider, configured }) => `${provider} ${configured}`)),
      new Set(["anthropic true"]),
    );
    const { models: all } = await models.listModels({ pageSize: 1000 });
    assert.ok(all.some(({ provider, configured }) => provider === "openai" && !configured));
  });

  test("models that the operator prices are among them, whoever has them", async (context) => {
    const { models } = await startModels(context, {
      files: { "prices.yaml": "forward/my/own: { input: 0.1, output: 2, context_window: 5000, max_output: 99 }" },
      flags: { "prices.file": "workspace/prices.yaml" },
    });
    const { models: found } = await models.listModels({ provider: "forward" });
    assert.deepEqual(
      found.map(({ name, contextWindowTokens, maxOutputTokens, priceSource, prices }) => [
        name,
        contextWindowTokens,
        maxOutputTokens,
        priceSource,
        prices[0]?.inputNanoUsdPerMillionTokens,
      ]),
      [["forward/my/own", 5000n, 99n, "prices file", 100_000_000n]],
    );
  });

  test("a prices file that is wrong does not let the server start", async (context) => {
    const start = startTestApp(context, {
      files: { "prices.yaml": "forward/x: { input: -1, output: 2 }" },
      flags: { "prices.file": "workspace/prices.yaml" },
    });
    await assert.rejects(start, /^Error: prices\.file: .*prices\.yaml: forward\/x\.input: dollars per million/);
  });

  test("speaks Connect and gRPC-Web as well", async (context) => {
    const { app } = await startModels(context);
    for (const create of [createConnectTransport, createGrpcWebTransport]) {
      const client = createClient(ModelService, create({ baseUrl: app.url, httpVersion: "1.1" }));
      assert.equal((await client.listModels({ pageSize: 3 })).models.length, 3);
    }
  });

  const refused: readonly { name: string; request: object; code: Code; sentence: RegExp }[] = [
    {
      name: "a provider nobody knows",
      request: { provider: "nobody" },
      code: Code.NotFound,
      sentence: /^there is no provider "nobody"; the providers are .*openai/,
    },
    {
      name: "a page too large",
      request: { pageSize: 1001 },
      code: Code.InvalidArgument,
      sentence: /^page_size: is 1001/,
    },
    {
      name: "a token of another list",
      request: { pageToken: "WzFd" },
      code: Code.InvalidArgument,
      sentence: /^page_token/,
    },
    {
      name: "a token with too much in it",
      request: { pageToken: "WyJhIiwxXQ" },
      code: Code.InvalidArgument,
      sentence: /^page_token/,
    },
    { name: "no token at all", request: { pageToken: "%%" }, code: Code.InvalidArgument, sentence: /^page_token/ },
  ];
  for (const { name, request, code, sentence } of refused) {
    test(`refuses ${name}`, async (context) => {
      const { models } = await startModels(context);
      const error = await refusal(models.listModels(request));
      assert.equal(error.code, code);
      assert.match(error.rawMessage, sentence);
    });
  }
});

/** An address that nobody listens at. */
async function deadPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  await new Promise<void>((closed) => server.close(() => closed()));
  return address.port;
}

const error = (message: string) => ({ error: { message, type: "some_error" } });
const hangs: Answer = () => {};
const hangsInBody: Answer = (_, response) =>
  void response.writeHead(200, { "content-type": "application/json" }).write("{");

interface Check {
  readonly name: string;
  readonly answer: Answer;
  readonly timeoutMs?: bigint;
  /** Without a model and with one. */
  readonly list: readonly [state: string, status: number | undefined, message: RegExp];
  readonly word: readonly [state: string, status: number | undefined, message: RegExp];
}

const ok = jsonAnswer(200, { object: "list", data: [{ id: "one" }, { id: "two" }] });
const answers: readonly Check[] = [
  {
    name: "401 with the key in its words",
    answer: jsonAnswer(401, error(`Incorrect API key provided: ${key}`)),
    list: [
      "unauthorized",
      401,
      /^forward answered HTTP 401: Incorrect API key provided: \*\*\* \(check FORWARD_API_KEY\)$/,
    ],
    word: [
      "unauthorized",
      401,
      /^forward answered HTTP 401: Incorrect API key provided: \*\*\* \(check FORWARD_API_KEY\)$/,
    ],
  },
  {
    name: "403",
    answer: jsonAnswer(403, error("not for you")),
    list: ["unauthorized", 403, /not for you/],
    word: ["unauthorized", 403, /not for you/],
  },
  {
    name: "404",
    answer: jsonAnswer(404, error("no such thing")),
    list: ["ok", 404, /^forward answers, and has no list of models; name a model to see whether it takes the key$/],
    word: ["model_not_found", 404, /no such thing; check the model's name and the base URL$/],
  },
  {
    name: "429 that asks to come back at once",
    answer: jsonAnswer(429, error("slow down"), { "retry-after": "0" }),
    list: ["rate_limited", 429, /slow down; try again later$/],
    word: ["rate_limited", 429, /slow down; try again later$/],
  },
  {
    name: "500",
    answer: jsonAnswer(500, error("on fire")),
    list: ["failed", 500, /on fire/],
    word: ["failed", 500, /on fire/],
  },
  {
    name: "400",
    answer: jsonAnswer(400, error("no")),
    list: ["failed", 400, /HTTP 400: no$/],
    word: ["failed", 400, /HTTP 400: no$/],
  },
  {
    name: "a redirect",
    answer: (_, response) => response.writeHead(302, { location: "/elsewhere" }).end(),
    list: ["failed", 302, /a redirect, which is not followed; check its base URL$/],
    word: ["failed", 302, /a redirect, which is not followed; check its base URL$/],
  },
  {
    name: "a page for people",
    answer: (_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>hi</html>"),
    list: ["failed", 200, /no list of models; check its base URL$/],
    word: ["failed", 200, /a page of text\/html/],
  },
  {
    name: "a connection that breaks",
    answer: (request) => request.socket.destroy(),
    list: ["unreachable", undefined, /cannot be reached/],
    word: ["unreachable", undefined, /cannot be reached/],
  },
  {
    name: "no HTTP",
    answer: (request) => request.socket.end("hello there\r\n\r\n"),
    list: ["failed", undefined, /something that is not HTTP \(HPE_/],
    word: ["failed", undefined, /something that is not HTTP \(HPE_/],
  },
  {
    name: "nothing in time",
    answer: hangs,
    timeoutMs: 200n,
    list: ["unreachable", undefined, /^forward did not answer within 200 ms$/],
    word: ["unreachable", undefined, /^forward did not answer within 200 ms$/],
  },
  {
    name: "half an answer in time",
    answer: hangsInBody,
    timeoutMs: 200n,
    list: ["unreachable", 200, /^forward did not answer within 200 ms$/],
    word: ["unreachable", 200, /^forward did not answer within 200 ms$/],
  },
];

describe("ValidateProvider", { concurrency: 2 }, () => {
  for (const { name, answer, timeoutMs, list, word } of answers) {
    for (const [what, model, [state, status, message]] of [
      ["asked for its models", "", list],
      ["asked for a word", "forward/some/model", word],
    ] as const) {
      test(`${what}: ${name}`, async (context) => {
        const upstream = await startUpstream(context, [answer]);
        const { models } = await startModels(context, {
          env: { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: key },
        });
        const request = { provider: "forward", model, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
        const found = await models.validateProvider(request);
        assert.deepEqual([found.valid, found.state, found.upstreamStatus], [state === "ok", state, status]);
        assert.match(found.message, message);
        assert.ok(!found.message.includes(key));
        assert.ok(found.latencyMs !== undefined);
        assert.equal(upstream.requests.length, 1, "it is asked once");
      });
    }
  }

  test("an OpenAI-like provider is asked for its list with its key", async (context) => {
    const upstream = await startUpstream(context, [ok]);
    const { models } = await startModels(context, { env: { DEEPSEEK_BASE_URL: upstream.url, DEEPSEEK_API_KEY: key } });
    const found = await models.validateProvider({ provider: "deepseek" });
    assert.deepEqual([found.valid, found.state, found.upstreamStatus], [true, "ok", 200]);
    assert.equal(found.message, "deepseek answers and lists 2 models");
    const [{ url, headers, body } = assert.fail("it was not asked")] = upstream.requests;
    assert.deepEqual([url, headers.authorization, body], ["/v1/models", `Bearer ${key}`, ""]);
  });

  test("Anthropic is asked in its own way", async (context) => {
    const upstream = await startUpstream(context, [jsonAnswer(200, { data: [{ id: "claude" }], has_more: false })]);
    const env = { ANTHROPIC_BASE_URL: upstream.url.replace(/\/v1$/, ""), ANTHROPIC_API_KEY: key };
    const { models } = await startModels(context, { env });
    const found = await models.validateProvider({ provider: "anthropic" });
    assert.equal(found.message, "anthropic answers and lists 1 model");
    const [{ url, headers } = assert.fail("it was not asked")] = upstream.requests;
    assert.deepEqual(
      [url, headers["x-api-key"], headers["anthropic-version"], headers.authorization],
      ["/v1/models", key, "2023-06-01", undefined],
    );
  });

  test("a model is asked for a word of a few tokens", async (context) => {
    const upstream = await startUpstream(context, [hello]);
    const { models } = await startModels(context, { env: { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: key } });
    const found = await models.validateProvider({ provider: "forward", model: "forward/some/model" });
    assert.deepEqual([found.valid, found.message], [true, "forward answers with the model some/model"]);
    const [{ url, body } = assert.fail("it was not asked")] = upstream.requests;
    const asked: unknown = JSON.parse(body);
    assert.ok(typeof asked === "object" && asked !== null && "model" in asked && "max_tokens" in asked);
    assert.deepEqual([url, asked.model, asked.max_tokens], ["/v1/chat/completions", "some/model", 16]);
  });

  test("an answer that breaks off in the middle is no sign of health", async (context) => {
    const half: Answer = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk({ content: "Hel" }), () => response.destroy());
    };
    const upstream = await startUpstream(context, [half]);
    const { models } = await startModels(context, { env: { FORWARD_BASE_URL: upstream.url } });
    const found = await models.validateProvider({ provider: "forward", model: "forward/m" });
    assert.deepEqual([found.state, found.upstreamStatus], ["failed", 200]);
  });

  test("nobody listens", async (context) => {
    const port = await deadPort();
    const { models } = await startModels(context, {
      env: { FORWARD_BASE_URL: `http://user:${key}@127.0.0.1:${port}/v1?k=${key}` },
    });
    for (const model of ["", "forward/m"]) {
      const found = await models.validateProvider({ provider: "forward", model });
      assert.equal(found.state, "unreachable");
      assert.equal(found.upstreamStatus, undefined);
      assert.equal(found.message, `forward at 127.0.0.1:${port} cannot be reached (ECONNREFUSED)`);
    }
  });

  test("what is not configured is not asked", async (context) => {
    const { models } = await startModels(context);
    const found = await models.validateProvider({ provider: "openai" });
    assert.deepEqual(
      [found.valid, found.state, found.message, found.latencyMs, found.upstreamStatus],
      [false, "not_configured", "the provider openai has no key; set OPENAI_API_KEY", undefined, undefined],
    );
  });

  test("a script always answers", async (context) => {
    const { models } = await startModels(context);
    const found = await models.validateProvider({ provider: "scripted", model: "scripted/x" });
    assert.deepEqual([found.valid, found.state, found.latencyMs], [true, "ok", undefined]);
  });

  test("the caller's hanging up ends the question", async (context) => {
    const { promise: asked, resolve: onAsked } = Promise.withResolvers<void>();
    const { promise: ended, resolve: onEnded } = Promise.withResolvers<void>();
    const upstream = await startUpstream(context, [
      (request) => {
        request.socket.once("close", onEnded);
        onAsked();
      },
    ]);
    const { models } = await startModels(context, { env: { FORWARD_BASE_URL: upstream.url } });
    const leave = new AbortController();
    const call = refusal(
      models.validateProvider({ provider: "forward", timeoutMs: 60_000n }, { signal: leave.signal }),
    );
    await asked;
    leave.abort();
    assert.equal((await call).code, Code.Canceled);
    await ended;
  });

  test("the time it took is told by the clock it is given", async (context) => {
    let nowMs = 1000;
    const upstream = await startUpstream(context, [
      (request, response, body) => {
        nowMs += 1234;
        ok(request, response, body);
      },
    ]);
    const registry = createProviderRegistry({ env: { FORWARD_BASE_URL: upstream.url }, now: () => nowMs });
    context.after(() => registry.close());
    const found = await registry.validate("forward", "", { signal: new AbortController().signal, timeoutMs: 5000 });
    assert.deepEqual([found.state, found.latencyMs], ["ok", 1234]);
  });

  test("an endless list is cut off", async (context) => {
    const endless: Answer = (_, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      const piece = Buffer.alloc(1024 * 1024, " ");
      const more = () => {
        while (!response.destroyed && response.write(piece));
        if (!response.destroyed) response.once("drain", more);
      };
      more();
    };
    const upstream = await startUpstream(context, [endless]);
    const { models } = await startModels(context, { env: { FORWARD_BASE_URL: upstream.url } });
    const found = await models.validateProvider({ provider: "forward", timeoutMs: 30_000n });
    assert.equal(found.state, "failed");
    assert.match(found.message, /more than 16777216 bytes/);
  });

  const refused: readonly { name: string; request: object; code: Code; sentence: RegExp }[] = [
    {
      name: "a provider nobody knows",
      request: { provider: "nobody" },
      code: Code.NotFound,
      sentence: /^there is no provider "nobody"; the providers are /,
    },
    { name: "no provider", request: {}, code: Code.NotFound, sentence: /^there is no provider ""/ },
    {
      name: "a model of another provider",
      request: { provider: "forward", model: "openai/gpt-5.4" },
      code: Code.InvalidArgument,
      sentence: /^model: names no model of the provider; write forward\/model$/,
    },
    {
      name: "a provider in place of a model",
      request: { provider: "forward", model: "forward/" },
      code: Code.InvalidArgument,
      sentence: /^model: /,
    },
    {
      name: "more than a minute",
      request: { provider: "forward", timeoutMs: 60_001n },
      code: Code.InvalidArgument,
      sentence: /^timeout_ms: is 60001; from 1 to 60000 is wanted$/,
    },
    {
      name: "no time",
      request: { provider: "forward", timeoutMs: 0n },
      code: Code.InvalidArgument,
      sentence: /^timeout_ms: is 0/,
    },
  ];
  for (const { name, request, code, sentence } of refused) {
    test(`refuses ${name}`, async (context) => {
      const { models } = await startModels(context);
      const thrown = await refusal(models.validateProvider(request));
      assert.equal(thrown.code, code);
      assert.match(thrown.rawMessage, sentence);
    });
  }
});
