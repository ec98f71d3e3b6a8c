// OpenAI's own package, pointed at this server. The model is one of the server's: GET /v1/models lists them.
import OpenAI from "openai";

const baseUrl = process.env["CODEAGENT_URL"] ?? "http://127.0.0.1:4088";
const openai = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: process.env["CODEAGENT_TOKEN"] || "none" });
const model = process.env["CODEAGENT_MODEL"] ?? (await openai.models.list()).data[0]?.id ?? "";

const stream = await openai.chat.completions.create({
  model,
  messages: [{ role: "user", content: "What is in this project?" }],
  stream: true,
});
process.stdout.write("chat: ");
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
process.stdout.write("\n");

// Each answer can be gone on from by its id.
const first = await openai.responses.create({ model, input: "I am Ada." });
const second = await openai.responses.create({ model, input: "What is my name?", previous_response_id: first.id });
console.log(`responses: ${second.output_text}`);
