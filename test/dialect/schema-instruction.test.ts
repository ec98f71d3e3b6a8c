import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import type { Message } from "../../src/chat/message.ts";
import type { ResponseFormat } from "../../src/chat/request.ts";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson } from "../../src/dialect/json.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";
import { schemaInstruction, withInstruction } from "../../src/dialect/schema-instruction.ts";

const schema =
  '{"type":"object","properties":{"b":{"type":"number"},"10":{"type":"null"}},"additionalProperties":false}';
/** Anthropic's API refuses schemas that leave anything open. */
const openSchema = { type: "json_schema", name: "open", schema: '{"type":"object"}' } as const;
const byName = { type: "json_schema", name: "answer", description: "What is said.", schema } as const;
const list: ResponseFormat = { type: "json_schema", name: "list", schema: '{"type":"array"}' };
const anyJson: ResponseFormat = { type: "json_object" };
const text = (words: string) => ({ type: "text", text: words }) as const;
const user: Message = { role: "user", blocks: [text("Go")] };
const system: Message = { role: "system", blocks: [text("Be brief.")] };

function encoded(dialect: DialectId, responseFormat: ResponseFormat, jsonSchema: Quirks["jsonSchema"]): JsonObject {
  const request = { model: "m-1", messages: [system, user], tools: [], options: { responseFormat } };
  const body = parseJson(dialects[dialect].encode(request, { ...defaultQuirks, jsonSchema }, "p"));
  assert.ok(isJsonObject(body));
  return body;
}

/** The system prompt and the format that the provider is told. */
const reading: Record<DialectId, (body: JsonObject) => { prompt: unknown; format: unknown }> = {
  "openai-chat": (body) => ({
    prompt: objectOf(arrayOf(body["messages"])[0])["content"],
    format: objectOf(body["response_format"])["type"],
  }),
  "openai-responses": (body) => ({
    prompt: body["instructions"],
    format: objectOf(objectOf(body["text"])["format"])["type"],
  }),
  "anthropic-messages": (body) => ({
    prompt: arrayOf(body["system"])
      .map((block) => objectOf(block)["text"])
      .join("\n\n"),
    format: objectOf(objectOf(body["output_config"])["format"])["type"],
  }),
};

const cases: readonly {
  format: ResponseFormat;
  jsonSchema: Quirks["jsonSchema"];
  instructed: boolean;
  told?: string;
  toldToAnthropic?: string;
}[] = [
  { format: { type: "text" }, jsonSchema: "prompt", instructed: false },
  { format: byName, jsonSchema: "native", instructed: false, told: "json_schema", toldToAnthropic: "json_schema" },
  { format: byName, jsonSchema: "json-object", instructed: true, told: "json_object" },
  { format: byName, jsonSchema: "prompt", instructed: true },
  // A mode without a schema makes objects only.
  { format: list, jsonSchema: "json-object", instructed: true },
  { format: anyJson, jsonSchema: "json-object", instructed: true, told: "json_object" },
  { format: anyJson, jsonSchema: "prompt", instructed: true },
];

for (const { id } of Object.values(dialects)) {
  describe(`JSON over ${id}`, () => {
    for (const { format, jsonSchema, instructed, told, toldToAnthropic } of cases) {
      const what = format.type === "json_schema" ? `${format.type} ${format.name}` : format.type;
      test(`${what}, ${jsonSchema}`, () => {
        const sent = reading[id](encoded(id, format, jsonSchema));
        assert.equal(sent.format, id === "anthropic-messages" ? toldToAnthropic : told);
        const instruction = format.type === "text" ? "" : schemaInstruction(format);
        assert.equal(sent.prompt, instructed ? `Be brief.\n\n${instruction}` : "Be brief.");
      });
    }

    test("a schema goes out in its own text", () => {
      const request = { model: "m-1", messages: [user], tools: [], options: { responseFormat: byName } };
      assert.ok(dialects[id].encode(request, defaultQuirks, "p").includes(`"schema":${schema}`));
    });

    test("a schema that leaves something open, where the provider can be held to it", () => {
      const sent = reading[id](encoded(id, openSchema, "native"));
      const takesOpen = id !== "anthropic-messages";
      assert.equal(sent.format, takesOpen ? "json_schema" : undefined);
      assert.equal(sent.prompt, takesOpen ? "Be brief." : `Be brief.\n\n${schemaInstruction(openSchema)}`);
    });

    test("any JSON where the provider has a mode for it, or has none", () => {
      const sent = reading[id](encoded(id, anyJson, "native"));
      const hasMode = id !== "anthropic-messages";
      assert.equal(sent.format, hasMode ? "json_object" : undefined);
      assert.equal(sent.prompt, hasMode ? "Be brief." : `Be brief.\n\n${schemaInstruction(anyJson)}`);
    });

    for (const jsonSchema of ["native", "json-object", "prompt"] as const) {
      test(`a schema that is no JSON, ${jsonSchema}, is the caller's error`, () => {
        assert.throws(
          () => encoded(id, { ...byName, schema: "{" }, jsonSchema),
          (error) => error instanceof AgentError && error.fieldViolations[0]?.field === "options.responseFormat.schema",
        );
      });
    }
  });
}

describe("the instruction", () => {
  test("has the schema in its own text, its name and what it is for", () => {
    const instruction = schemaInstruction(byName);
    assert.ok(instruction.endsWith(schema));
    assert.ok(instruction.includes("answer (What is said.)"));
    assert.match(instruction, /JSON/);
    assert.match(schemaInstruction(anyJson), /JSON object/);
  });

  const image = { type: "image", url: "https://example.org/a.png" } as const;
  const later: Message = { role: "developer", blocks: [text("Use tabs.")] };
  for (const { name, messages, instructed } of [
    { name: "no message", messages: [], instructed: [{ role: "system", blocks: [text("Do.")] }] },
    { name: "no system prompt", messages: [user], instructed: [{ role: "system", blocks: [text("Do.")] }, user] },
    {
      name: "one of two messages",
      messages: [system, later, user, system],
      instructed: [system, { role: "developer", blocks: [text("Use tabs.\n\nDo.")] }, user, system],
    },
    {
      name: "one that ends in an image",
      messages: [{ role: "system", blocks: [text("See"), image] }],
      instructed: [{ role: "system", blocks: [text("See"), image, text("Do.")] }],
    },
  ] as const) {
    test(`ends the system prompt: ${name}`, () => {
      const before = JSON.stringify(messages);
      assert.deepEqual(withInstruction(messages, "Do."), instructed);
      assert.equal(JSON.stringify(messages), before);
    });
  }
});
