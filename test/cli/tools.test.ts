import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { runToEnd, startServe, temporaryFolder } from "./start-codeagent.ts";

describe("codeagent tools", { timeout: 90_000 }, () => {
  test("lists the tools, calls them, and says why one fails", async (context) => {
    const folder = temporaryFolder(context);
    for (const name of ["notes.txt", "other.txt"]) writeFileSync(join(folder, name), "one\ntwo\n");
    const { url } = await startServe(context, ["--workspace", folder], { folder });
    const client = createCodeAgentClient({ baseUrl: url });
    context.after(() => client.close());
    const { sessionId } = await client.createSession({ permissions: { mode: "accept-edits" } });
    const run = (words: readonly string[], stdin = "") =>
      runToEnd(context, ["tools", ...words, "--server", url], { folder, stdin });
    const edit = JSON.stringify({ path: "notes.txt", old_text: "two", new_text: "three" });

    const rows: readonly (readonly [
      title: string,
      words: readonly string[],
      exit: number,
      stdout: RegExp,
      stderr: RegExp,
      stdin?: string,
    ])[] = [
      [
        "ls",
        ["ls"],
        0,
        /^edit_file +local +changes {2}Replaces a text .*…\n(?:.*\n)*read_file +local +reads +Reads a/m,
        /^$/,
      ],
      [
        "ls --json",
        ["ls", "--json", "--session", sessionId],
        0,
        /^\{"name":"write_file",.*"parameters":"\{.*\}$/m,
        /^$/,
      ],
      ["call", ["call", "read_file", '{"path":"other.txt"}'], 0, /^1\tone\n2\ttwo\n$/, /^$/],
      [
        "arguments from stdin",
        ["call", "read_file", "-"],
        0,
        /^2\ttwo\n$/,
        /^$/,
        '{"path":"other.txt","start_line":2}',
      ],
      [
        "a failed result",
        ["call", "read_file", '{"path":"none"}'],
        1,
        /^$/,
        /^codeagent: read_file: "none" does not exist\n$/,
      ],
      ["wrong arguments", ["call", "read_file", "{}"], 1, /^$/, /^codeagent: read_file: the arguments do not fit/],
      ["unknown", ["call", "nothing"], 1, /^$/, /^codeagent: there is no tool nothing; there are: /],
      [
        "not allowed without a session",
        ["call", "edit_file", edit],
        1,
        /^$/,
        /^codeagent: edit_file has to be approved/,
      ],
      [
        "not allowed, and reaching outside",
        ["call", "fetch_url", '{"url":"https://example.com/"}'],
        1,
        /^$/,
        /^codeagent: fetch_url has to be approved.* send something outside the workspace.*permissions\.allow/,
      ],
      ["--timeout", ["call", "list_files", "--timeout", "soon"], 1, /^$/, /--timeout is "soon": a number of seconds/],
      [
        "an edit in a session that allows it",
        ["call", "edit_file", edit, "--session", sessionId, "--timeout", "9.5", "--json"],
        0,
        /^\{"success":true,"output":"edited notes\.txt: line 2 \(\+1 -1\)",.*"diff":"--- a\/notes\.txt\\n/,
        /^$/,
      ],
    ];
    await Promise.all(
      rows.map(async ([title, words, exit, stdout, stderr, stdin]) => {
        const found = await run(words, stdin);
        assert.match(found.stderr, stderr, title);
        assert.match(found.stdout, stdout, title);
        assert.equal(found.exit, exit, title);
      }),
    );
    assert.equal(readFileSync(join(folder, "notes.txt"), "utf8"), "one\nthree\n");
  });
});
