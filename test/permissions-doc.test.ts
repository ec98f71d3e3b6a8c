import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createCodeAgentClient } from "../sdk/index.ts";
import { startTestApp } from "./support/test-app.ts";

interface Row {
  readonly session: string;
  readonly calls: readonly { readonly name: string; readonly given: Readonly<Record<string, string>> }[];
  readonly decision: string;
}

/** The table of examples; `〃` stands for the session of the row above. */
function rowsOf(page: string): Row[] {
  const lines = page.split("\n");
  const from = lines.findIndex((line) => line.startsWith("| session ")) + 2;
  const table = lines.slice(from, lines.indexOf("", from));
  let last = "";
  return table.map((line) => {
    const [session = "", call = "", said = ""] = line
      .slice(2, -2)
      .split(/ (?<!\\)\| /)
      .map((cell) => cell.replaceAll("\\|", "|"));
    if (session !== "〃") last = session;
    const [decision = ""] = /^\w+/.exec(said) ?? [];
    return { session: last, calls: callsOf(call), decision };
  });
}

/** "`write_file` a, `edit_file` b", or command lines alone. */
function callsOf(cell: string): Row["calls"] {
  return [...cell.matchAll(/`([^`]+)`(?: ([^,`]+))?/g)].map(([, code = "", argument]) =>
    argument === undefined
      ? { name: "run_command", given: { command: code } }
      : { name: code, given: argumentsOf(code, argument) },
  );
}

function argumentsOf(name: string, argument: string): Row["calls"][number]["given"] {
  const more: Readonly<Record<string, Readonly<Record<string, string>>>> = {
    write_file: { content: "" },
    edit_file: { old_text: "a", new_text: "b" },
    search_text: { pattern: "x" },
  };
  if (name === "fetch_url") return { url: argument };
  if (name === "apply_patch") return { patch: `*** Begin Patch\n*** Add File: ${argument}\n+x\n*** End Patch` };
  return { path: argument, ...more[name] };
}

function permissionsOf(session: string) {
  const [, mode = "ask"] = /mode `([^`]+)`/.exec(session) ?? [];
  const rules = (decision: string) => {
    const [, list = ""] = new RegExp(`${decision} ((?:\`[^\`]+\`(?:, (?=\`))?)+)`).exec(session) ?? [];
    return [...list.matchAll(/`([^`]+)`/g)].map(([, rule = ""]) => rule);
  };
  return { mode, allow: rules("allow"), deny: rules("deny") };
}

test("the examples of docs/permissions.md come to what the page says", async (context) => {
  const rows = rowsOf(readFileSync("docs/permissions.md", "utf8"));
  assert.ok(rows.length > 30, "the table was found");
  const { app } = await startTestApp(context);
  using client = createCodeAgentClient({ baseUrl: app.url });
  for (const { session, calls, decision } of rows) {
    const { sessionId } = await client.createSession({ permissions: permissionsOf(session) });
    assert.ok(calls.length > 0);
    for (const { name, given } of calls) {
      const found = await client.tools.checkPermission({ sessionId, name, arguments: JSON.stringify(given) });
      assert.equal(found.decision, decision, `${session}: ${name} ${JSON.stringify(given)}: ${found.explanation}`);
    }
  }
});
