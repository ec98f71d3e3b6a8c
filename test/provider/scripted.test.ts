import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { ChatEvent } from "../../src/chat/event.ts";
import type { ContentBlock, Message, Role } from "../../src/chat/message.ts";
import { createProviderRegistry, type ProviderRegistry } from "../../src/provider/registry.ts";
import { agentError, textOfEvents } from "./upstream.ts";

function registryWith(context: TestContext, script: string, waits: number[] = []): ProviderRegistry {
  const folder = mkdtempSync(join(tmpdir(), "scripted-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "script.yaml");
  writeFileSync(file, script);
  const delay = async (delayMs: number) => {
    waits.push(delayMs);
  };
  return createProviderRegistry({ env: {}, settings: { scripted: { file } }, delay, random: () => 1 });
}

const message = (role: Role, ...blocks: ContentBlock[]): Message => ({ role, blocks });
const user = (text: string) => message("user", { type: "text", text });

async function ask(registry: ProviderRegistry, messages: Message[], model = "scripted/any") {
  const events: ChatEvent[][] = [];
  const { signal } = new AbortController();
  try {
    const request = { model: "", messages, tools: [], options: {} };
    for await (const some of registry.streamChat(registry.resolve(model), request, { signal })) events.push(some);
  } catch (error) {
    return { reads: events.length, events: events.flat(), error };
  }
  return { reads: events.length, events: events.flat(), error: undefined };
}

const script = `
- when: { role: user, text: list the files, nth: 1 }
  thinking: I should look.
  text: Let me look.
  tool_calls:
    - { name: list_files, arguments: { pattern: "*.ts" } }
    - { name: broken, arguments: '{"a":', id: call_mine }
  usage: { prompt_tokens: 20, completion_tokens: 5 }
- when: { tool: broken }
  text: Done.
- when: { text: { equals: exactly } }
  text: Equal.
- when: { text: { regex: "^[0-9]+$" } }
  text: A number.
- when: { model: other/model }
  text: The other.
- when: { text: twice }
  once: true
  error: { status: 503, message: not now, retry_after: 2 }
- when: { text: twice }
  text: Now.
  finish_reason: length
- when: { text: slow }
  text: abcdef
  repeat: 2
  chunk: 4
  first_delay_ms: 30
  delay_ms: 10
- when: { text: cut }
  text: abcdef
  chunk: 2
  cut_after: 2
`;

describe("the scripted provider", () => {
  const cases: readonly { name: string; messages: Message[]; model?: string; text: string }[] = [
    { name: "a text that has to be equal", messages: [user("exactly")], text: "Equal." },
    { name: "a pattern", messages: [user("123")], text: "A number." },
    { name: "a model", messages: [user("hi")], model: "scripted/other/model", text: "The other." },
    {
      name: "the tool of the call that is answered",
      messages: [
        user("list the files"),
        message("assistant", { type: "tool_use", id: "call_mine", name: "broken", input: "{}" }),
        message("tool", { type: "tool_result", toolUseId: "call_mine", content: "exactly" }),
      ],
      text: "Done.",
    },
  ];
  for (const { name, messages, model, text } of cases) {
    test(`a turn is found by ${name}, as often as it is asked`, async (context) => {
      const registry = registryWith(context, script);
      for (let time = 0; time < 2; time++) {
        const { events, error } = await ask(registry, messages, model);
        assert.equal(error, undefined);
        assert.equal(textOfEvents(events), text);
      }
    });
  }

  test("thinking, text, calls and usage come in that order, the same each time", async (context) => {
    const registry = registryWith(context, script);
    const first = await ask(registry, [user("please list the files")]);
    assert.deepEqual(await ask(registry, [user("please list the files")]), first);
    const [response, ...rest] = first.events;
    assert.ok(response?.type === "response" && response.model === "scripted");
    const start = rest.find((event) => event.type === "tool-call-start");
    assert.match(start?.id ?? "", /^call_[0-9a-f]{12}_0$/);
    assert.deepEqual(rest, [
      { type: "thinking-delta", index: 0, text: "I should look." },
      { type: "text-delta", index: 1, text: "Let me look." },
      { type: "tool-call-start", index: 2, id: start?.id, name: "list_files" },
      { type: "tool-call-delta", index: 2, argumentsText: '{"pattern":"*.ts"}' },
      { type: "tool-call-start", index: 3, id: "call_mine", name: "broken" },
      { type: "tool-call-delta", index: 3, argumentsText: '{"a":' },
      { type: "usage", usage: { inputTokens: 20, outputTokens: 5, totalTokens: 25 } },
      { type: "finish", finishReason: "tool_calls", rawFinishReason: "tool_calls" },
    ]);
  });

  test("an error comes over the way of every error, and a second try gets past it", async (context) => {
    const waits: number[] = [];
    const { events, error } = await ask(registryWith(context, script, waits), [user("twice")]);
    assert.equal(error, undefined);
    assert.equal(textOfEvents(events), "Now.");
    assert.deepEqual(waits, [2000]);
    assert.deepEqual(events.at(-1), { type: "finish", finishReason: "length", rawFinishReason: "length" });
  });

  test("delays come before the deltas", async (context) => {
    const waits: number[] = [];
    const { reads, events } = await ask(registryWith(context, script, waits), [user("slow")]);
    assert.equal(textOfEvents(events), "abcdefabcdef");
    assert.deepEqual(waits, [30, 10, 10]);
    assert.equal(reads, 3);
  });

  test("a cut breaks the connection after its deltas", async (context) => {
    const { events, error } = await ask(registryWith(context, script), [user("cut")]);
    assert.equal(textOfEvents(events), "abcd");
    assert.equal(agentError(error).kind, "provider_unavailable");
  });

  test("a request nobody planned is refused with its last message and the matchers", async (context) => {
    const { error } = await ask(registryWith(context, script), [user("what?")]);
    assert.equal(agentError(error).kind, "provider_rejected");
    assert.match(agentError(error).message, /role user, nth 1, model any, text "what\?"/);
    assert.match(agentError(error).message, /4: \{"text":\{"regex":"\^\[0-9\]\+\$"\}\}/);
  });

  for (const [broken, says] of [
    ["text: hi", /must be a list of turns/],
    ["- text: [", /no YAML/],
    ["- 5", /turn 1: must be a mapping/],
    ["- text: a\n- txt: b", /turn 2: does not know the key txt; it knows when, thinking, text/],
    ["- when: { txt: b }", /turn 1, when: does not know the key txt/],
    ["- text: 5", /turn 1, text: must be a text/],
    ["- delay_ms: soon", /turn 1, delay_ms: must be a whole number from 0/],
    ["- chunk: 0", /turn 1, chunk: must be a whole number from 1/],
    ["- once: 1", /turn 1, once: must be true or false/],
    ['- when: { text: { regex: "(" } }', /turn 1, when, text, regex/],
    ["- tool_calls: [{ arguments: {} }]", /turn 1, tool call 1: needs a name/],
    ["- tool_calls: [{ name: f, arguments: 5 }]", /turn 1, tool call 1, arguments: must be a mapping or a text/],
    ["- error: { status: 200 }", /turn 1, error, status: must be a whole number from 400/],
  ] as const) {
    test(`the script ${JSON.stringify(broken)} is refused`, (context) => {
      assert.throws(
        () => registryWith(context, broken),
        (error) => agentError(error).kind === "invalid_request" && says.test(agentError(error).message),
      );
    });
  }
});
