import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { environmentName, settings } from "../src/config.ts";

/** The table of settings as the README shows it. */
function settingsTable(): string {
  const rows = Object.entries(settings).map(([key, { byDefault, about }]) => {
    const shown = shownDefault(key, byDefault);
    return `| \`${key}\` | \`${environmentName(key)}\` | ${shown === "" ? "" : `\`${shown}\``} | ${about} |`;
  });
  return ["| key | environment | default | what it is for |", "| --- | --- | --- | --- |", ...rows].join("\n");
}

function shownDefault(key: string, value: unknown): string {
  if (key === "data_dir") return "~/.codeagent";
  if (key === "workspace") return ".";
  return Array.isArray(value) ? value.join() : String(value);
}

test("the README names every setting with its default", () => {
  const readme = readFileSync("README.md", "utf8");
  assert.ok(readme.includes(settingsTable()), `put this table into README.md:\n${settingsTable()}`);
});
