import { indexFunctions } from "../src/tool/function-index.ts";
import type { FunctionContext, FunctionDefinition, FunctionProvider } from "../src/tool/function-provider.ts";
import { FunctionSets } from "../src/tool/function-sets.ts";
import { runFunction } from "../src/tool/run-function.ts";
import { type BenchOptions, interleaved, type Measured, type Sample } from "./harness.ts";

const parameters = JSON.stringify({
  type: "object",
  properties: { path: { type: "string" }, start_line: { type: "integer", minimum: 1 }, all: { type: "boolean" } },
  required: ["path"],
  additionalProperties: false,
});

/** What a call of a function in this process costs beside the bare call, and a list of a thousand of them. */
export async function measureFunctions({ quick }: BenchOptions): Promise<Measured[]> {
  const [rounds, warm] = quick ? [1, 1] : [9, 3];
  return [
    ...(await interleaved("a call of a local function", await callPeers(quick ? 100 : 20_000), rounds, warm)),
    ...(await interleaved("the set of 1,000 functions of 20 sources", await listPeers(quick ? 2 : 200), rounds, warm)),
  ];
}

async function callPeers(times: number) {
  const provider = manyFunctions("local", 1);
  const functions = await indexFunctions([provider]);
  const context: FunctionContext = {
    sessionId: "s",
    turnId: "t",
    toolCallId: "c",
    workspace: "/",
    signal: new AbortController().signal,
  };
  const argumentsText = JSON.stringify({ path: "src/main.ts", start_line: 10, all: false });
  const call = { name: "local_0", arguments: JSON.parse(argumentsText) };
  return {
    "the bare call": () => timed("µs/call", times, () => provider.call(call, context)),
    "runFunction (arguments checked, limits kept)": () =>
      timed("µs/call", times, () => runFunction(functions, { name: call.name, argumentsText }, context)),
  };
}

async function listPeers(times: number) {
  const providers = Array.from({ length: 20 }, (_, index) => manyFunctions(`mcp:server${index}`, 50));
  const sets = new FunctionSets({ providers, now: Date.now });
  await sets.current("/");
  return {
    "JSON of the list": async () => {
      const { definitions } = await sets.current("/");
      return timed("µs/list", times, async () => JSON.stringify(definitions));
    },
    "composed anew": () => timed("µs/list", times, () => indexFunctions(providers)),
    "while nothing has changed": () => timed("µs/list", times, () => sets.current("/")),
  };
}

function manyFunctions(source: string, count: number): FunctionProvider {
  const definitions = Array.from(
    { length: count },
    (_, index): FunctionDefinition => ({
      name: `${source.replace(":", "_")}_${index}`,
      description: "Reads a file, or some of its lines, and says how long it is.",
      parameters,
      source,
      readOnly: true,
      timeoutMs: 30_000,
    }),
  );
  return {
    source,
    list: async () => definitions,
    call: async () => ({ success: true, output: "done" }),
    close: async () => {},
  };
}

async function timed<Unit extends string>(unit: Unit, times: number, run: () => Promise<unknown>): Promise<Sample> {
  const start = performance.now();
  for (let time = 0; time < times; time++) await run();
  return { [unit]: ((performance.now() - start) * 1000) / times };
}
