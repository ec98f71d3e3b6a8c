import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";

/** A room imports lower floors and itself, never a neighbour and never upward. */
const floors: readonly (readonly string[])[] = [
  ["chat", "stream"],
  ["convert", "tool"],
  ["dialect", "skill", "log"],
  ["session", "provider"],
  ["plan"],
  ["rpc", "rest"],
  ["top", "server", "cli", "mcp-server"],
];
const mayImportGen = new Set(["convert", "rpc", "top"]);

function roomOf(file: string): string {
  const parts = file.split("/");
  return parts.length > 2 ? (parts[1] ?? "") : "top";
}

function floorOf(room: string): number {
  const floor = floors.findIndex((rooms) => rooms.includes(room));
  assert.notEqual(floor, -1, `src/${room} is on no floor; put it into the table of ARCHITECTURE.md and of this test`);
  return floor;
}

test("rooms import lower floors and themselves only", () => {
  for (const file of globSync("src/**/*.ts")) {
    const room = roomOf(file);
    for (const [, path = ""] of readFileSync(file, "utf8").matchAll(/(?:from|import\() ?"(\.[^"]+)"/g)) {
      const target = normalize(join(dirname(file), path));
      if (target.startsWith("gen/")) {
        assert.ok(
          mayImportGen.has(room) || room === "cli",
          `${file} imports ${target}: only convert, rpc and the top look at gen`,
        );
        continue;
      }
      if (target.startsWith("sdk/")) {
        assert.ok(floorOf(room) === floors.length - 1, `${file} imports ${target}: only the top may use the SDK`);
        continue;
      }
      const other = roomOf(target);
      const lower = floorOf(other) < floorOf(room);
      const top = floorOf(room) === floors.length - 1 && floorOf(other) === floors.length - 1;
      assert.ok(other === room || lower || top, `${file} imports ${target}: ${other} is not below ${room}`);
    }
  }
});
