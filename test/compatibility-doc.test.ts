import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import type Anthropic from "@anthropic-ai/sdk";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import type OpenAI from "openai";
import {
  CodeAgentService,
  AgentEvent_EventType as EventType,
  MemoryType,
} from "../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, agentErrorKinds } from "../src/chat/error.ts";
import { finishReasons } from "../src/chat/finish-reason.ts";
import { anthropicErrors } from "../src/convert/anthropic/error.ts";
import { turnRequestFromAnthropic } from "../src/convert/anthropic/request.ts";
import { stopToAnthropic } from "../src/convert/anthropic/response.ts";
import { readCronPhrase } from "../src/convert/legacy/cron-phrase.ts";
import { describeCron } from "../src/convert/legacy/describe-cron.ts";
import { openAIError } from "../src/convert/openai/error.ts";
import { turnRequestFromOpenAI } from "../src/convert/openai/request.ts";
import { completionFinishReasons } from "../src/convert/openai/response.ts";
import { refuseUnsupported } from "../src/convert/openai/unsupported.ts";
import { errorCodes } from "../src/convert/proto/error.ts";
import { turnRequestFromResponses } from "../src/convert/responses/request.ts";
import { responseEndings } from "../src/convert/responses/response.ts";
import { responseId } from "../src/convert/responses/response-id.ts";
import { chatCompletionsApi } from "../src/rest/chat-completions.ts";
import { messagesApi } from "../src/rest/messages.ts";
import { legacyFinishReasons } from "../src/rpc/legacy/era.ts";
import { functionNameFor, ruleLists, rulesFromLegacy } from "../src/rpc/legacy/legacy-rules.ts";
import { memoryTiers } from "../src/rpc/legacy/memory-item.ts";
import { startTestApp } from "./support/test-app.ts";

const page = readFileSync("docs/compatibility.md", "utf8");

/** The rows of the first table under a heading whose first row is `head`. */
function rowsUnder(heading: string, head: string): string[][] {
  const lines = page.slice(page.indexOf(`\n${heading}\n`)).split("\n");
  const from = lines.findIndex((line) => line.startsWith(`| ${head} |`));
  assert.notEqual(from, -1, `${heading} has no table ${head}`);
  const rows = lines.slice(from + 2, lines.indexOf("", from));
  return rows.map((row) =>
    row
      .slice(1, -1)
      .split("|")
      .map((cell) => cell.trim()),
  );
}

/** What stands between backticks. */
function codesIn(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, code = ""]) => code);
}

type Fields = Readonly<Record<string, unknown>>;

/** A format: a request, what is read of it, and for each row of its table fields that say something unusual. */
interface Format<Field extends string> {
  readonly request: Fields;
  readonly read: (fields: Fields) => unknown;
  readonly fields: Readonly<Record<Field, Fields>> & Readonly<Record<string, Fields>>;
}

const functionTool = { type: "function", function: { name: "look", parameters: { type: "object" } } };
const schema = { type: "object" };

const chatCompletions: Format<keyof OpenAI.ChatCompletionCreateParamsStreaming> = {
  request: { messages: [{ role: "user", content: "hi" }] },
  read(fields) {
    refuseUnsupported(fields);
    const { request, stream } = chatCompletionsApi.read(fields, {});
    return { request, stream, includeUsage: turnRequestFromOpenAI(fields).includeUsage };
  },
  fields: {
    messages: { messages: [{ role: "user", content: "ho" }] },
    model: { model: "a/b" },
    stream: { stream: true },
    stream_options: { stream_options: { include_usage: true } },
    tools: { tools: [functionTool] },
    tool_choice: { tool_choice: "required" },
    functions: { functions: [{ name: "look" }] },
    function_call: { function_call: "none" },
    parallel_tool_calls: { parallel_tool_calls: false },
    response_format: { response_format: { type: "json_object" } },
    max_completion_tokens: { max_completion_tokens: 7 },
    max_tokens: { max_tokens: 7 },
    temperature: { temperature: 0.5 },
    top_p: { top_p: 0.5 },
    stop: { stop: "end" },
    seed: { seed: 7 },
    reasoning_effort: { reasoning_effort: "low" },
    metadata: { metadata: { team: "blue" } },
    store: { store: false },
    n: { n: 2 },
    logprobs: { logprobs: true },
    top_logprobs: { top_logprobs: 2 },
    modalities: { modalities: ["text", "audio"] },
    audio: { audio: { voice: "alloy", format: "wav" } },
    frequency_penalty: { frequency_penalty: 1 },
    presence_penalty: { presence_penalty: 1 },
    logit_bias: { logit_bias: { 50256: -100 } },
    verbosity: { verbosity: "low" },
    web_search_options: { web_search_options: {} },
    user: { user: "ada" },
    safety_identifier: { safety_identifier: "ada" },
    service_tier: { service_tier: "flex" },
    prediction: { prediction: { type: "content", content: "hi" } },
    moderation: { moderation: { model: "m" } },
    prompt_cache_key: { prompt_cache_key: "k" },
    prompt_cache_options: { prompt_cache_options: {} },
    prompt_cache_retention: { prompt_cache_retention: "24h" },
  },
};

