// What the page does. In a project of your own the package is imported from "codeagent".
import { createCodeAgentClient, streamChatCompletion } from "../../../sdk/browser.ts";

const server = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:4088";
const client = createCodeAgentClient({ baseUrl: server });
const form = document.querySelector("form");
const question = document.querySelector("input");
const answer = document.querySelector("output");

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (question === null || answer === null) return;
  answer.textContent = "";
  try {
    const stream = streamChatCompletion(client, { messages: [{ role: "user", content: question.value }] });
    for await (const chunk of stream) answer.textContent += chunk.choices[0]?.delta.content ?? "";
    answer.dataset["state"] = "done";
  } catch (error) {
    answer.textContent = error instanceof Error ? error.message : String(error);
    answer.dataset["state"] = "failed";
  }
});
