import { type AgentClient, grpcClient, streamTexts } from "./grpc-client.ts";
import {
  type BenchOptions,
  interleaved,
  type Measured,
  percentile,
  repeated,
  type Sample,
  startProcess,
} from "./harness.ts";
import { hello, readUpstream } from "./upstream-client.ts";

const calls = 10;
const model = `tools-${calls}`;

/** Turns of ten tool calls in kept sessions, every step durable, beside a loop that only asks the upstream. */
export async function measureToolLoop({ quick, profileDir }: BenchOptions): Promise<Measured[]> {
  await using upstream = await startProcess("upstream.ts");
  await using service = await startProcess("service.ts", [upstream.ready], profileDir);
  const client = grpcClient(service.ready);
  const turns = quick ? 3 : 30;
  const gaps = async (run: () => Promise<unknown>): Promise<Sample> => {
    await upstream.ask("gaps");
    const tookMs = await repeated(turns, 1, run);
    const gapsMs = await upstream.ask("gaps");
    return {
      "ms per turn, p50": percentile(tookMs, 50),
      "ms the upstream waits, p50": percentile(gapsMs, 50),
      "ms the upstream waits, p99": percentile(gapsMs, 99),
    };
  };
  const runs = {
    "bare loop over node:http": () => gaps(() => bareLoop(upstream.ready)),
    codeagent: () => gaps(() => sessionTurn(client)),
  };
  const measured = await interleaved("turn of 10 tool calls", runs, quick ? 1 : 5, quick ? 1 : 2);
  const atOnce = async (): Promise<Sample> => {
    const start = performance.now();
    const cpuBefore = await service.cpuMicros();
    await repeated(turns * 8, 8, () => sessionTurn(client));
    return {
      "turns/s": ((turns * 8) / (performance.now() - start)) * 1000,
      "ms of CPU per turn": ((await service.cpuMicros()) - cpuBefore) / 1000 / (turns * 8),
    };
  };
  return [...measured, ...(await interleaved("the same, 8 at once", { codeagent: atOnce }, quick ? 1 : 5, 1))];
}

async function sessionTurn(client: AgentClient): Promise<void> {
  const session = await client.createSession({});
  let text = "";
  for await (const some of streamTexts(client, `forward/${model}`, session.sessionId)) text += some;
  if (text === "") throw new Error("a turn without an answer");
}

async function bareLoop(url: string): Promise<void> {
  const history: object[] = [hello];
  for (let call = 0; call <= calls; call++) {
    for await (const _ of readUpstream(url, model, history));
    history.push({ role: "tool", tool_call_id: `call_${call}`, content: "nothing to see" });
  }
}
