// Runs every exchange of a folder of recorded provider traffic through the readers and writers of this service:
// CORPUS_DIR=folder npm run corpus -- [--sizes 1,64] [--only id]
// Prints a table and each failure; exits with 1 when there is one, with 2 when there is nothing to run.
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { checkExchange } from "./check-exchange.ts";
import { type Exchange, readCorpus } from "./exchange.ts";
import type { Finding } from "./findings.ts";
import { startReplay } from "./replay.ts";

const { values } = parseArgs({
  options: { sizes: { type: "string" }, only: { type: "string" }, tags: { type: "boolean", default: true } },
  allowNegative: true,
});
const sizes = values.sizes?.split(",").map(Number);
if (sizes?.some((size) => !Number.isInteger(size) || size < 1))
  stop("--sizes takes whole numbers of bytes, as in 1,64");
const folder = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
if (!existsSync(folder)) stop(`there is no folder ${folder}; name one as CORPUS_DIR`);
const { exchanges, unreadable } = readCorpus(folder);
if (exchanges.length === 0 && unreadable.length === 0) stop(`there are no exchanges in ${folder}`);

const byId = new Map(exchanges.map((exchange) => [exchange.id, exchange]));
const found = new Map<Exchange, readonly Finding[]>();
await using replay = await startReplay();
for (const exchange of exchanges) {
  if (values.only !== undefined && exchange.id !== values.only) continue;
  const exchangeOf = (id: string) => byId.get(id);
  found.set(exchange, await checkExchange(exchange, { exchangeOf, replay, ...(sizes === undefined ? {} : { sizes }) }));
}

const hasFailed = (exchange: Exchange) => found.get(exchange)?.some(({ kind }) => kind === "failure") ?? false;
printTable("api", ({ api }) => [api]);
printTable("api and vendor", ({ api, vendor }) => [`${api}  ${vendor}`]);
if (values.tags) printTable("tag", ({ tags }) => [...tags]);

const failed = [...found.keys()].filter(hasFailed);
printFindings("failure", "Failures");
printFindings("difference", "Differences to look at");
printFindings("note", "Notes");
for (const { file, why } of unreadable) console.log(`unreadable: ${file} ${why}`);
const passed = found.size - failed.length;
console.log(`\n${passed} of ${found.size} exchanges passed, ${failed.length} failed, ${unreadable.length} unreadable.`);
process.exitCode = failed.length + unreadable.length > 0 ? 1 : 0;

function printTable(title: string, groupsOf: (exchange: Exchange) => readonly string[]): void {
  const groups = new Map<string, { passed: number; all: number }>();
  for (const exchange of found.keys()) {
    for (const group of groupsOf(exchange)) {
      const counts = groups.get(group) ?? { passed: 0, all: 0 };
      groups.set(group, counts);
      counts.all += 1;
      if (!hasFailed(exchange)) counts.passed += 1;
    }
  }
  console.log(`\n${title.padEnd(56)}passed   of`);
  for (const [group, { passed: good, all }] of [...groups].toSorted(([left], [right]) => (left < right ? -1 : 1))) {
    const mark = good === all ? "" : "  <-";
    console.log(`  ${group.padEnd(54)}${String(good).padStart(6)}${String(all).padStart(5)}${mark}`);
  }
}

function printFindings(kind: Finding["kind"], title: string): void {
  const lines = [...found].flatMap(([{ id }, some]) =>
    some.filter((one) => one.kind === kind).map(({ what }) => `  ${id}: ${what}`),
  );
  if (lines.length > 0) console.log(`\n${title}\n${lines.join("\n")}`);
}

function stop(why: string): never {
  console.error(why);
  process.exit(2);
}
