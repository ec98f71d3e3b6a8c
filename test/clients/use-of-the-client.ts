/** What is tried with the client package where it runs: a script for the model, a program, and what it tells. */
export const useOfTheClient = {
  script: `
- thinking: hm
  text: Grüezi, this is the answer 🌞
  chunk: 5
`,
  program: `
import { chatCompletion, createCodeAgentClient, responseText, responseThinking, streamChatCompletion } from "codeagent";
const told = async () => {
  const results: unknown[] = [];
  for (const transport of ["connect", "grpc-web"] as const) {
    const client = createCodeAgentClient({ baseUrl: globalThis.baseUrl, transport });
    const messages = [{ role: "user" as const, content: "hello" }];
    const answer = await chatCompletion(client, { messages });
    let streamed = "";
    for await (const chunk of streamChatCompletion(client, { messages })) streamed += chunk.choices[0]?.delta.content ?? "";
    const refused = await chatCompletion(client, { messages: [{ role: "robot", content: "x" }] }).catch((error) => error.message);
    const unknown = await client.getSession({ sessionId: "none" }).catch((error) => error.code);
    const { sessionId } = await client.createSession({ title: "from here" });
    const session = await client.getSession({ sessionId });
    results.push([responseText(answer), responseThinking(answer), streamed, refused.includes("messages[0].role"), unknown, session.title]);
  }
  return results;
};
told().then((results) => globalThis.tell(JSON.stringify(results)), (error) => globalThis.tell(JSON.stringify(String(error?.stack ?? error))));
`,
  result: ["connect", "grpc-web"].map(() => [
    "Grüezi, this is the answer 🌞",
    "hm",
    "Grüezi, this is the answer 🌞",
    true,
    5,
    "from here",
  ]),
};
