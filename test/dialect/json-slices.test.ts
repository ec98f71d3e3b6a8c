import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { elementSlices, memberSlices } from "../../src/dialect/json-slices.ts";

const space = fc.stringMatching(/^[ \t\n\r]{0,3}$/);
/** Strings with all that makes them hard to skip, written in several ways. */
const stringText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 8 }).map((value) => JSON.stringify(value)),
  fc.constantFrom('"\\""', '"\\\\"', '"\\\\\\""', '"{"', '"]},"', '"\\u007d\\ud83d\\ude00"', '""'),
);
/**
 * A key of a single backslash is left out: once JSON.parse has seen one, V8 (14.6) reads the key `"\\""` after the same keys as
 * a backslash too, so it can't be what the slices are held against.
 */
const keyText = stringText.filter((text) => JSON.parse(text) !== "\\");
const scalarText = fc.oneof(
  stringText,
  fc.constantFrom("1.0", "-0", "1e5", "12345678901234567890", "true", "false", "null"),
);
const { value: valueText } = fc.letrec<{ value: string; array: string; object: string }>((tie) => ({
  value: fc.oneof({ depthSize: "small" }, scalarText, tie("array"), tie("object")),
  array: fc.tuple(space, fc.array(fc.tuple(space, tie("value"), space), { maxLength: 3 })).map(arrayText),
  object: fc
    .tuple(space, fc.array(fc.tuple(space, keyText, space, space, tie("value"), space), { maxLength: 3 }))
    .map(objectText),
}));

function arrayText([inner, elements]: [string, [string, string, string][]]): string {
  return `[${elements.length === 0 ? inner : elements.map((parts) => parts.join("")).join(",")}]`;
}

function objectText([inner, members]: [string, [string, string, string, string, string, string][]]): string {
  const texts = members.map(([before, key, mid, after, value, end]) => `${before}${key}${mid}:${after}${value}${end}`);
  return `{${members.length === 0 ? inner : texts.join(",")}}`;
}

describe("slices of JSON text", () => {
  test("elements come back as they were written", () => {
    fc.assert(
      fc.property(
        space,
        space,
        fc.array(fc.tuple(space, valueText, space), { maxLength: 5 }),
        (before, after, list) => {
          const text = `${before}${arrayText([" ", list])}${after}`;
          JSON.parse(text);
          assert.deepEqual(
            elementSlices(text),
            list.map(([, value]) => value),
          );
        },
      ),
      { numRuns: 500 },
    );
  });

  test("members come back as they were written, the last of a key that comes twice", () => {
    const member = fc.tuple(space, stringText, space, space, valueText, space);
    fc.assert(
      fc.property(space, fc.array(member, { maxLength: 5 }), (around, list) => {
        const text = `${around}${objectText([" ", list])}${around}`;
        const expected = new Map<unknown, string>();
        for (const [, key, , , value] of list) expected.set(JSON.parse(key), value);
        assert.deepEqual(memberSlices(text), expected);
      }),
      { numRuns: 500 },
    );
  });

  test("slices read as the values they are of", () => {
    fc.assert(
      fc.property(valueText, (text) => {
        const value: unknown = JSON.parse(text);
        const elements = elementSlices(text).map((slice): unknown => JSON.parse(slice));
        const members = [...memberSlices(text)].map(([key, slice]): [string, unknown] => [key, JSON.parse(slice)]);
        if (Array.isArray(value)) assert.deepEqual(elements, value);
        else assert.deepEqual(elements, []);
        const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
        assert.deepEqual(members.map(([key]) => key).toSorted(), isObject ? Object.keys(value).toSorted() : []);
        for (const [key, member] of members)
          assert.deepEqual(member, Object.entries(Object(value)).find(([name]) => name === key)?.[1]);
      }),
      { numRuns: 500 },
    );
  });

  for (const text of ["", "1", '"[1]"', "null", "  "]) {
    test(`${JSON.stringify(text)} has neither`, () => {
      assert.deepEqual(elementSlices(text), []);
      assert.deepEqual(memberSlices(text), new Map());
    });
  }
});
