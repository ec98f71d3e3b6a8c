// What connect-node does at best: the same messages from memory (model `memory-2000`), and from the same upstream with
// one message for each delta. No sessions, no log, no checks.
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { setDefaultHighWaterMark } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { CodeAgentService, GenerateChunkSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { answerParent } from "../harness.ts";
import { readUpstream, stamp } from "../upstream-client.ts";

setDefaultHighWaterMark(false, 4096);
const [upstreamUrl = ""] = process.argv.slice(2);

const routes = connectNodeAdapter({
  routes(router) {
    router.service(CodeAgentService, {
      async *streamGenerate({ model }) {
        let seq = 0n;
        const [way, count] = model.split("-");
        if (way === "memory") for (; seq < Number(count); seq++) yield textChunk(seq, stamp());
        else {
          for await (const texts of readUpstream(upstreamUrl, model))
            for (const text of texts) yield textChunk(++seq, text);
        }
      },
      async generate({ model }) {
        const [way] = model.split("-");
        let content = "";
        if (way === "memory") content = stamp();
        else for await (const texts of readUpstream(upstreamUrl, model)) content += texts.join("");
        return { message: { role: "assistant", contentType: { case: "content", value: content } } };
      },
    });
  },
});

function textChunk(seq: bigint, text: string) {
  return create(GenerateChunkSchema, {
    seq,
    sessionId: "ses_00000000000000000000000000000000",
    turnId: "turn_00000000000000000000000000000000",
    time: timestampFromMs(Date.now()),
    event: { case: "blockDelta", value: { index: 0, delta: { case: "text", value: text } } },
  });
}

const server = createServer({ settings: { maxConcurrentStreams: 1000 } }, routes);
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  answerParent(`http://127.0.0.1:${port}`);
});
