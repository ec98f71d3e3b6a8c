import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Manifest, readManifest } from "../../src/skill/manifest.ts";

const head = "name: a-skill\ndescription: does it\n";
const skill = (yaml: string, body = "Do it.\n") => `---\n${yaml}---\n${body}`;
const read = (text: string | Uint8Array, folder = "a-skill") =>
  readManifest(typeof text === "string" ? new TextEncoder().encode(text) : text, folder);

/** What is loaded, and with which warnings. */
const good: readonly (readonly [string, string, Partial<Manifest>, (readonly string[])?])[] = [
  ["the least there can be", skill(head), { name: "a-skill", description: "does it", instructions: "Do it.\n" }],
  ["CRLF", skill(head).replaceAll("\n", "\r\n"), { description: "does it", instructions: "Do it.\r\n" }],
  ["a byte order mark", `\u{feff}${skill(head)}`, { name: "a-skill" }],
  ["a byte order mark and CRLF", `\u{feff}${skill(head).replaceAll("\n", "\r\n")}`, { name: "a-skill" }],
  ["no body", `---\n${head}---`, { instructions: "" }],
  ["spaces after both markers", `---  \n${head}---\t\nDo it.`, { instructions: "Do it." }],
  ["--- in a quoted text", skill('name: a-skill\ndescription: "a --- b"\n'), { description: "a --- b" }],
  ["--- as a whole text", skill("name: a-skill\ndescription: '---'\n"), { description: "---" }],
  [
    "--- in a literal block",
    skill("name: a-skill\ndescription: |\n  one\n  ---\n  two\n"),
    { description: "one\n---\ntwo" },
  ],
  ["--- in a folded block", skill("name: a-skill\ndescription: >-\n  one\n\n  ---\n"), { description: "one\n---" }],
  ["--- within a line of the body", skill(head, "a\n---\nb\n"), { instructions: "a\n---\nb\n" }],
  ["a comment", skill(`# about\n${head}`), { name: "a-skill" }],
  ["a colon in quotes", skill('name: a-skill\ndescription: "Use when: asked"\n'), { description: "Use when: asked" }],
  ["blank lines before the body", skill(head, "\n \n\nDo it."), { instructions: "Do it." }],
  ["a version like a number", skill(`${head}version: 1.10\n`), { version: "1.10" }],
  ["a version as text", skill(`${head}version: "2.0.0-rc.1"\n`), { version: "2.0.0-rc.1" }],
  [
    "version and author in metadata",
    skill(`${head}metadata:\n  version: 1.0\n  author: me\n`),
    { version: "1.0", author: "me" },
  ],
  ["author and license", skill(`${head}author: A. Nobody\nlicense: MIT\n`), { author: "A. Nobody", license: "MIT" }],
  [
    "unknown fields",
    skill(`${head}compatibility: git\nx-more: [1, {a: true}]\n`),
    { otherFields: { compatibility: "git", "x-more": [1, { a: true }] } },
  ],
  ["a field called constructor", skill(`${head}constructor: 1\n`), { otherFields: { constructor: 1 } }],
  ["yes is a text", skill(`${head}x: yes\n`), { otherFields: { x: "yes" } }],
  ["a date is a text", skill(`${head}x: 2026-01-01\n`), { otherFields: { x: "2026-01-01" } }],
  ["infinity is a text", skill(`${head}x: .inf\n`), { otherFields: { x: ".inf" } }],
  [
    "rules with spaces between",
    skill(`${head}allowed-tools: read_file run_command(git status:*) search_text\n`),
    { allowedTools: ["read_file", "run_command(git status:*)", "search_text"] },
  ],
  [
    "rules with commas between",
    skill(`${head}allowed-tools: Read, Bash(git:*)\n`),
    { allowedTools: ["Read", "Bash(git:*)"] },
  ],
  [
    "rules in a list",
    skill(`${head}allowed-tools:\n  - read_file\n  - run_command(npm test)\n`),
    { allowedTools: ["read_file", "run_command(npm test)"] },
  ],
  ["a rule given twice", skill(`${head}allowed-tools: read_file read_file\n`), { allowedTools: ["read_file"] }],
  [
    "a rule that is none",
    skill(`${head}allowed-tools: [read_file, "((", 7]\n`),
    { allowedTools: ["read_file"] },
    ["INVALID_ALLOWED_TOOL", "INVALID_ALLOWED_TOOL"],
  ],
  ["rules that are a number", skill(`${head}allowed-tools: 7\n`), { allowedTools: [] }, ["INVALID_FIELD"]],
  [
    "a name that is not the folder's",
    skill("name: other\ndescription: d\n"),
    { name: "other" },
    ["NAME_DIFFERS_FROM_FOLDER"],
  ],
  ["metadata that is a list", skill(`${head}metadata: [1]\n`), { metadata: {} }, ["INVALID_FIELD"]],
  ["a license that is a map", skill(`${head}license: {a: b}\n`), { license: "" }, ["INVALID_FIELD"]],
  [
    "a description of 1,024 characters",
    skill(`name: a-skill\ndescription: ${"é".repeat(1024)}\n`),
    { name: "a-skill" },
  ],
  ["digits in a name", skill("name: 3d-2\ndescription: d\n"), { name: "3d-2" }, ["NAME_DIFFERS_FROM_FOLDER"]],
  ["null as tools", skill(`${head}tools:\n`), { tools: [] }],
];

