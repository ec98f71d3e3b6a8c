import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { status } from "@grpc/grpc-js";
import { descendantsOf } from "../../src/tool/process-tree.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";
import { at, type LegacyMessage, legacyClients } from "./legacy-client.ts";

const files = {
  "tsconfig.json": JSON.stringify({ compilerOptions: { strict: true, types: [] }, include: ["src"] }),
  "src/shape.ts":
    "/** A shape with corners. */\nexport class Polygon {\n  constructor(readonly corners: number) {}\n}\n",
  "src/main.ts":
    'import { Polygon } from "./shape";\nexport const square = new Polygon(4);\nlet é: number = 1;\né += 1;\n',
  "tool.py": "def double(number: int) -> int:\n    return number * 2\n\n\ndouble(2)\n",
  "good.c": "int main;\n",
};

async function startedApp(context: TestContext, options: TestAppOptions = {}) {
  const app = await startTestApp(context, { files, ...options });
  const { call } = legacyClients(context, app.app.url).L2;
  const write = (path: string, text: string) => writeFile(join(app.workspace, path), text);
  const uri = (path: string) => pathToFileURL(join(app.workspace, path)).href;
  return { ...app, call, write, uri };
}

/** The language servers this process has started, with their walls around them. */
async function programs(): Promise<number[]> {
  const all = await descendantsOf(process.pid);
  const lines = await Promise.all(
    all.map(({ pid }) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")), // it may have ended meanwhile
  );
  return all
    .filter((_, index) => /tsserver|langserver|typescript-language-server\/|fake-language/.test(lines[index] ?? ""))
    .map(({ pid }) => pid);
}

async function refused(call: Promise<unknown>, code: status, words: RegExp): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.equal(at(error, "code"), code, String(error));
    assert.match(String(at(error, "details")), words);
    return true;
  });
}

function messages(answer: LegacyMessage): unknown[] {
  const list = answer["diagnostics"];
  assert.ok(Array.isArray(list));
  return list.map((one) => at(one, "message"));
}

function range(line: number, from: number, to: number) {
  return { start: { line, character: from }, end: { line, character: to } };
}

