// The client package in Node.js. In a project of your own it is imported from "codeagent".
import {
  type AnyMessage,
  chatCompletion,
  createCodeAgentClient,
  hasToolCalls,
  messageFromResponse,
  responseText,
  streamChatCompletion,
} from "../../sdk/index.ts";

using client = createCodeAgentClient({
  baseUrl: process.env["CODEAGENT_URL"] ?? "http://127.0.0.1:4088",
  token: process.env["CODEAGENT_TOKEN"] ?? "",
});

// A question; the server lists and reads files by itself where the model wants to.
const answer = await chatCompletion(client, { messages: [{ role: "user", content: "What is in this project?" }] });
console.log(`answer: ${responseText(answer)}`);

// The same, as it is written.
process.stdout.write("stream: ");
const stream = streamChatCompletion(client, { messages: [{ role: "user", content: "What is in this project?" }] });
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
process.stdout.write("\n");

// A function of the caller's own: the answer ends with its call, and goes on when the result is sent.
const tools = [
  {
    type: "function" as const,
    function: {
      name: "get_weather",
      description: "The weather of a place now",
      parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
    },
  },
];
const messages: AnyMessage[] = [{ role: "user", content: "How is the weather in Basel?" }];
let reply = await chatCompletion(client, { messages, tools });
while (hasToolCalls(reply)) {
  const message = messageFromResponse(reply);
  messages.push(message);
  for (const call of message.tool_calls ?? [])
    messages.push({ role: "tool", tool_call_id: call.id, content: JSON.stringify({ sky: "sunny", celsius: 21 }) });
  reply = await chatCompletion(client, { messages, tools });
}
console.log(`with a function of ours: ${responseText(reply)}`);

// A session keeps the history: only what is new is sent.
const { sessionId } = await client.createSession({ title: "an example" });
await chatCompletion(client, { session_id: sessionId, messages: [{ role: "user", content: "I am Ada." }] });
const known = await chatCompletion(client, {
  session_id: sessionId,
  messages: [{ role: "user", content: "What is my name?" }],
});
console.log(`in a session: ${responseText(known)}`);
await client.deleteSession({ sessionId });
