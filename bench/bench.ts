// Measures the service beside its peers and prints one table. `--only <name>` measures one thing, `--quick` only shows
// that everything runs, `--profile <dir>` leaves CPU profiles of the service there.
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { measureAppends } from "./appends.ts";
import { measureConversions } from "./convert.ts";
import { measureDecode } from "./decode.ts";
import { measureFootprint } from "./footprint.ts";
import { measureFunctions } from "./functions.ts";
import type { BenchOptions, Measured } from "./harness.ts";
import { measurePermissions } from "./permission.ts";
import { measureReplicas } from "./replicas.ts";
import { measureStreams } from "./stream.ts";
import { measureToolLoop } from "./tool-loop.ts";
import { measureTools } from "./tools.ts";
import { measureUnary } from "./unary.ts";

const measurements: Readonly<Record<string, (options: BenchOptions) => Promise<Measured[]>>> = {
  stream: measureStreams,
  unary: measureUnary,
  "tool-loop": measureToolLoop,
  tools: measureTools,
  decode: measureDecode,
  convert: measureConversions,
  functions: measureFunctions,
  permission: measurePermissions,
  appends: measureAppends,
  replicas: measureReplicas,
  footprint: measureFootprint,
};

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    quick: { type: "boolean", default: false },
    profile: { type: "string" },
  },
});
if (values.only !== undefined && !Object.hasOwn(measurements, values.only)) {
  console.error(`there is no benchmark ${values.only}; there are: ${Object.keys(measurements).join(", ")}`);
  process.exit(2);
}
const options: BenchOptions = {
  quick: values.quick,
  ...(values.profile === undefined ? {} : { profileDir: values.profile }),
};
const machine = { cores: cpus().length, node: process.version, platform: `${process.platform}-${process.arch}` };
console.log(
  `${machine.cores} cores, Node.js ${machine.node}, ${machine.platform}. × compares with the first line of its kind.`,
);
for (const [name, measure] of Object.entries(measurements)) {
  if (values.only !== undefined && values.only !== name) continue;
  const measured = await measure(options);
  print(measured);
  const folder = new URL("./results/", import.meta.url);
  mkdirSync(folder, { recursive: true });
  const result = { name, date: new Date().toISOString(), quick: options.quick, machine, measured };
  writeFileSync(new URL(`${name}.json`, folder), `${JSON.stringify(result, null, 2)}\n`);
}
// Kept connections would hold this process.
process.exit();

function print(measured: readonly Measured[]): void {
  let title = "";
  for (const { what, peer, unit, median, low, high, ratio } of measured) {
    if (title !== `${what}: ${unit}`) {
      title = `${what}: ${unit}`;
      console.log(`\n${title}`);
    }
    const spread = `${shown(low)} - ${shown(high)}`;
    console.log(`  ${peer.padEnd(46)}${shown(median).padStart(10)}  ${spread.padEnd(20)} × ${ratio.toFixed(2)}`);
  }
}

function shown(value: number): string {
  if (value >= 1000) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