test("TypeScript and Python: what is where, and what is wrong", { timeout: 120_000 }, async (context) => {
  const { call, uri, write, app, workspace, folder } = await startedApp(context);
  const main = { file_path: "src/main.ts", line: 1, column: 26 };
  await refused(call("LspHover", main), status.FAILED_PRECONDITION, /StartLspServer/);
  await refused(call("LspSymbols", { query: "x" }), status.FAILED_PRECONDITION, /StartLspServer/);
  const [typescript, python] = await Promise.all([
    call("StartLspServer", { language: "JavaScript", root_uri: uri("") }),
    call("StartLspServer", { language: "python" }),
  ]);
  assert.equal(at(typescript, "server_info.name"), "typescript-language-server");
  assert.match(String(at(typescript, "server_info.version")), /^\d+\.\d+/);
  assert.equal(at(python, "server_info.language"), "python");
  const again = await call("StartLspServer", { language: "typescript" });
  assert.equal(at(again, "success"), true, "the same server over the same folder");

  await context.test("symbols of a project of which no file was asked about", async () => {
    const { symbols } = await call("LspSymbols", { query: "Polygon" });
    assert.deepEqual(at(symbols, "0.name"), "Polygon");
    assert.equal(at(symbols, "0.kind"), "class");
    assert.equal(at(symbols, "0.location.uri"), uri("src/shape.ts"));
    const none = await call("LspSymbols", { query: "double", limit: 1 });
    assert.equal(at(none, "symbols.0.location.uri"), uri("tool.py"), "all servers are asked");
    await refused(call("LspSymbols", { query: "x", limit: 1001 }), status.INVALID_ARGUMENT, /limit/);
  });
  await context.test("hover, definition, references", async () => {
    const hover = await call("LspHover", main);
    assert.equal(hover["found"], true);
    assert.match(String(hover["content"]), /class Polygon|Polygon\(corners: number\)/);
    assert.deepEqual(hover["range"], range(1, 26, 33));
    const nothing = await call("LspHover", { file_path: "tool.py", line: 2, column: 999 });
    assert.equal(nothing["found"], false);
    for (const file_path of [join(workspace, "src/main.ts"), uri("src/main.ts"), "./src/../src/main.ts"]) {
      const { locations } = await call("LspDefinition", { ...main, file_path });
      assert.equal(at(locations, "0.uri"), uri("src/shape.ts"), file_path);
    }
    const shape = { file_path: "src/shape.ts", line: 1, column: 14 };
    const all = await call("LspReferences", { ...shape, include_declaration: true });
    const uses = await call("LspReferences", shape);
    const count = (answer: LegacyMessage) => (Array.isArray(answer["locations"]) ? answer["locations"].length : -1);
    assert.deepEqual([count(all), count(uses)], [3, 2]);
  });
  await context.test("what is wrong in files as they are now", async () => {
    assert.deepEqual(messages(await call("LspDiagnostics", { file_path: "src/main.ts" })), []);
    await write("src/main.ts", `${files["src/main.ts"]}é = "text";\n`);
    const { diagnostics } = await call("LspDiagnostics", { file_path: "src/main.ts" });
    const [found] = Array.isArray(diagnostics) ? diagnostics : [];
    assert.deepEqual(
      { ...found },
      {
        ...{ uri: uri("src/main.ts"), range: range(4, 0, 1), severity: "error", code: "2322", source: "typescript" },
        ...{ message: "Type 'string' is not assignable to type 'number'." },
      },
    );
    // A change of a file that is open reaches answers about another one.
    await write("src/shape.ts", "export class Polygon {}\n");
    await write("src/main.ts", files["src/main.ts"]);
    assert.deepEqual(messages(await call("LspDiagnostics", { file_path: "src/main.ts" })), [
      "Expected 0 arguments, but got 1.",
    ]);
    assert.deepEqual(messages(await call("LspDiagnostics", { file_path: "tool.py" })), []);
    await write("tool.py", files["tool.py"].replace("double(2)", 'double("text")'));
    const known = messages(await call("LspDiagnostics"));
    assert.ok(known.includes("Expected 0 arguments, but got 1."));
    assert.ok(known.some((message) => /Argument of type "Literal\['text'\]"/.test(String(message))));
  });
  await context.test("paths outside, missing ones, places that are not there", async () => {
    await writeFile(join(folder, "secret.ts"), "export const secret = 1;\n");
    await symlink(join(folder, "secret.ts"), join(workspace, "link.ts"));
    await write("src/leak.ts", 'import { secret } from "../../secret";\nexport const told = secret;\n');
    const leak = await call("LspHover", { file_path: "src/leak.ts", line: 0, column: 10 });
    assert.doesNotMatch(String(leak["content"]), /: 1|= 1/, "what an import names outside is not read either");
    const wrong = messages(await call("LspDiagnostics", { file_path: "src/leak.ts" }));
    assert.match(String(wrong[0]), /Cannot find module/);
    const outside = ["../secret.ts", join(folder, "secret.ts"), "link.ts", "/etc/hosts.ts"];
    for (const file_path of outside)
      await refused(call("LspHover", { file_path }), status.INVALID_ARGUMENT, /file_path: .* is outside/);
    await refused(call("LspHover", { file_path: "src/none.ts" }), status.NOT_FOUND, /"src\/none.ts" does not exist/);
    await refused(call("LspHover", { file_path: "src" }), status.INVALID_ARGUMENT, /file_path/);
    await refused(call("LspHover", { file_path: "README.md" }), status.INVALID_ARGUMENT, /file_path/);
    await refused(call("LspHover", { file_path: "" }), status.INVALID_ARGUMENT, /file_path: is empty/);
    await refused(
      call("LspHover", { ...main, line: 99 }),
      status.INVALID_ARGUMENT,
      /line: is 99; the file has 5 lines/,
    );
    await refused(call("LspHover", { ...main, column: 2 ** 31 }), status.INVALID_ARGUMENT, /column/);
    await refused(call("LspHover", { file_path: "good.c" }), status.FAILED_PRECONDITION, /of cpp runs/);
  });
  await context.test(
    "nothing is left of a server that is stopped, and nothing of all when the service ends",
    async () => {
      await call("StopLspServer", { language: "py" });
      await refused(call("StopLspServer", { language: "python" }), status.NOT_FOUND, /python/);
      const listed = await call("ListLspServers");
      assert.equal(at(listed, "servers.0.language"), "javascript");
      assert.equal(at(listed, "servers.0.running"), true);
      assert.equal(at(listed, "servers.1"), undefined);
      assert.notEqual((await programs()).length, 0);
      await app.close(0);
      assert.deepEqual(await programs(), []);
    },
  );
});