const bomb = `a: &a [x,x]\n${"bcdefgh"
  .split("")
  .map((name, index) => `${name}: &${name} [*${"abcdefg"[index]},*${"abcdefg"[index]}]\n`)
  .join("")}`;

/** What is refused: the word for programs, and where. */
const bad: readonly (readonly [string, string | Uint8Array, string, (readonly [number, number])?])[] = [
  ["an empty file", "", "MISSING_FRONT_MATTER", [1, 1]],
  ["plain Markdown", "# A skill\n", "MISSING_FRONT_MATTER", [1, 1]],
  ["a line before the front matter", `\n${skill(head)}`, "MISSING_FRONT_MATTER"],
  ["four dashes", `----\n${head}----\n`, "MISSING_FRONT_MATTER"],
  ["no end", `---\n${head}`, "UNTERMINATED_FRONT_MATTER", [1, 1]],
  ["an end that is indented", `---\n${head} ---\n`, "UNTERMINATED_FRONT_MATTER"],
  ["JavaScript", "---js\nprocess.exit(1)\n---\n", "FRONT_MATTER_LANGUAGE", [1, 1]],
  ["JSON", '---json\n{"name":"a-skill"}\n---\n', "FRONT_MATTER_LANGUAGE"],
  ["TOML", "--- toml\nname = 'a'\n---\n", "FRONT_MATTER_LANGUAGE"],
  ["a bomb of aliases", skill(`${head}${bomb}`), "YAML_ANCHOR", [4, 7]],
  ["an anchor that nobody uses", skill(`${head}x: &x 1\n`), "YAML_ANCHOR", [4, 7]],
  ["an alias of nothing", skill(`${head}x: *y\n`), "YAML_ALIAS", [4, 4]],
  ["an anchor on a key", skill(`${head}&k x: 1\n`), "YAML_ANCHOR"],
  ["a merge key", skill(`${head}x: {<<: {a: 1}}\n`), "YAML_MERGE_KEY", [4, 5]],
  ["a merge key at the top", skill(`<<: {name: b}\n${head}`), "YAML_MERGE_KEY", [2, 1]],
  ["a type of JavaScript", skill(`${head}x: !!js/function 'x'\n`), "YAML_TAG"],
  ["a type of one's own", skill(`${head}x: !mine {a: 1}\n`), "YAML_TAG"],
  ["a type that is known", skill(`${head}x: !!str 1\n`), "YAML_TAG"],
  ["a set", skill(`${head}x: !!set {a}\n`), "YAML_TAG"],
  ["__proto__", skill(`${head}__proto__: {polluted: true}\n`), "YAML_KEY", [4, 1]],
  ["__proto__ further in", skill(`${head}metadata: {"__proto__": {polluted: true}}\n`), "YAML_KEY"],
  ["a key that is a list", skill(`${head}? [a]\n: 1\n`), "YAML_KEY"],
  ["a key that is nothing", skill(`${head}: 1\n`), "YAML_KEY"],
  ["a key twice", skill(`${head}name: b\n`), "YAML_DUPLICATE_KEY", [4, 1]],
  ["a directive", skill(`%YAML 1.1\n${head}`), "YAML_DIRECTIVE", [2, 1]],
  ["a line ... in it", skill(`${head}...\nx: 1\n`), "YAML_SYNTAX", [4, 1]],
  ["a quote without its end", skill('name: a-skill\ndescription: "no end\n'), "YAML_SYNTAX"],
  [
    "--- at the beginning of a line of a quoted text",
    skill('name: a-skill\ndescription: "no\n---\nend"\n'),
    "YAML_SYNTAX",
  ],
  ["a tab as indentation", skill(`${head}metadata:\n\ta: 1\n`), "YAML_SYNTAX", [5, 1]],
  ["a colon without quotes", skill("name: a-skill\ndescription: Use when: asked\n"), "YAML_SYNTAX"],
  ["a list", skill("- name\n- description\n"), "NOT_A_MAPPING", [2, 1]],
  ["a text", skill("just a text\n"), "NOT_A_MAPPING"],
  ["nothing", skill("\n"), "NOT_A_MAPPING"],
  ["17 levels", skill(`${head}x: ${"[".repeat(17)}${"]".repeat(17)}\n`), "YAML_TOO_DEEP"],
  ["too much", skill(`${head}x: ${"y".repeat(65_536)}\n`), "FRONT_MATTER_TOO_LARGE"],
  ["a file of more than 1 MiB", skill(head, "x".repeat(1024 * 1024)), "FILE_TOO_LARGE"],
  [
    "no UTF-8",
    Buffer.concat([Buffer.from("---\nname: "), Buffer.from([0xff, 0xfe]), Buffer.from("\n---\n")]),
    "NOT_UTF8",
  ],
  ["UTF-16", Buffer.from(`\u{feff}${skill(head)}`, "utf16le"), "NOT_UTF8"],
  ["no name", skill("description: d\n"), "MISSING_NAME"],
  ["no description", skill("name: a-skill\n"), "MISSING_DESCRIPTION"],
  ["a blank description", skill('name: a-skill\ndescription: "  "\n'), "MISSING_DESCRIPTION", [3, 14]],
  ["a description that is a list", skill("name: a-skill\ndescription: [a]\n"), "INVALID_DESCRIPTION", [3, 14]],
  [
    "a description of 1,025 characters",
    skill(`name: a-skill\ndescription: ${"d".repeat(1025)}\n`),
    "INVALID_DESCRIPTION",
  ],
  ["capitals in the name", skill("name: A-Skill\ndescription: d\n"), "INVALID_NAME", [2, 7]],
  ["two dashes in the name", skill("name: a--b\ndescription: d\n"), "INVALID_NAME"],
  ["a dash at the end of the name", skill("name: a-\ndescription: d\n"), "INVALID_NAME"],
  ["a path as name", skill("name: ../a\ndescription: d\n"), "INVALID_NAME"],
  ["a name of 65 characters", skill(`name: ${"a".repeat(65)}\ndescription: d\n`), "INVALID_NAME"],
  ["a name that is a number", skill("name: 7\ndescription: d\n"), "INVALID_NAME"],
];