const responses: Format<keyof OpenAI.Responses.ResponseCreateParamsStreaming> = {
  request: { input: "hi" },
  read(fields) {
    const { request, stream, binding, isKept, asked } = turnRequestFromResponses(fields);
    const { metadata, ...options } = request.options;
    // What is kept there of the request only to be told back.
    const { "codeagent.responses": _, ...own } = metadata ?? {};
    return { request: { ...request, options }, metadata: own, stream, binding, isKept, seals: asked.seals };
  },
  fields: {
    input: { input: "ho" },
    model: { model: "a/b" },
    instructions: { instructions: "Be short." },
    tools: { tools: [{ type: "function", name: "look", parameters: schema }] },
    tool_choice: { tool_choice: "required" },
    parallel_tool_calls: { parallel_tool_calls: false },
    text: { text: { format: { type: "json_object" } } },
    max_output_tokens: { max_output_tokens: 7 },
    temperature: { temperature: 0.5 },
    top_p: { top_p: 0.5 },
    reasoning: { reasoning: { effort: "low" } },
    metadata: { metadata: { team: "blue" } },
    stream: { stream: true },
    store: { store: false },
    previous_response_id: { previous_response_id: responseId("ses_1", "turn_1") },
    conversation: { conversation: "conv_1" },
    include: { include: ["reasoning.encrypted_content"] },
    background: { background: true },
    prompt: { prompt: { id: "pmpt_1" } },
    max_tool_calls: { max_tool_calls: 3 },
    top_logprobs: { top_logprobs: 2 },
    "text.verbosity": { text: { verbosity: "low" } },
    "reasoning.context": { reasoning: { context: "all_turns" } },
    "reasoning.mode": { reasoning: { mode: "pro" } },
    truncation: { truncation: "auto" },
    context_management: { context_management: [{ type: "compaction" }] },
    stream_options: { stream_options: { include_obfuscation: false } },
    user: { user: "ada" },
    safety_identifier: { safety_identifier: "ada" },
    service_tier: { service_tier: "flex" },
    prompt_cache_key: { prompt_cache_key: "k" },
    prompt_cache_options: { prompt_cache_options: {} },
    prompt_cache_retention: { prompt_cache_retention: "24h" },
    moderation: { moderation: { model: "m" } },
    access_programs: { access_programs: ["p"] },
    image: { image: {} },
  },
};

type MessagesField =
  | keyof Anthropic.MessageCreateParamsStreaming
  | keyof Anthropic.Beta.Messages.MessageCreateParamsStreaming;

