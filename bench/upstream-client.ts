import http from "node:http";
import { createParser } from "eventsource-parser";

const agent = new http.Agent({ keepAlive: true, maxSockets: 1000 });

/** Asks the upstream without anything between: yields the texts of the deltas of each read. */
export async function* readUpstream(url: string, model: string, messages: readonly object[] = [hello]) {
  const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
  const request = http.request(`${url}/chat/completions`, { method: "POST", agent }, resolve);
  request.on("error", reject);
  request.end(JSON.stringify({ model, messages, stream: true }));
  let texts: string[] = [];
  const parser = createParser({
    onEvent({ data }) {
      if (data === "[DONE]") return;
      const text: unknown = JSON.parse(data).choices?.[0]?.delta?.content;
      if (typeof text === "string") texts.push(text);
    },
  });
  const decoder = new TextDecoder();
  for await (const bytes of await promise) {
    parser.feed(decoder.decode(bytes, { stream: true }));
    if (texts.length > 0) yield texts;
    texts = [];
  }
}

export const hello = { role: "user", content: "hi" };

/** The length of every delta of the upstream, in characters. */
export const deltaLength = 16;

/** What a delta says: when it was written, in microseconds of the machine's clock. */
export function stamp(): string {
  return `${nowMicros()} `.padStart(deltaLength, "0");
}

/** How long ago the deltas in a text were written, in milliseconds. */
export function agesMs(text: string): number[] {
  const now = nowMicros();
  const ages: number[] = [];
  for (let at = 0; at < text.length; at += deltaLength)
    ages.push((now - Number(text.slice(at, at + deltaLength))) / 1000);
  return ages;
}

/** The same clock in every process of this machine. */
function nowMicros(): number {
  return Math.round(Number(process.hrtime.bigint()) / 1000);
}