describe("what a SKILL.md says is read", () => {
  for (const [name, text, wanted, warnings = []] of good) {
    test(name, () => {
      const { manifest, diagnostics } = read(text);
      assert.deepEqual(
        diagnostics.map(({ code, severity }) => [severity, code]),
        warnings.map((code) => ["warning", code]),
      );
      assert.ok(manifest !== undefined);
      for (const [field, value] of Object.entries(wanted)) assert.deepEqual(Reflect.get(manifest, field), value, field);
    });
  }
});

describe("what can't be read is refused with its place", () => {
  for (const [name, text, code, place] of bad) {
    test(name, () => {
      const { manifest, diagnostics } = read(text);
      assert.equal(manifest, undefined);
      const errors = diagnostics.filter(({ severity }) => severity === "error");
      assert.deepEqual(
        errors.map((error) => error.code),
        [code],
        JSON.stringify(diagnostics),
      );
      const [error] = errors;
      assert.match(error?.message ?? "", /^[^\n]{10,400}[^.\n]$/);
      if (place !== undefined) assert.deepEqual([error?.line, error?.column], place);
      assert.equal(Reflect.get({}, "polluted"), undefined);
    });
  }
});

test("a hostile front matter keeps nobody waiting", () => {
  const nests = ["[".repeat(60_000), "{a: ".repeat(15_000), "- ".repeat(30_000), `${"? ".repeat(30_000)}a`];
  const keys = Array.from({ length: 12_000 }, (_, index) => `k${index}:\n`).join("");
  for (const yaml of [
    ...nests.map((nest) => `x: ${nest}\n`),
    "a:\n".repeat(20_000),
    keys,
    `x: "${"\\x41".repeat(16_000)}"\n`,
  ]) {
    const startMs = performance.now();
    const { manifest } = read(skill(yaml));
    const ms = performance.now() - startMs;
    assert.equal(manifest, undefined);
    // Stopped twice at most, each time after 80 ms; a slow machine has its share.
    assert.ok(ms < 600, `${yaml.slice(0, 12)} took ${ms} ms`);
  }
});

