import { type AgentClient, grpcClient, messages } from "./grpc-client.ts";
import {
  type BenchOptions,
  type BenchProcess,
  interleaved,
  type Measured,
  percentile,
  repeated,
  type Sample,
  startProcess,
} from "./harness.ts";
import { readUpstream } from "./upstream-client.ts";

/** Unary calls against an upstream that answers at once, beside asking the upstream directly. */
export async function measureUnary({ quick, profileDir }: BenchOptions): Promise<Measured[]> {
  await using upstream = await startProcess("upstream.ts");
  await using service = await startProcess("service.ts", [upstream.ready], profileDir);
  await using slower = await startProcess("service.ts", [upstream.ready, "connect"]);
  await using bare = await startProcess("bare.ts", [upstream.ready]);
  const bareClient = grpcClient(bare.ready);
  const serviceClient = grpcClient(service.ready);
  const slowerClient = grpcClient(slower.ready);
  const calls = quick ? 50 : 500;
  const measured: Measured[] = [];
  for (const inFlight of [1, 8, 32]) {
    const runs = {
      "upstream asked directly": () => timed(calls, inFlight, () => askDirectly(upstream.ready)),
      codeagent: () => timed(calls, inFlight, () => generate(serviceClient, "forward/whole-1"), service),
      "codeagent, without its fast path": () =>
        timed(calls, inFlight, () => generate(slowerClient, "forward/whole-1"), slower),
      "connect-node, upstream asked": () => timed(calls, inFlight, () => generate(bareClient, "whole-1"), bare),
      "connect-node, from memory": () => timed(calls, inFlight, () => generate(bareClient, "memory-1"), bare),
    };
    measured.push(...(await interleaved(`unary, ${inFlight} in flight`, runs, quick ? 1 : 5, quick ? 1 : 2)));
  }
  return measured;
}

async function timed(
  calls: number,
  inFlight: number,
  call: () => Promise<void>,
  process?: BenchProcess,
): Promise<Sample> {
  const cpuBefore = await process?.cpuMicros();
  const start = performance.now();
  const tookMs = await repeated(calls, inFlight, call);
  const allMs = performance.now() - start;
  return {
    "calls/s": (calls / allMs) * 1000,
    "ms, p50": percentile(tookMs, 50),
    "ms, p99": percentile(tookMs, 99),
    ...(process === undefined
      ? {}
      : { "µs of CPU per call": ((await process.cpuMicros()) - (cpuBefore ?? 0)) / calls }),
  };
}

async function generate(client: AgentClient, model: string): Promise<void> {
  const { message } = await client.generate({ model, messages });
  if (message === undefined) throw new Error("an answer without a message");
}

async function askDirectly(url: string): Promise<void> {
  for await (const _ of readUpstream(url, "whole-1"));
}
