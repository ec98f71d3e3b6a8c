import assert from "node:assert/strict";
import { arrayOf, isJsonObject, type JsonObject, objectOf, textOf } from "../../src/dialect/json.ts";

/**
 * A request as strict as the API is: what it would refuse fails here.
 * @returns the parsed request.
 */
export function checkInput(body: string): JsonObject {
  const request = objectOf(JSON.parse(body));
  assert.notEqual(textOf(request["model"]), "");
  assert.equal(request["stream"], true);
  assert.equal(typeof request["store"], "boolean");
  const continues = textOf(request["previous_response_id"]) !== "";
  assert.ok(request["store"] === true || !continues || request["store"] === false);
  for (const [name, value] of Object.entries(request)) {
    assert.notEqual(value, null, name);
    if (name !== "input") assert.ok(!(Array.isArray(value) && value.length === 0), `${name} is empty`);
    assert.notEqual(value, "", name);
  }

  const open = new Set<string>();
  const answered = new Set<string>();
  const input = arrayOf(request["input"]);
  for (const item of input) {
    assert.ok(isJsonObject(item));
    const type = textOf(item["type"]);
    const callId = textOf(item["call_id"]);
    switch (type) {
      case "message": {
        const role = textOf(item["role"]);
        assert.ok(["user", "assistant", "system", "developer"].includes(role), role);
        const parts = arrayOf(item["content"]).map(objectOf);
        assert.ok(parts.length > 0, "a message without content");
        for (const part of parts) checkPart(part, role);
        if (role !== "assistant") assert.ok(!("phase" in item));
        assert.ok(!("id" in item));
        break;
      }
      case "function_call":
        assert.notEqual(callId, "");
        assert.notEqual(textOf(item["name"]), "");
        assert.notEqual(textOf(item["arguments"]), "");
        assert.ok(!answered.has(callId) && !open.has(callId), `${callId} is called twice`);
        assert.ok(!("id" in item));
        open.add(callId);
        break;
      case "function_call_output": {
        const { output } = item;
        assert.ok(continues || open.delete(callId), `${callId} was not called`);
        assert.ok(!answered.has(callId), `${callId} is answered twice`);
        answered.add(callId);
        assert.ok(typeof output === "string" || arrayOf(output).length > 0);
        for (const part of arrayOf(output)) checkPart(objectOf(part), "user");
        break;
      }
      case "reasoning": {
        assert.ok(Array.isArray(item["summary"]));
        assert.ok(!("status" in item), "status is no input");
        assert.ok(request["store"] === true || !("id" in item), "the id of an item nobody stored");
        const readable = textOf(item["encrypted_content"]) !== "" || arrayOf(item["content"]).length > 0;
        assert.ok(readable || (request["store"] === true && textOf(item["id"]) !== ""), "reasoning nobody can read");
        break;
      }
      default:
        assert.notEqual(type, "");
    }
    if (type !== "function_call_output" && open.size > 0) {
      // Between a call and its result only more of the same answer may stand.
      const answering = type !== "message" || item["role"] === "assistant";
      assert.ok(answering, `a ${type} before the result of ${[...open].join(", ")}`);
    }
  }
  assert.deepEqual([...open], [], "calls without a result");
  return request;
}

function checkPart(part: JsonObject, role: string): void {
  const type = textOf(part["type"]);
  const allowed = role === "assistant" ? ["output_text"] : ["input_text", "input_image", "input_file"];
  assert.ok(allowed.includes(type), `${type} in a message of ${role}`);
  if (type === "input_text" || type === "output_text") assert.notEqual(textOf(part["text"]), "");
  if (type === "input_image") assert.notEqual(textOf(part["image_url"]), "");
  if (type === "input_file") assert.ok(textOf(part["file_data"]) !== "" || textOf(part["file_id"]) !== "");
}