const tool = (yaml: string) =>
  skill(`${head}tools:\n  - name: run_it\n    description: runs\n    command: run.sh\n${yaml}`);
const parameters = (yaml: string) => tool(`    parameters:\n${yaml}`);

/** Schema without what every one has. */
const schemas: readonly (readonly [string, string, unknown, unknown?])[] = [
  ["none", tool(""), { properties: {}, required: [] }],
  [
    "a map of arguments",
    parameters(
      "      path: {type: string, description: which, required: true}\n      depth: {type: integer, default: 3}\n",
    ),
    {
      properties: { path: { type: "string", description: "which" }, depth: { type: "integer", default: 3 } },
      required: ["path"],
    },
    { depth: 3 },
  ],
  [
    "types by their names",
    parameters("      path: string\n      flag: boolean\n"),
    { properties: { path: { type: "string" }, flag: { type: "boolean" } }, required: [] },
  ],
  [
    "an enumeration",
    parameters("      how: {enum: [a, b], default: a}\n"),
    { properties: { how: { enum: ["a", "b"], default: "a" } }, required: [] },
    { how: "a" },
  ],
  [
    "required with a default",
    parameters("      n: {type: number, default: 1, required: true}\n"),
    { properties: { n: { type: "number", default: 1 } }, required: [] },
    { n: 1 },
  ],
  [
    "arguments called type and properties",
    parameters("      type: {type: string}\n      properties: {type: array}\n"),
    { properties: { type: { type: "string" }, properties: { type: "array" } }, required: [] },
  ],
  [
    "a JSON Schema",
    parameters(
      "      type: object\n      properties:\n        q: {type: string, minLength: 1}\n      required: [q]\n      additionalProperties: true\n",
    ),
    { properties: { q: { type: "string", minLength: 1 } }, required: ["q"] },
  ],
  [
    "a JSON Schema with a reference",
    parameters(
      "      type: object\n      $defs: {word: {type: string}}\n      properties:\n        q: {$ref: '#/$defs/word', default: x}\n",
    ),
    { $defs: { word: { type: "string" } }, properties: { q: { $ref: "#/$defs/word", default: "x" } } },
    { q: "x" },
  ],
];

describe("arguments of a tool, as a schema or as a map", () => {
  for (const [name, text, wanted, defaults = {}] of schemas) {
    test(name, () => {
      const { manifest, diagnostics } = read(text);
      assert.deepEqual(diagnostics, []);
      const [found] = manifest?.tools ?? [];
      const { type, additionalProperties, ...schema } = JSON.parse(found?.parameters ?? "{}");
      assert.deepEqual([type, additionalProperties, schema], ["object", false, wanted]);
      assert.deepEqual(found?.defaults, defaults);
    });
  }
});

