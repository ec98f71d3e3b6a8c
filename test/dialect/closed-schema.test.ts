import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isClosedSchema } from "../../src/dialect/closed-schema.ts";

const closed = (properties: object) => ({ type: "object", properties, additionalProperties: false });

describe("a closed schema names all it allows and does not lead back to itself", () => {
  const rows: [what: string, schema: unknown, isClosed: boolean][] = [
    ["a text", { type: "string" }, true],
    ["words", { enum: ["a", "b"] }, true],
    ["an object that names its members", closed({ a: { type: "string" } }), true],
    ["an object that may have others", { type: "object", properties: { a: { type: "string" } } }, false],
    ["an object of which nothing is said", { type: "object" }, false],
    ["one with others of a kind", { ...closed({}), additionalProperties: { type: "string" } }, false],
    ["members without a type", { properties: { a: { type: "string" } } }, false],
    ["an object or null", { ...closed({}), type: ["object", "null"] }, true],
    ["an open object or null", { type: ["object", "null"] }, false],
    ["anything", {}, false],
    ["true", true, false],
    ["a member that may be anything", closed({ a: {} }), false],
    ["a list", { type: "array", items: { type: "number" } }, true],
    ["a list of anything", { type: "array" }, false],
    ["a list of open objects", { type: "array", items: { type: "object" } }, false],
    ["one of two", { anyOf: [{ type: "null" }, closed({ a: { type: "number" } })] }, true],
    ["one of two, one open", { anyOf: [{ type: "null" }, { type: "object" }] }, false],
    [
      "by reference",
      { $ref: "#/$defs/a", $defs: { a: closed({ b: { $ref: "#/$defs/b" } }), b: { type: "null" } } },
      true,
    ],
    [
      "by the same reference twice",
      { ...closed({ a: { $ref: "#/$defs/a" }, b: { $ref: "#/$defs/a" } }), $defs: { a: { type: "null" } } },
      true,
    ],
    ["by reference to itself", { ...closed({ a: { $ref: "#" } }), $defs: {} }, false],
    ["in a circle", { $ref: "#/$defs/a", $defs: { a: closed({ a: { $ref: "#/$defs/a" } }) } }, false],
    ["by reference to nothing", { $ref: "#/$defs/a" }, false],
    ["by reference elsewhere", { $ref: "https://example.com/schema" }, false],
    ["a definition that nobody uses", { type: "string", $defs: { a: {} } }, true],
  ];
  for (const [what, schema, isClosed] of rows) test(what, () => assert.equal(isClosedSchema(schema), isClosed));
});