const messages: Format<MessagesField> = {
  request: { max_tokens: 4000, messages: [{ role: "user", content: "hi" }] },
  read: turnRequestFromAnthropic,
  fields: {
    model: { model: "a/b" },
    max_tokens: { max_tokens: 7 },
    messages: { messages: [{ role: "user", content: "ho" }] },
    system: { system: "Be short." },
    tools: { tools: [{ name: "look", input_schema: schema }] },
    tool_choice: { tool_choice: { type: "any" } },
    temperature: { temperature: 0.5 },
    top_p: { top_p: 0.5 },
    stop_sequences: { stop_sequences: ["end"] },
    stream: { stream: true },
    thinking: { thinking: { type: "enabled", budget_tokens: 2000 } },
    output_config: { output_config: { effort: "low" } },
    output_format: { output_format: { type: "json_schema", schema } },
    container: { container: "container_1" },
    mcp_servers: { mcp_servers: [{ type: "url", name: "a", url: "https://example.com" }] },
    compaction: { compaction: {} },
    thread: { thread: {} },
    fallbacks: { fallbacks: [] },
    top_k: { top_k: 5 },
    cache_control: { cache_control: { type: "ephemeral" } },
    context_management: { context_management: { edits: [] } },
    metadata: { metadata: { user_id: "ada" } },
    service_tier: { service_tier: "auto" },
    speed: { speed: "fast" },
    inference_geo: { inference_geo: "us" },
    diagnostics: { diagnostics: {} },
    billing_policy: { billing_policy: {} },
    fallback_credit_token: { fallback_credit_token: "t" },
    betas: { betas: ["b"] },
    user_profile_id: { user_profile_id: "u" },
    workspace_id: { workspace_id: "w" },
  },
};

for (const [heading, format] of Object.entries({
  "## Chat Completions": chatCompletions,
  "## Responses": responses,
  "## Messages": messages,
} satisfies Record<string, Format<string>>)) {
  describe(`${heading.slice(3)}: each field of the vendor's is one of used, passed over and refused`, () => {
    const rows = rowsUnder(heading, "field | here | what it means");
    const named = rows.map(([field = ""]) => codesIn(field)[0] ?? "");

    test("all of them are in the table, once", () => {
      assert.deepEqual(named.toSorted(), Object.keys(format.fields).toSorted());
    });

    for (const [index, [, here = ""]] of rows.entries()) {
      const name = named[index] ?? "";
      test(`${name}: ${here}`, () => {
        const plain = format.read(format.request);
        const read = () => format.read({ ...format.request, ...format.fields[name] });
        if (here === "maps") assert.notDeepEqual(read(), plain);
        else if (here === "ignored") assert.deepEqual(read(), plain);
        else {
          assert.equal(here, "refused");
          assert.throws(read, (error) => {
            const [violation] = error instanceof AgentError ? error.fieldViolations : [];
            return violation?.field === name || violation?.field.startsWith(`${name}[`) === true;
          });
        }
      });
    }
  });
}

test("errors have the status and the word that the table says", () => {
  const rows = agentErrorKinds.map((kind) => {
    const { status, body } = openAIError(new AgentError(kind, "no"));
    const code = Code[errorCodes[kind]] ?? "";
    const grpc = code === "Canceled" ? "CANCELLED" : code.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
    return [`\`${kind}\``, grpc, `${status} ${body.error.type}`, anthropicErrors[kind].join(" ")];
  });
  assert.deepEqual(rowsUnder("## Errors", "kind | gRPC | OpenAI | Anthropic"), rows);
});

test("clients are not told to ask again after a tool that may have changed something", () => {
  const error = new AgentError("rate_limited", "slow down", { detail: { retryable: true, sideEffectPossible: true } });
  const before = new AgentError("rate_limited", "slow down", { detail: { retryable: true } });
  for (const api of [chatCompletionsApi, messagesApi]) {
    assert.equal(api.error(error).headers?.["x-should-retry"], "false");
    assert.equal(api.error(before).headers?.["x-should-retry"], "true");
  }
});

test("finish reasons are told by the words of the table", () => {
  const rows = finishReasons.map((reason) => {
    const ending: { readonly status: string; readonly reason?: string } = responseEndings[reason];
    const isFailure = reason === "error";
    return [
      `\`${reason}\``,
      // The API tells both as errors, see `chatCompletionsApi`.
      isFailure ? "error" : reason === "cancelled" ? "error 499" : completionFinishReasons[reason],
      ending.reason === undefined ? ending.status : `${ending.status}: ${ending.reason}`,
      isFailure ? "error" : stopToAnthropic(reason, "", []).stop_reason,
      legacyFinishReasons[reason],
    ];
  });
  const head = "finish reason | Chat Completions | Responses | Messages | earlier service";
  assert.deepEqual(rowsUnder("## What maps to what", head), rows);
});