const badTools: readonly (readonly [string, string, string])[] = [
  ["tools that are a map", skill(`${head}tools: {a: b}\n`), "INVALID_TOOLS"],
  ["a tool that is a text", skill(`${head}tools: [run]\n`), "INVALID_TOOL"],
  ["no name", skill(`${head}tools:\n  - description: d\n    command: c.sh\n`), "INVALID_TOOL_NAME"],
  [
    "a name with a blank",
    skill(`${head}tools:\n  - name: a b\n    description: d\n    command: c.sh\n`),
    "INVALID_TOOL_NAME",
  ],
  ["no description", skill(`${head}tools:\n  - name: a\n    command: c.sh\n`), "MISSING_TOOL_DESCRIPTION"],
  ["no command", skill(`${head}tools:\n  - name: a\n    description: d\n`), "MISSING_COMMAND"],
  ["no time at all", tool("    timeout_ms: 0\n"), "INVALID_TOOL"],
  ["more than ten minutes", tool("    timeout_ms: 600001\n"), "INVALID_TOOL"],
  ["read_only that is a text", tool("    read_only: maybe\n"), "INVALID_TOOL"],
  ["a name that no variable can have", parameters("      a-b: string\n"), "INVALID_PARAMETERS"],
  ["a name that begins with a digit", parameters("      1a: string\n"), "INVALID_PARAMETERS"],
  ["two names that are one variable", parameters("      path: string\n      PATH: string\n"), "INVALID_PARAMETERS"],
  ["a type nobody knows", parameters("      a: {type: date}\n"), "INVALID_PARAMETERS"],
  ["a default that does not fit", parameters("      a: {type: integer, default: x}\n"), "INVALID_PARAMETERS"],
  [
    "a default out of its enumeration",
    parameters("      a: {type: string, enum: [x], default: y}\n"),
    "INVALID_PARAMETERS",
  ],
  [
    "a schema of no object",
    parameters("      type: array\n      properties: {a: {type: string}}\n"),
    "INVALID_PARAMETERS",
  ],
  [
    "a schema that is none",
    parameters("      type: object\n      properties:\n        a: {type: 7}\n"),
    "INVALID_PARAMETERS",
  ],
  [
    "a reference to elsewhere",
    parameters("      type: object\n      properties:\n        a: {$ref: 'https://example.com/x'}\n"),
    "INVALID_PARAMETERS",
  ],
  ["parameters that are a list", tool("    parameters: [a]\n"), "INVALID_PARAMETERS"],
];

describe("a tool that is wrong is left out; the skill and its other tools are there", () => {
  for (const [name, text, code] of badTools) {
    test(name, () => {
      const other = "  - name: other\n    description: d\n    command: other.sh\n";
      const isList =
        text.includes("  - name: run_it") || text.includes("  - name: a") || text.includes("  - description");
      const { manifest, diagnostics } = read(isList ? text.replace("tools:\n", `tools:\n${other}`) : text);
      assert.deepEqual(
        diagnostics.map((each) => [each.severity, each.code]),
        [["error", code]],
      );
      assert.ok((diagnostics[0]?.line ?? 0) > 3 && (diagnostics[0]?.column ?? 0) > 0);
      assert.deepEqual(
        manifest?.tools.map((each) => each.name),
        isList ? ["other"] : [],
      );
    });
  }

  test("the second of one name", () => {
    const entry = "  - name: a\n    description: d\n    command: c.sh\n";
    const { manifest, diagnostics } = read(skill(`${head}tools:\n${entry}${entry}`));
    assert.deepEqual(
      diagnostics.map(({ code, line }) => [code, line]),
      [["DUPLICATE_TOOL", 8]],
    );
    assert.equal(manifest?.tools.length, 1);
  });

  test("a field nobody knows is a warning", () => {
    const { manifest, diagnostics } = read(tool("    timeout: 5\n"));
    assert.deepEqual(
      diagnostics.map(({ severity, code, line, column }) => [severity, code, line, column]),
      [["warning", "UNKNOWN_TOOL_FIELD", 8, 5]],
    );
    assert.equal(manifest?.tools.length, 1);
  });
});
