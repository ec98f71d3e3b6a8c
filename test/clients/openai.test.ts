import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ResponsesToolRunner } from "openai/helpers/responses-tool-runner";
import { says, text } from "../provider/answers.ts";
import { jsonAnswer } from "../provider/upstream.ts";
import { colourSchema, startRestService, token } from "./rest-service.ts";

// What OpenAI's own client does by itself: loops over tools, reading of JSON, tries and time limits.

test("OpenAI's client", { timeout: 30_000 }, async (context) => {
  const service = await startRestService(context);
  const settings = { baseURL: `${service.url}/v1`, apiKey: token, maxRetries: 0, timeout: 8000 };
  const client = new OpenAI(settings);
  const { upstreamModel } = service;
  const model = "scripted/test";
  const said = (content: string) => ({ role: "user", content }) as const;
  const hi = { model: upstreamModel, messages: [said("hi")] };

  const toolsOf = (called: string[]) => {
    const weather = {
      name: "get_weather",
      description: "The weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string" } } },
      run(args: Readonly<Record<string, unknown>>) {
        called.push(`weather of ${args["city"]}`);
        return `grey in ${args["city"]}`;
      },
    } as const;
    const pack = {
      name: "pack",
      description: "Packs.",
      parameters: { type: "object", properties: { things: { type: "array", items: { type: "string" } } } },
      run(args: Readonly<Record<string, unknown>>) {
        called.push(`pack ${args["things"]}`);
        return "packed";
      },
    } as const;
    return [weather, pack];
  };
  const wanted = ["weather of Bern", "weather of Oslo", "pack umbrella,README.md"];

  for (const stream of [false, true])
    await context.test(`runTools${stream ? ", streamed" : ""}`, async () => {
      const called: string[] = [];
      const tools = toolsOf(called).map(({ run, ...named }) => ({
        type: "function" as const,
        function: { ...named, parse: (json: string): Record<string, unknown> => JSON.parse(json), function: run },
      }));
      const params = { model, messages: [said("pack")], tools };
      const runner = stream
        ? client.chat.completions.runTools({ ...params, stream: true })
        : client.chat.completions.runTools({ ...params, stream: false });
      assert.equal(await runner.finalContent(), "All is packed.");
      assert.deepEqual(called, wanted);
      assert.deepEqual(
        runner.messages.map(({ role }) => role),
        ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"],
      );
    });

  for (const stream of [false, true])
    for (const store of [false, true])
      await context.test(
        `the runner of the Responses API${stream ? ", streamed" : ""}${store ? "" : ", nothing kept"}`,
        async () => {
          const called: string[] = [];
          const functions = toolsOf(called).map(({ run, ...tool }) => ({
            tool: { type: "function" as const, strict: false, ...tool },
            execute: run,
          }));
          const runner = new ResponsesToolRunner({ functions });
          const response = await runner.run(client, { model, input: "pack", store }, { stream });
          assert.equal(response.output_text, "All is packed.");
          assert.deepEqual(called, wanted);
        },
      );

  await context.test("the helper of a stream: snapshots, events of its parts, the whole at the end", async () => {
    const stream = client.chat.completions.stream({
      model,
      messages: [said("hello")],
      stream_options: { include_usage: true },
    });
    const snapshots: string[] = [];
    stream.on("content", (_, snapshot) => snapshots.push(snapshot));
    const done = stream.emitted("content.done");
    assert.equal(await stream.finalContent(), "Hello to you, Ann.");
    assert.equal((await done).content, "Hello to you, Ann.");
    assert.equal(snapshots.at(-1), "Hello to you, Ann.");
    assert.deepEqual((await stream.totalUsage()).total_tokens, 25);
  });

  await context.test("parse, of an answer and of a stream", async () => {
    const response_format = {
      type: "json_schema" as const,
      json_schema: { name: "colour", schema: colourSchema, strict: true },
    };
    const params = { model, messages: [said("colour")], response_format };
    const red = { colour: "red", depth: 3 };
    const { choices } = await client.chat.completions.parse(params);
    assert.deepEqual(choices[0]?.message.parsed, red);
    const streamed = await client.chat.completions.stream(params).finalChatCompletion();
    assert.deepEqual(streamed.choices[0]?.message.parsed, red);
  });

  await context.test("models, page by page", async () => {
    const ids: string[] = [];
    for await (const listed of client.models.list()) ids.push(listed.id);
    assert.ok(ids.includes(model), ids.join());
  });

  await context.test("a wrong key: its class, and the id of the request", async () => {
    const stranger = new OpenAI({ ...settings, apiKey: "wrong" });
    for (const call of [
      () => stranger.chat.completions.create(hi),
      () => stranger.responses.create({ model, input: "hi" }),
      () => stranger.models.list(),
    ])
      await assert.rejects(call(), (error) => {
        assert.ok(error instanceof OpenAI.AuthenticationError);
        assert.equal(error.code, "invalid_api_key");
        assert.match(error.requestID ?? "", /^req_/);
        return true;
      });
  });

  await context.test("the id of the request is that of the turn", async () => {
    const { data, request_id } = await client.chat.completions
      .create({ model, messages: [said("hello")] })
      .withResponse();
    assert.equal(`chatcmpl-${request_id}`, data.id);
  });

  await context.test("what is not here is said to be not here", async () => {
    await assert.rejects(client.embeddings.create({ model, input: "hi" }), OpenAI.NotFoundError);
    await assert.rejects(client.files.list(), OpenAI.NotFoundError);
  });

  await context.test("it asks again, when told to, what may do then", async () => {
    const patient = new OpenAI({ ...settings, maxRetries: 1 });
    const before = service.asked();
    // The service asks three times itself.
    const down = jsonAnswer(503, { error: { message: "away" } }, { "retry-after-ms": "1" });
    service.plan(down, down, down, says("openai-chat", [text("Back.")]));
    const { choices } = await patient.chat.completions.create(hi);
    assert.equal(choices[0]?.message.content, "Back.");
    assert.equal(service.asked() - before, 4);
  });

  await context.test("it does not ask again what can only fail again", async () => {
    const patient = new OpenAI({ ...settings, maxRetries: 3 });
    const before = service.asked();
    service.plan(jsonAnswer(503, { error: { message: "gone" } }, { "x-should-retry": "false" }));
    await assert.rejects(patient.chat.completions.create(hi), (error) => {
      assert.ok(error instanceof OpenAI.InternalServerError);
      assert.equal(error.status, 503);
      return true;
    });
    assert.equal(service.asked() - before, 1);
  });

  await context.test("a second try under the same Idempotency-Key joins the turn of the first", async () => {
    const before = service.asked();
    const again = Promise.withResolvers<void>();
    service.plan((request, response, body) => {
      const answer = says("openai-chat", [text("Just once.")]);
      again.promise.then(() => answer(request, response, body));
    });
    let tries = 0;
    const hasty = new OpenAI({
      ...settings,
      timeout: 1000,
      maxRetries: 1,
      fetch(target: string | URL | Request, init?: RequestInit) {
        if (++tries === 2) again.resolve();
        return fetch(target, init);
      },
    });
    const { choices } = await hasty.chat.completions.create(hi, { headers: { "idempotency-key": "once" } });
    assert.equal(choices[0]?.message.content, "Just once.");
    assert.deepEqual([tries, service.asked() - before], [2, 1]);
  });

  const left: Promise<void>[] = [];
  await context.test("leaving: by the stream's own abort, by leaving the loop, and by a time limit", async () => {
    left.push(service.planEndless().left);
    const stream = client.chat.completions.stream(hi);
    stream.once("content", () => stream.abort());
    await assert.rejects(stream.finalContent(), OpenAI.APIUserAbortError);

    left.push(service.planEndless().left);
    for await (const chunk of await client.chat.completions.create({ ...hi, stream: true }))
      if (chunk.choices[0]?.delta.content === "Hello ") break;

    left.push(service.planEndless().left);
    await assert.rejects(client.chat.completions.create(hi, { timeout: 300 }), OpenAI.APIConnectionTimeoutError);
  });

  await context.test("each turn that was left has ended", async () => void (await Promise.all(left)));
});