describe("the earlier service", () => {
  const rpcs = rowsUnder("### RPCs", "RPC | right | what it does here");

  test("has all its RPCs in the table", () => {
    const names = rpcs.map(([name = ""]) => codesIn(name)[0]);
    assert.deepEqual(names, CodeAgentService.methods.map(({ name }) => name).toSorted(inOrderOf(names)));
    assert.equal(new Set(names).size, CodeAgentService.methods.length);
  });

  test("asks for the admin right where the table says so", { timeout: 20_000 }, async (context) => {
    const { transport } = await startTestApp(context, { flags: { admin_api: "off" } });
    const client = createClient(CodeAgentService, transport);
    const refused: string[] = [];
    const { subscribeEvents: _, streamGenerate: __, streamGenerateStructured: ___, ...unary } = client;
    for (const method of CodeAgentService.methods) {
      if (method.methodKind !== "unary") continue;
      const call: unknown = Reflect.get(unary, method.localName);
      assert.ok(typeof call === "function");
      await Promise.resolve(call({})).catch((error: unknown) => {
        if (ConnectError.from(error).code === Code.PermissionDenied) refused.push(method.name);
      });
    }
    const marked = rpcs.flatMap(([name = "", right]) => (right === "admin" ? codesIn(name) : []));
    assert.deepEqual(refused.toSorted(), marked.toSorted());
  });

  test("has all its events in the table", () => {
    const rows = rowsUnder("### Events", "event | when | data");
    const known = Object.keys(EventType).filter((name) => /^[A-Z_]+$/.test(name) && name !== "UNKNOWN");
    assert.deepEqual(rows.flatMap(([name = ""]) => codesIn(name)).toSorted(), known.toSorted());
  });

  const tools = rowsUnder("### Tools and permission rules", "then | here");
  for (const [then = "", here = ""] of tools)
    test(`calls ${here} ${then}`, () => {
      const names = codesIn(then).map((name) => functionNameFor(name, []));
      assert.deepEqual([...new Set(names)], codesIn(here));
    });

  for (const [list, rule = "", becomes = ""] of rowsUnder("### Tools and permission rules", "list | rule | becomes"))
    test(`reads ${list} ${rule}`, () => {
      const into = ruleLists.find((each) => each === list) ?? assert.fail(`there is no list ${list}`);
      const reading = rulesFromLegacy(codesIn(rule)[0] ?? "", into, []);
      const rules = "rules" in reading ? reading.rules.map((each) => `${each.list} \`${each.rule}\``) : [];
      const said = [...becomes.matchAll(/(?:allow|ask|deny) `[^`]+`/g)].map(([text]) => text);
      assert.deepEqual(rules, said);
      assert.equal(rules.length === 0, becomes.startsWith("nothing"));
    });

  test("has a tier for each type of memory", () => {
    const tiers = {
      "long term": memoryTiers.longTerm,
      "short term": memoryTiers.shortTerm,
      working: memoryTiers.working,
    };
    const rows = Object.entries(tiers).map(([tier, types]) => [
      types.map((type) => `\`${type.toUpperCase()}\``).join(", "),
      tier,
    ]);
    assert.deepEqual(rowsUnder("### Memories", "type | tier"), rows);
    const types = Object.values(tiers).flat();
    assert.equal(types.length, Object.values(MemoryType).filter((value) => typeof value === "number").length);
  });

  for (const [phrase = "", fields = "", read = ""] of rowsUnder("### Cron phrases", "phrase | fields | read as"))
    test(`reads when: ${phrase}`, () => {
      const found = readCronPhrase(codesIn(phrase)[0] ?? "");
      const said = found.ok ? [`\`${found.cron}\``, describeCron(found.cron)] : ["–", "refused"];
      assert.deepEqual([fields, found.ok ? read : read.slice(0, "refused".length)], said);
    });
});

/** Sorts by the places in a list, what is not in it last. */
function inOrderOf(names: readonly (string | undefined)[]) {
  const place = (name: string) => (names.includes(name) ? names.indexOf(name) : names.length);
  return (left: string, right: string) => place(left) - place(right);
}
