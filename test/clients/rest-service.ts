import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { type DialectId, eventsThrough, providerAt, text } from "../provider/answers.ts";
import { type Answer, eventStream, startUpstream } from "../provider/upstream.ts";
import { startTestApp } from "../support/test-app.ts";

export const token = "correct-horse-battery";

/** What the model `scripted/test` says to clients of vendors' formats. */
export const script = `
- when: { role: user, text: hello }
  thinking: They greet me.
  text: Hello to you, Ann.
  chunk: 4
  usage:
    prompt_tokens: 20
    completion_tokens: 5
    total_tokens: 25
    prompt_tokens_details: { cached_tokens: 8 }
    completion_tokens_details: { reasoning_tokens: 2 }
- when: { role: user, text: pack }
  thinking: The files first.
  text: "I look. "
  tool_calls: [{ name: list_files, arguments: { pattern: "*" } }]
- when: { tool: list_files, text: README }
  text: "Now the weather. "
  tool_calls:
    - { id: call_bern, name: get_weather, arguments: { city: Bern } }
    - { id: call_oslo, name: get_weather, arguments: { city: Oslo } }
- when: { tool: get_weather, text: Oslo }
  tool_calls: [{ id: call_pack, name: pack, arguments: { things: [umbrella, README.md] } }]
- when: { tool: pack, text: packed }
  text: All is packed.
- when: { role: user, text: colour }
  text: '{"colour":"red","depth":3}'
- when: { role: user, text: rhyme }
  text: "no JSON at all"
- text: I don't know what to say.
`;

export const colourSchema = {
  type: "object",
  properties: { colour: { type: "string" }, depth: { type: "integer" } },
  required: ["colour", "depth"],
  additionalProperties: false,
} as const;

/** A picture of one point. */
export const picture =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/**
 * The service with a token and two providers: the script, and a fake upstream whose next answers are planned. Its own tries
 * with it are over at once, so that what a client sees is one answer for one.
 */
export async function startRestService(context: TestContext, dialect: DialectId = "openai-chat") {
  const planned: Answer[] = [];
  const upstream = await startUpstream(context, planned);
  const { model, env } = providerAt(dialect, upstream.url);
  const started = await startTestApp(context, { script, env, flags: { token } });
  return {
    ...started,
    url: started.app.url,
    /** The model behind the fake upstream. */
    upstreamModel: model,
    plan: (...answers: readonly Answer[]) => planned.push(...answers),
    /** The JSON that the upstream was last asked with. */
    lastAsked(): unknown {
      return JSON.parse(upstream.requests.at(-1)?.body ?? assert.fail("the upstream was not asked"));
    },
    asked: () => upstream.requests.length,
    /** Plans an answer that begins with `Hello ` and goes on for ever; `left` is kept when the service hangs up on it. */
    planEndless() {
      const { promise: left, resolve } = Promise.withResolvers<void>();
      const begun = eventsThrough(dialect, [text("Hello there.")], "Hello ");
      planned.push((_, response) => {
        response.once("close", resolve).writeHead(200, eventStream).write(begun);
      });
      return { left };
    },
  };
}
