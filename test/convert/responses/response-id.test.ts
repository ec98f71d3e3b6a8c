import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { partsOfResponseId, responseId } from "../../../src/convert/responses/response-id.ts";

describe("the id of a response", () => {
  test("holds any ids of session and turn, in characters that clients take for one word", () => {
    const text = fc.string({ unit: "binary", maxLength: 80 });
    fc.assert(
      fc.property(text, text, (sessionId, turnId) => {
        const id = responseId(sessionId, turnId);
        assert.match(id, /^resp_[A-Za-z0-9_]+$/);
        assert.deepEqual(partsOfResponseId(id), { sessionId, turnId });
      }),
    );
  });

  test("that is none of ours is told from ours", () => {
    const ours = responseId("ses_1", "turn_1");
    const others = [
      "",
      "resp_",
      "resp_68a1c2",
      "resp__",
      ours.slice(0, -1),
      `${ours}A`,
      `${ours}\n`,
      `x${ours}`,
      ours.slice(5),
    ];
    for (const id of others) assert.equal(partsOfResponseId(id), undefined, id);
    fc.assert(fc.property(fc.string(), (text) => void partsOfResponseId(`resp_${text}`)));
  });
});
