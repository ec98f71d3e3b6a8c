import { type AgentClient, grpcClient, streamTexts } from "./grpc-client.ts";
import {
  type BenchOptions,
  type BenchProcess,
  interleaved,
  type Measured,
  percentile,
  type Sample,
  startProcess,
} from "./harness.ts";
import { agesMs, deltaLength, readUpstream } from "./upstream-client.ts";

/** Reads one answer in texts of any number of deltas. */
type Read = (model: string) => AsyncIterable<string>;

interface Peer {
  readonly read: Read;
  readonly process?: BenchProcess;
}

/**
 * Streams from the upstream through the service, beside its peers. The service puts the deltas of one read into one
 * message, so what is counted is the upstream's deltas, wherever they arrive.
 */
export async function measureStreams({ quick, profileDir }: BenchOptions): Promise<Measured[]> {
  await using upstream = await startProcess("upstream.ts");
  await using service = await startProcess("service.ts", [upstream.ready], profileDir);
  await using slower = await startProcess("service.ts", [upstream.ready, "connect"]);
  await using bare = await startProcess("bare.ts", [upstream.ready]);
  const bareRead = reader(bare);
  const peers: Record<string, Peer> = {
    "connect-node, one message per delta": { read: bareRead, process: bare },
    codeagent: { read: reader(service, "forward/"), process: service },
    "codeagent, without its fast path": { read: reader(slower, "forward/"), process: slower },
    "upstream read directly": { read: (model) => readDirectly(upstream.ready, model) },
  };
  const fromMemory: Peer = { read: (model) => bareRead(model.replace(/^[a-z]+/, "memory")), process: bare };
  const rounds = quick ? 1 : 9;
  const warmUps = quick ? 1 : 6;
  const measured: Measured[] = [];
  const compare = async (what: string, some: Record<string, Peer>, run: (peer: Peer) => Promise<Sample>) => {
    const runs = Object.entries(some).map(([name, peer]) => [name, () => run(peer)] as const);
    measured.push(...(await interleaved(what, Object.fromEntries(runs), rounds, warmUps)));
  };
  const kept: Peer = { read: reader(service, "forward/", true), process: service };
  const withMemory = {
    ...peers,
    "codeagent, a new session that is kept": kept,
    "connect-node, from memory": fromMemory,
  };
  await compare("1 stream of 2,000, all at once", withMemory, (peer) => throughput(peer, "whole-2000", 1));
  await compare("1 stream of 2,000, a write each", peers, (peer) => throughput(peer, "each-2000", 1));
  await compare("32 streams of 100, a write each", withMemory, (peer) => throughput(peer, "each-100", 32));
  await compare("first delta, one stream at a time", peers, (peer) => firstDelta(peer, quick ? 20 : 100));
  const timed = quick ? "timed-50-20" : "timed-200-20";
  await compare("20 streams of 50 deltas/s", peers, (peer) => throughput(peer, timed, 20));
  measured.push(
    ...(await interleaved(
      "200 streams of 50 deltas/s",
      Object.fromEntries(Object.entries(peers).map(([name, peer]) => [name, () => throughput(peer, timed, 200)])),
      quick ? 1 : 3,
      1,
    )),
  );
  return measured;
}

async function throughput({ read, process }: Peer, model: string, streams: number): Promise<Sample> {
  const ages: number[] = [];
  let deltas = 0;
  const cpuBefore = (await process?.cpuMicros()) ?? 0;
  const start = performance.now();
  await Promise.all(
    Array.from({ length: streams }, async () => {
      for await (const text of read(model)) {
        deltas += text.length / deltaLength;
        for (const age of agesMs(text)) ages.push(age);
      }
    }),
  );
  const tookMs = performance.now() - start;
  const cpu = process === undefined ? undefined : (await process.cpuMicros()) - cpuBefore;
  const expected = streams * Number(model.split("-")[1]);
  if (deltas !== expected) throw new Error(`${deltas} deltas came, not ${expected}`);
  return {
    ...(model.startsWith("timed") ? {} : { "ms in all": tookMs, "deltas/s": (deltas / tookMs) * 1000 }),
    ...(cpu === undefined ? {} : { "µs of CPU per delta": cpu / deltas }),
    ...(model.startsWith("timed")
      ? { "ms from write to reader, p50": percentile(ages, 50), "ms from write to reader, p99": percentile(ages, 99) }
      : {}),
  };
}

async function firstDelta({ read }: Peer, times: number): Promise<Sample> {
  const tookMs: number[] = [];
  for (let time = 0; time < times; time++) {
    const start = performance.now();
    let first: number | undefined;
    for await (const _ of read("whole-1")) first ??= performance.now() - start;
    tookMs.push(first ?? Number.NaN);
  }
  return { "ms, p50": percentile(tookMs, 50), "ms, p99": percentile(tookMs, 99) };
}

/** Spreads its streams over four connections: servers bound the streams of one. */
function reader(process: BenchProcess, modelPrefix = "", keep = false): Read {
  const clients: AgentClient[] = Array.from({ length: 4 }, () => grpcClient(process.ready));
  let next = 0;
  return async function* (model) {
    const client = clients[next++ % clients.length];
    if (client === undefined) return;
    const sessionId = keep ? (await client.createSession({})).sessionId : "";
    yield* streamTexts(client, `${modelPrefix}${model}`, sessionId);
  };
}

async function* readDirectly(url: string, model: string): AsyncGenerator<string> {
  for await (const texts of readUpstream(url, model)) yield texts.join("");
}
