import type { JsonValue } from "@bufbuild/protobuf";
import { type BadRequest, chat, messages, noTools, responses, rpc, rpcs, turn, typed } from "./bad-request.ts";

/** A tool of the client, in each dialect. */
const ours = (name: string, parameters: string) => ({ name, parameters });
const ofChat = (name: string, parameters: JsonValue) => ({ type: "function", function: { name, parameters } });
const ofResponses = (name: string, parameters: JsonValue) => ({ type: "function", name, parameters });
const ofAnthropic = (name: string, input_schema: JsonValue) => ({ name, input_schema });

/** Which functions there are, and which is called. */
export const badTools: readonly BadRequest[] = [
  {
    fault: "two tools of one name",
    ...rpcs(turn({ tools: [ours("f", "{}"), ours("f", "{}")] }), "tools[1].name"),
    chat: chat({ tools: [ofChat("f", {}), ofChat("f", {})] }, "tools[1].function.name"),
    responses: responses({ tools: [ofResponses("f", {}), ofResponses("f", {})] }, "tools[1].name"),
    messages: messages({ tools: [ofAnthropic("f", {}), ofAnthropic("f", {})] }, "tools.1.name"),
    legacy: noTools,
  },
  {
    fault: "a tool without a name",
    ...rpcs(turn({ tools: [ours("", "{}")] }), "tools[0].name"),
    chat: chat({ tools: [ofChat("", {})] }, "tools[0].function.name"),
    responses: responses({ tools: [ofResponses("", {})] }, "tools[0].name"),
    messages: messages({ tools: [ofAnthropic("", {})] }, "tools.0.name"),
    legacy: noTools,
  },
  {
    fault: "a tool whose parameters are a list",
    ...rpcs(turn({ tools: [ours("f", "[]")] }), "tools[0].parameters"),
    chat: chat({ tools: [ofChat("f", [])] }, "tools[0].function.parameters"),
    responses: responses({ tools: [ofResponses("f", [])] }, "tools[0].parameters"),
    messages: messages({ tools: [ofAnthropic("f", [])] }, "tools.0.input_schema"),
    legacy: noTools,
  },
  {
    fault: "a tool whose parameters are no JSON",
    ...rpcs(turn({ tools: [ours("f", "{a}")] }), "tools[0].parameters"),
    chat: chat({ tools: [ofChat("f", "{a}")] }, "tools[0].function.parameters"),
    responses: responses({ tools: [ofResponses("f", "{a}")] }, "tools[0].parameters"),
    messages: messages({ tools: [ofAnthropic("f", "{a}")] }, "tools.0.input_schema"),
    legacy: noTools,
  },
  {
    fault: "a tool that the vendor would run",
    grpc: "its tools have no type",
    connect: "its tools have no type",
    chat: chat({ tools: [{ type: "custom", custom: { name: "f" } }] }, "tools[0].type"),
    responses: responses({ tools: [{ type: "web_search" }] }, "tools[0].type"),
    messages: messages({ tools: [{ type: "web_search_20250305", name: "web_search" }] }, "tools.0.type"),
    legacy: noTools,
  },
  {
    fault: "the choice of a tool that is not there",
    ...rpcs(turn({ tools: [ours("f", "{}")], options: { toolChoice: "g" } }), "options.tool_choice"),
    chat: chat({ tools: [ofChat("f", {})], tool_choice: { type: "function", function: { name: "g" } } }, "tool_choice"),
    responses: responses(
      { tools: [ofResponses("f", {})], tool_choice: { type: "function", name: "g" } },
      "tool_choice",
    ),
    messages: messages({ tools: [ofAnthropic("f", {})], tool_choice: { type: "tool", name: "g" } }, "tool_choice.name"),
    legacy: noTools,
  },
  {
    fault: "the choice of a tool that is a number",
    grpc: typed,
    connect: rpc({ request: turn({ options: { toolChoice: 7 } }) }, undefined, { reason: "" }),
    chat: chat({ tool_choice: 7 }, "tool_choice"),
    responses: responses({ tool_choice: 7 }, "tool_choice"),
    messages: messages({ tool_choice: 7 }, "tool_choice"),
    legacy: noTools,
  },
  {
    fault: "a choice nobody knows",
    grpc: "any other word is the name of a tool",
    connect: "any other word is the name of a tool",
    chat: chat({ tool_choice: "sometimes" }, "tool_choice"),
    responses: responses({ tool_choice: { type: "mcp" } }, "tool_choice.type"),
    messages: messages({ tool_choice: { type: "sometimes" } }, "tool_choice.type"),
    legacy: noTools,
  },
];
