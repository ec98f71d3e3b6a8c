import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import type { ContentBlock, Message } from "../../src/chat/message.ts";
import { decodeLogEvent, encodeLogEvent } from "../../src/convert/proto/event.ts";
import { arrayOf, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { elementSlices, memberSlices } from "../../src/dialect/json-slices.ts";
import { encode } from "../../src/dialect/openai-chat-encode.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";
import { detailsOf } from "../../src/dialect/reasoning-details.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { blocksOf } from "./answer-blocks.ts";
import { pieceSizes, readStream, readWhole } from "./answer-reading.ts";

const folder = join(import.meta.dirname, "fixtures/openai-chat");
const read = (file: string) => readFileSync(join(folder, file), "utf8");
const origin = { provider: "test", model: "m-1", dialect: "openai-chat" };
const hash = (text: string | undefined) => createHash("sha256").update(String(text), "utf8").digest("hex");

async function answer(file: string, size = 7): Promise<ContentBlock[]> {
  const { events } = file.endsWith(".sse") ? await readStream(read(file), size) : readWhole(read(file));
  return blocksOf(events, origin);
}

/** The blocks as they come back out of the log. */
function stored(blocks: readonly ContentBlock[]): ContentBlock[] {
  return blocks.map((block, index) => {
    const { event } = decodeLogEvent(encodeLogEvent("turn", 1, { type: "block-stop", index, block }));
    assert.ok(event.type === "block-stop");
    return event.block;
  });
}

const said = (text: string): Message => ({ role: "user", blocks: [{ type: "text", text }] });
const seen: Message = { role: "tool", blocks: [{ type: "tool_result", toolUseId: "call-1", content: "seen" }] };

/** The members of the answer's message, as JSON texts, in a request two turns later. */
function sentBack(blocks: readonly ContentBlock[], quirks: Partial<Quirks> = {}, model = "m-1"): Map<string, string> {
  const hasCall = blocks.some((block) => block.type === "tool_use");
  const messages = [
    said("Go"),
    { role: "assistant" as const, blocks },
    ...(hasCall ? [seen] : []),
    said("And?"),
    { role: "assistant" as const, blocks: [{ type: "text" as const, text: "Well" }] },
    said("And then?"),
  ];
  const request = { model, messages: validHistory(messages), tools: [], options: {} };
  const body = encode(request, { ...defaultQuirks, ...quirks }, "test");
  assert.doesNotThrow(() => JSON.parse(body));
  return memberSlices(elementSlices(memberSlices(body).get("messages") ?? "[]")[1] ?? "{}");
}

describe("reasoning_details", () => {
  test("those of a whole answer go back byte for byte", async () => {
    const text = read("details-whole.whole");
    const choice = elementSlices(memberSlices(text).get("choices") ?? "")[0] ?? "";
    const received = memberSlices(memberSlices(choice).get("message") ?? "").get("reasoning_details");
    assert.ok(received?.includes("12345678901234567890"));
    const blocks = await answer("details-whole.whole");
    assert.equal(hash(sentBack(blocks).get("reasoning_details")), hash(received));
    assert.equal(hash(sentBack(stored(blocks)).get("reasoning_details")), hash(received));
  });

  /** Pins the form in which streamed details go back. */
  const golden = [
    '{"type":"reasoning.text","text":"Look 😀 first.","format":"anthropic-claude-v1","index":0,"id":"rt-1",' +
      '"depth":1.0,"signature":"c2lnbmVk"}',
    '{"10":2,"type" : "reasoning.encrypted", "data":"eA\\u003d\\u003d","index":1,"big":12345678901234567890}',
    '{"type":"reasoning.encrypted","data":"bGF0ZQ==","index":2}',
  ];
  for (const size of pieceSizes) {
    test(`those of a stream go back put together, in pieces of ${size} bytes`, async () => {
      const blocks = await answer("details-in-pieces.sse", size);
      assert.deepEqual(elementSlices(sentBack(blocks).get("reasoning_details") ?? ""), golden);
      assert.deepEqual(sentBack(stored(blocks)), sentBack(blocks));
    });
  }

  test("what is readable stands before the text, what comes late after the calls", async () => {
    const blocks = await answer("details-in-pieces.sse");
    assert.deepEqual(
      blocks.map(({ type }) => type),
      ["thinking", "text", "tool_use", "redacted_thinking"],
    );
  });

  test("pieces of one type and index are one, but not across ids or the end of a value", async () => {
    const details = JSON.parse(sentBack(await answer("details-of-several-kinds.sse")).get("reasoning_details") ?? "");
    assert.deepEqual(details, [
      { type: "reasoning.summary", summary: "One", index: 0 },
      { type: "reasoning.summary", summary: "Two", index: 1 },
      { type: "reasoning.encrypted", data: "YWIYw", id: "e-1", index: 0 },
      { type: "reasoning.encrypted", data: "ZAZg==", id: "e-2", index: 0 },
      { type: "reasoning.encrypted", data: "Zw==", index: 0 },
      { type: "reasoning.text", text: "a", index: 2, signature: "s1" },
      { type: "reasoning.text", text: "b", index: 2, signature: "s2" },
    ]);
  });

  test("those of an answer that was cut off do not go back", async () => {
    const blocks = await answer("details-cut.sse");
    assert.deepEqual(blocks, [{ type: "thinking", thinking: "One", ...origin }]);
    assert.equal(sentBack([...blocks, { type: "text", text: "x" }]).get("reasoning_details"), undefined);
  });

  test("they go to their model, and as the policy says", async () => {
    const blocks = await answer("details-whole.whole");
    assert.equal(sentBack(blocks, {}, "m-2").has("reasoning_details"), false);
    assert.equal(sentBack(blocks, { opaqueReplay: "none" }).has("reasoning_details"), false);
    assert.equal(sentBack(blocks, { opaqueReplay: "tool-turn" }).has("reasoning_details"), false);
    assert.equal(sentBack(blocks, { opaqueReplay: "tool-turns" }).has("reasoning_details"), true);
    assert.equal(sentBack(blocks).get("reasoning_details"), sentBack(stored(blocks)).get("reasoning_details"));
    assert.equal(sentBack(blocks).has("reasoning_content"), false);
    const withText = sentBack(blocks, { thinkingReplay: "all", thinkingField: "reasoning" });
    assert.equal(withText.get("reasoning"), '"Look"');
  });

  test("a raw form that is no array of objects is not believed", () => {
    for (const text of ["", "{}", "[]", "[1]", '[{"a":1}', "null"]) {
      assert.equal(detailsOf({ raw: Buffer.from(text) }), undefined);
    }
  });
});

const corpus = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const exchanges = join(corpus, "exchanges/openai-chat");
const skip = existsSync(exchanges) ? false : `no recorded answers at CORPUS_DIR or ${corpus}`;

/** All that details say, in their order, as a plain reader of the wire adds it up. */
function saidBy(details: readonly unknown[]): string {
  const texts = details.map(objectOf).map((one) => textOf(one["text"]) + textOf(one["summary"]));
  const kept = details.map(objectOf).map((one) => textOf(one["data"]) + textOf(one["signature"]));
  return `${texts.join("")}\0${kept.join("")}`;
}

describe("reasoning_details of recorded answers go back saying the same", { skip }, () => {
  for (const file of skip ? [] : readdirSync(exchanges)) {
    const recorded = objectOf(parseJson(readFileSync(join(exchanges, file), "utf8")));
    const { id, status, responseSse, responseText, response } = recorded;
    const stream = typeof responseSse === "string";
    const text = stream ? responseSse : textOf(responseText) || JSON.stringify(response);
    if (status !== 200 || !text.includes('"reasoning_details"')) continue;
    const bodies = stream ? text.split("\n").flatMap((line) => line.match(/^data: (\{.*)/)?.[1] ?? []) : [text];
    const received = bodies.flatMap((body) => {
      const choice = objectOf(arrayOf(objectOf(parseJson(body))["choices"])[0]);
      return arrayOf(objectOf(choice["delta"] ?? choice["message"])["reasoning_details"]);
    });
    test(`${id}, ${received.length} pieces`, async () => {
      const { events, error } = stream ? await readStream(text, 64) : readWhole(text);
      const blocks: ContentBlock[] = [...blocksOf(events, origin), { type: "text", text: "x" }];
      const back = sentBack(stored(blocks)).get("reasoning_details");
      // Of an answer that failed nothing is sure to be whole.
      assert.equal(back === undefined, error !== undefined || received.length === 0);
      if (back !== undefined) assert.equal(saidBy(arrayOf(parseJson(back))), saidBy(received));
    });
  }
});

describe("reasoning_opaque", () => {
  const quirkSets: readonly Partial<Quirks>[] = [{}, { thinkingField: "reasoning_text", thinkingReplay: "all" }];
  for (const quirks of quirkSets) {
    for (const [file, opaque, text] of [
      ["opaque.sse", "b3BhcXVl", "Look first."],
      ["opaque-after-text.sse", "bGF0ZQ==", "Hm"],
      ["opaque-whole.whole", "eA==", "Hm"],
    ] as const) {
      test(`${file} goes back unchanged, with its text${quirks.thinkingReplay ? ", in the field of a quirk" : ""}`, async () => {
        const blocks = await answer(file);
        for (const back of [sentBack(blocks, quirks), sentBack(stored(blocks), quirks)]) {
          assert.equal(hash(JSON.parse(back.get("reasoning_opaque") ?? "")), hash(opaque));
          assert.equal(back.get("reasoning_text"), JSON.stringify(text));
        }
        assert.equal(sentBack(blocks, quirks, "m-2").has("reasoning_opaque"), false);
        assert.equal(sentBack(blocks, quirks, "m-2").has("reasoning_text"), false);
      });
    }
  }

  test("it goes back without a text where none came", async () => {
    const back = sentBack(await answer("opaque-alone.sse"));
    assert.equal(back.get("reasoning_opaque"), '"eA=="');
    assert.equal(back.has("reasoning_text"), false);
  });

  test("half of one is not kept", async () => {
    assert.deepEqual(await answer("opaque-cut.sse"), [{ type: "thinking", thinking: "Hm", ...origin }]);
  });

  test("it belongs to the thinking before the call, and cuts no text", async () => {
    const types = async (file: string) => (await answer(file)).map(({ type }) => type);
    assert.deepEqual(await types("opaque.sse"), ["thinking", "tool_use"]);
    assert.deepEqual(await types("opaque-after-text.sse"), ["thinking", "text", "thinking"]);
  });
});

describe("a stream that ends anywhere before its end", () => {
  const all = read("details-in-pieces.sse").split(/(?<=\n\n)/);
  // The last event but one has the finish reason; nothing is missing after it.
  for (let count = 1; count < all.length; count++) {
    const complete = count >= all.length - 1;
    test(`after ${count} of ${all.length} events it is ${complete ? "whole" : "cut off"}`, async () => {
      const { error } = await readStream(all.slice(0, count).join(""), 64);
      assert.equal(error === undefined, complete);
      const half = (all[count] ?? "").slice(0, Math.floor((all[count] ?? "").length / 2));
      const cut = await readStream(all.slice(0, count).join("") + half, 64);
      assert.equal(cut.error === undefined, complete);
    });
  }
});
