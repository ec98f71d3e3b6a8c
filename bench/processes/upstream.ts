// An OpenAI-like provider on loopback. The model's name says what it answers:
// `whole-2000` 2,000 deltas in as few writes as possible, `each-2000` one write for each as fast as the loop lets,
// `timed-250-20` 250 deltas, one every 20 ms, `tools-10` tool calls until the turn has 10 results.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { answerParent } from "../harness.ts";
import { stamp } from "../upstream-client.ts";

let gapsMs: number[] = [];
let answeredAtMs: number | undefined;

const server = http.createServer({ keepAliveTimeout: 600_000 }, async (request, response) => {
  const arrivedAtMs = performance.now();
  let body = "";
  for await (const piece of request) body += piece;
  const { model, messages } = JSON.parse(body);
  const [way, count, intervalMs] = String(model).split("-");
  response.writeHead(200, { "content-type": "text/event-stream" });
  if (way === "tools") {
    const results = messages.filter((message: { role: string }) => message.role === "tool").length;
    if (results > 0 && answeredAtMs !== undefined) gapsMs.push(arrivedAtMs - answeredAtMs);
    response.end(results < Number(count) ? toolCall(results) : `${chunk({ content: stamp() })}${last}`);
    answeredAtMs = performance.now();
    return;
  }
  if (way === "whole")
    response.write(Array.from({ length: Number(count) }, () => chunk({ content: stamp() })).join(""));
  else await writeOneByOne(response, Number(count), intervalMs === undefined ? undefined : Number(intervalMs));
  response.end(last);
});

async function writeOneByOne(response: http.ServerResponse, count: number, intervalMs: number | undefined) {
  let left = count;
  const write = () => {
    left--;
    return response.write(chunk({ content: stamp() }));
  };
  if (intervalMs !== undefined) {
    const { promise, resolve } = Promise.withResolvers<void>();
    // All streams begin at the same time; their deltas do not.
    await wait(Math.random() * intervalMs);
    const timer = setInterval(() => {
      write();
      if (left === 0 || response.destroyed) resolve();
    }, intervalMs);
    await promise;
    clearInterval(timer);
    return;
  }
  while (left > 0 && !response.destroyed) {
    if (write()) await new Promise(setImmediate);
    else await new Promise<void>((resolve) => void response.once("drain", resolve).once("close", resolve));
  }
}

function chunk(delta: object, finishReason: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finishReason }];
  return `data: ${JSON.stringify({ id: "chat-1", object: "chat.completion.chunk", model: "bench", choices })}\n\n`;
}

const last = `${chunk({}, "stop")}data: [DONE]\n\n`;

function toolCall(number: number): string {
  const called = { name: "look", arguments: '{"at":"here"}' };
  const calls = [{ index: 0, id: `call_${number}`, type: "function", function: called }];
  return `${chunk({ role: "assistant", tool_calls: calls })}${chunk({}, "tool_calls")}data: [DONE]\n\n`;
}

server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  // The only question is how long it waited between an answer and the next request of its turn.
  answerParent(`http://127.0.0.1:${port}/v1`, () => {
    const gaps = gapsMs;
    gapsMs = [];
    return gaps;
  });
});