test("a server that misbehaves is told of in a sentence", { timeout: 60_000 }, async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-programs-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const fake = fileURLToPath(new URL("fake-language-server.ts", import.meta.url));
  await writeFile(join(folder, "clangd"), `#!/bin/sh\nexec "${process.execPath}" "${fake}"\n`, { mode: 0o755 });
  await writeFile(join(folder, "gopls"), "#!/bin/sh\necho no luck >&2\nexit 3\n", { mode: 0o755 });
  const { call, write, app } = await startedApp(context, {
    env: { PATH: `${folder}:/usr/bin:/bin` },
    flags: { sandbox_readable: fileURLToPath(new URL("../..", import.meta.url)) },
  });

  await refused(call("StartLspServer", { language: "cobol" }), status.UNIMPLEMENTED, /cobol.*typescript, python/);
  await refused(call("StartLspServer", { language: "" }), status.INVALID_ARGUMENT, /language/);
  await refused(call("StartLspServer", { language: "rust" }), status.FAILED_PRECONDITION, /install it there \(rustup/);
  await refused(call("StartLspServer", { language: "go" }), status.FAILED_PRECONDITION, /exit code 3.*no luck/);
  const elsewhere = { language: "c", root_uri: "file:///usr" };
  await refused(call("StartLspServer", elsewhere), status.PERMISSION_DENIED, /workspace/);
  await refused(
    call("StartLspServer", { ...elsewhere, root_uri: "https://a.example/" }),
    status.INVALID_ARGUMENT,
    /root_uri/,
  );

  const { server_info } = await call("StartLspServer", { language: "c" });
  assert.deepEqual(server_info, { language: "c", name: "fake", version: "1.2", running: true });
  const hover = { file_path: "good.c", line: 0, column: 4 };
  assert.equal((await call("LspHover", hover))["content"], '{"line":0,"character":4}');
  const beyond = await call("LspHover", { ...hover, column: 4000 });
  assert.equal(beyond["content"], '{"line":0,"character":9}', "beyond the end of a line is its end");
  await refused(call("LspDefinition", hover), status.UNIMPLEMENTED, /definitions/);

  // What it tells by itself is of the version that was asked about.
  assert.deepEqual(messages(await call("LspDiagnostics", { file_path: "good.c" })), []);
  await write("good.c", "int wrong;\n");
  assert.deepEqual(messages(await call("LspDiagnostics", { file_path: "good.c" })), ["wrong in version 2"]);
  assert.deepEqual(messages(await call("LspDiagnostics", { file_path: "good.c" })), ["wrong in version 2"]);
  assert.equal(at(await call("LspDiagnostics"), "diagnostics.0.severity"), "warning");

  const faults = [
    { word: "exit", says: /ended with exit code 3; start it again with StartLspServer/ },
    { word: "huge", says: /sent a message of more than 33554432 bytes/ },
  ];
  for (const { word, says } of faults) {
    await write("good.c", `int ${word};\n`);
    await refused(call("LspHover", hover), status.UNAVAILABLE, says);
    await refused(call("LspHover", hover), status.UNAVAILABLE, says);
    await refused(call("LspSymbols", {}), status.FAILED_PRECONDITION, /StartLspServer/);
    assert.equal(at(await call("ListLspServers"), "servers.0.running"), false);
    assert.equal(at(await call("StartLspServer", { language: "cpp" }), "server_info.running"), true);
  }
  await write("good.c", "int hang;\n");
  const hanging = refused(
    call("LspHover", hover),
    status.UNAVAILABLE,
    /was stopped|killed|exit code 137|closed its output/,
  );
  // The answer to another question shows that this one has reached the server.
  await call("LspDiagnostics", { file_path: "good.c" });
  for (const pid of await programs()) process.kill(pid, "SIGKILL");
  await hanging;
  await call("StartLspServer", { language: "cpp" });
  await app.close(0);
  assert.deepEqual(await programs(), []);
});

test("who may not administer the server starts and stops none", { timeout: 30_000 }, async (context) => {
  const { call } = await startedApp(context, { flags: { admin_api: "off" } });
  await refused(call("StartLspServer", { language: "python" }), status.PERMISSION_DENIED, /admin_api/);
  await refused(call("StopLspServer", { language: "python" }), status.PERMISSION_DENIED, /admin_api/);
  assert.deepEqual(await call("ListLspServers"), { servers: [] });
});
