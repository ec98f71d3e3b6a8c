import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import { says, text } from "../provider/answers.ts";
import { jsonAnswer } from "../provider/upstream.ts";
import { colourSchema, startRestService, token } from "./rest-service.ts";

// What Anthropic's own client does by itself: loops over tools, reading of JSON, tries and time limits.

test("Anthropic's client", { timeout: 30_000 }, async (context) => {
  const service = await startRestService(context, "anthropic-messages");
  const settings = { baseURL: service.url, apiKey: token, maxRetries: 0, timeout: 8000 };
  const client = new Anthropic(settings);
  const model = "scripted/test";
  const said = (content: string) => ({ role: "user", content }) as const;
  const hi = { model: service.upstreamModel, max_tokens: 1000, messages: [said("hi")] };
  const overloaded = { type: "error", error: { type: "overloaded_error", message: "Overloaded" } };

  for (const stream of [false, true])
    await context.test(`its runner of tools${stream ? ", streamed" : ""}`, async () => {
      const called: string[] = [];
      const tools = [
        betaTool({
          name: "get_weather",
          description: "The weather of a city.",
          inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
          run({ city }) {
            called.push(`weather of ${city}`);
            return `grey in ${city}`;
          },
        }),
        betaTool({
          name: "pack",
          description: "Packs.",
          inputSchema: { type: "object", properties: { things: { type: "array", items: { type: "string" } } } },
          run({ things }) {
            called.push(`pack ${things}`);
            return "packed";
          },
        }),
      ];
      const runner = client.beta.messages.toolRunner({
        model,
        max_tokens: 1000,
        messages: [said("pack")],
        tools,
        stream,
        max_iterations: 5,
      });
      const message = await runner.runUntilDone();
      assert.deepEqual(called, ["weather of Bern", "weather of Oslo", "pack umbrella,README.md"]);
      assert.deepEqual(
        message.content.map((block) => block.type === "text" && block.text),
        ["All is packed."],
      );
      assert.equal(message.stop_reason, "end_turn");
    });

  await context.test("its helper of a stream: thinking, text and blocks as they come and end", async () => {
    const stream = client.messages.stream({ model, max_tokens: 1000, messages: [said("hello")] });
    const told: string[] = [];
    const pieces = { text: "", thinking: "" };
    stream
      .on("connect", () => told.push("connect"))
      .on("thinking", (piece) => {
        pieces.thinking += piece;
      })
      .on("text", (piece) => {
        pieces.text += piece;
      })
      .on("contentBlock", ({ type }) => told.push(type))
      .on("message", ({ stop_reason }) => told.push(`message: ${stop_reason}`))
      .on("end", () => told.push("end"));
    assert.equal(await stream.finalText(), "Hello to you, Ann.");
    assert.deepEqual(pieces, { text: "Hello to you, Ann.", thinking: "They greet me." });
    assert.deepEqual(told, ["connect", "thinking", "text", "message: end_turn", "end"]);
    const { usage, id } = await stream.finalMessage();
    assert.deepEqual([usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens], [12, 8, 5]);
    assert.equal(id, `msg_${stream.request_id}`);
  });

  await context.test("parse, of an answer and of a stream", async () => {
    const params = {
      model,
      max_tokens: 1000,
      messages: [said("colour")],
      output_config: { format: jsonSchemaOutputFormat(colourSchema) },
    };
    const red = { colour: "red", depth: 3 };
    assert.deepEqual((await client.messages.parse(params)).parsed_output, red);
    assert.deepEqual((await client.messages.stream(params).finalMessage()).parsed_output, red);
  });

  await context.test("models, page by page, and one by its id", async () => {
    const ids: string[] = [];
    for await (const listed of client.models.list({ limit: 20 })) ids.push(listed.id);
    assert.ok(ids.includes(model), ids.join());
    assert.deepEqual((await client.models.retrieve(model)).type, "model");
    await assert.rejects(client.models.retrieve("no/such"), Anthropic.NotFoundError);
  });

  await context.test("a wrong key: its class, and the id of the request", async () => {
    for (const stranger of [
      new Anthropic({ ...settings, apiKey: "wrong" }),
      new Anthropic({ ...settings, apiKey: null, authToken: "wrong" }),
    ])
      for (const call of [
        () => stranger.messages.create(hi),
        () => stranger.messages.stream(hi).finalMessage(),
        () => stranger.messages.countTokens({ model, messages: [said("hi")] }),
        () => stranger.models.list(),
      ])
        await assert.rejects(call(), (error) => {
          assert.ok(error instanceof Anthropic.AuthenticationError);
          assert.equal(error.type, "authentication_error");
          assert.match(error.requestID ?? "", /^req_/);
          return true;
        });
    const bearer = new Anthropic({ ...settings, apiKey: null, authToken: token });
    assert.equal((await bearer.messages.create({ ...hi, model })).type, "message");
  });

  await context.test("what is not here is said to be not here", async () => {
    await assert.rejects(client.messages.batches.list(), Anthropic.NotFoundError);
    await assert.rejects(client.beta.files.list(), Anthropic.NotFoundError);
  });

  await context.test("it asks again, when told to, what may do then", async () => {
    const patient = new Anthropic({ ...settings, maxRetries: 1 });
    const before = service.asked();
    // The service asks three times itself.
    const away = jsonAnswer(529, overloaded, { "retry-after-ms": "1" });
    service.plan(away, away, away, says("anthropic-messages", [text("Back.")]));
    const { content } = await patient.messages.create(hi);
    assert.deepEqual(
      content.map((block) => block.type === "text" && block.text),
      ["Back."],
    );
    assert.equal(service.asked() - before, 4);
  });

  await context.test("it does not ask again what can only fail again", async () => {
    const patient = new Anthropic({ ...settings, maxRetries: 3 });
    const before = service.asked();
    service.plan(jsonAnswer(529, overloaded, { "x-should-retry": "false" }));
    await assert.rejects(patient.messages.create(hi), (error) => {
      assert.ok(error instanceof Anthropic.InternalServerError);
      assert.deepEqual([error.status, error.type], [529, "overloaded_error"]);
      return true;
    });
    assert.equal(service.asked() - before, 1);
  });

  await context.test("a second try under the same Idempotency-Key joins the turn of the first", async () => {
    const before = service.asked();
    const again = Promise.withResolvers<void>();
    service.plan((request, response, body) => {
      const answer = says("anthropic-messages", [text("Just once.")]);
      again.promise.then(() => answer(request, response, body));
    });
    let tries = 0;
    const hasty = new Anthropic({
      ...settings,
      timeout: 1000,
      maxRetries: 1,
      fetch(target: string | URL | Request, init?: RequestInit) {
        if (++tries === 2) again.resolve();
        return fetch(target, init);
      },
    });
    const { content } = await hasty.messages.create(hi, { headers: { "idempotency-key": "once" } });
    assert.equal(content[0]?.type === "text" && content[0].text, "Just once.");
    assert.deepEqual([tries, service.asked() - before], [2, 1]);
  });

  const left: Promise<void>[] = [];
  await context.test("leaving: by a signal, by leaving the loop, and by a time limit", async () => {
    const abort = new AbortController();
    left.push(service.planEndless().left);
    const stream = client.messages.stream(hi, { signal: abort.signal });
    stream.once("text", () => abort.abort());
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);

    left.push(service.planEndless().left);
    for await (const event of await client.messages.create({ ...hi, stream: true }))
      if (event.type === "content_block_delta") break;

    left.push(service.planEndless().left);
    await assert.rejects(client.messages.create(hi, { timeout: 300 }), Anthropic.APIConnectionTimeoutError);
  });

  await context.test("each turn that was left has ended", async () => void (await Promise.all(left)));
});
