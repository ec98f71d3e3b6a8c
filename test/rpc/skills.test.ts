import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { SkillService } from "../../gen/codeagent/v1/skill_service_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { skillText, toolsText, until, writeFiles } from "../skill/write-files.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

async function start(context: Parameters<typeof startTestApp>[0], options: TestAppOptions = {}) {
  const app = await startTestApp(context, options);
  const skills = createClient(SkillService, app.transport);
  const tools = createClient(ToolService, app.transport);
  return { ...app, skills, tools, skillsFolder: join(app.dataDir, "skills") };
}

const allow = (...rules: string[]) => ({ permissions: { allow: rules } });

describe("SkillService", () => {
  test("tells every fact of a skill, and its instructions only when asked for it", async (context) => {
    const { skills, skillsFolder, workspace } = await start(context);
    await writeFiles(skillsFolder, {
      "one/SKILL.md": skillText(
        "one",
        `version: 1.2\nlicense: MIT\n${toolsText({ run_one: "run.sh", gone: "gone.sh" }, "    title: Runs it\n    timeout_ms: 5000\n")}`,
      ),
      "one/run.sh": "echo hi\n",
      "broken/SKILL.md": "---\nname: broken\n---\n",
    });
    await writeFiles(workspace, { ".codeagent/skills/theirs/SKILL.md": skillText("theirs") });
    const list = await skills.listSkills({});
    assert.ok(list.generation > 0n);
    assert.deepEqual(
      list.skills.map(({ name, state, scope, pathHint, instructions }) => ({
        name,
        state,
        scope,
        pathHint,
        instructions,
      })),
      [
        { name: "broken", state: "broken", scope: "user", pathHint: "broken", instructions: "" },
        { name: "one", state: "ready", scope: "user", pathHint: "one", instructions: "" },
        { name: "theirs", state: "ready", scope: "workspace", pathHint: "theirs", instructions: "" },
      ],
    );
    const [broken, one] = list.skills;
    assert.deepEqual(
      [broken?.tools, broken?.contentSha256, broken?.loadTime, broken?.description],
      [[], "", undefined, ""],
    );
    const [missing] = broken?.diagnostics ?? [];
    assert.deepEqual(
      [missing?.code, missing?.severity, missing?.file, missing?.line, missing?.column],
      ["MISSING_DESCRIPTION", "error", "SKILL.md", 1, 1],
    );
    assert.deepEqual([one?.version, one?.license, one?.description], ["1.2", "MIT", "It does one"]);
    assert.match(one?.contentSha256 ?? "", /^[0-9a-f]{64}$/);
    assert.ok(Math.abs(Number(one?.loadTime?.seconds) - Date.now() / 1000) < 60);
    assert.deepEqual(
      one?.diagnostics.map(({ code, file, line }) => `${code} ${file}:${line}`),
      ["COMMAND_OUTSIDE SKILL.md:14"],
    );
    const [tool, ...others] = one?.tools ?? [];
    assert.deepEqual(others, []);
    assert.deepEqual(
      [tool?.name, tool?.title, tool?.description, tool?.source, tool?.readOnly, tool?.timeoutMs],
      ["run_one", "Runs it", "runs run_one", "skill:one", false, 5000n],
    );
    assert.deepEqual(JSON.parse(tool?.parameters ?? ""), {
      type: "object",
      properties: {},
      required: [],
      additionalProperties: false,
    });
    const whole = await skills.getSkill({ name: "one" });
    assert.equal(whole.instructions, "How to one.\n");
    assert.deepEqual({ ...whole, instructions: "" }, one);
    await assert.rejects(skills.getSkill({ name: "two" }), (error) => {
      assert.ok(error instanceof ConnectError);
      assert.equal(error.code, Code.NotFound);
      assert.equal(error.findDetails(ErrorInfoSchema)[0]?.reason, "SKILL_NOT_FOUND");
      assert.match(error.rawMessage, /there is no skill two; there are: broken, one, theirs/);
      return true;
    });
    for (const call of [skills.getSkill({}), skills.listSkills({ sessionId: "../x" })])
      await assert.rejects(call, (error) => error instanceof ConnectError && error.code === Code.InvalidArgument);
    await assert.rejects(
      skills.listSkills({ sessionId: "unknown" }),
      (error) => error instanceof ConnectError && error.code === Code.NotFound,
    );
  });

  test("a session sees the skills of its own workspace", async (context) => {
    const { skills, client, workspace, tools } = await start(context);
    await writeFiles(workspace, {
      "inner/.codeagent/skills/inner/SKILL.md": skillText("inner", toolsText({ run_inner: "run.sh" })),
      "inner/.codeagent/skills/inner/run.sh": "echo\n",
    });
    const { sessionId } = await client.createSession({ workspace: join(workspace, "inner") });
    assert.deepEqual(
      (await skills.listSkills({ sessionId })).skills.map(({ name }) => name),
      ["inner"],
    );
    assert.deepEqual((await skills.listSkills({})).skills, []);
    const names = async (id: string) => (await tools.listTools({ sessionId: id })).tools.map(({ name }) => name);
    assert.ok((await names(sessionId)).includes("run_inner"));
    assert.ok(!(await names("")).includes("run_inner") && !(await names("")).includes("load_skill"));
  });

  test("ReloadSkills says what came, went and changed, once for each request id", async (context) => {
    const { skills, skillsFolder } = await start(context);
    await writeFiles(skillsFolder, {
      "a/SKILL.md": skillText("a"),
      "b/SKILL.md": skillText("b"),
      "c/SKILL.md": skillText("c"),
    });
    const first = await skills.listSkills({});
    await writeFile(join(skillsFolder, "a/SKILL.md"), skillText("a", "version: 2\n"));
    await rm(join(skillsFolder, "b"), { recursive: true });
    await writeFiles(skillsFolder, { "d/SKILL.md": skillText("d"), "c/more.md": "more\n" });
    const reload = await skills.reloadSkills({ requestId: "once" });
    assert.deepEqual([reload.added, reload.removed, reload.changed], [["d"], ["b"], ["a", "c"]]);
    assert.deepEqual(
      reload.skills.map(({ name, instructions }) => name + instructions),
      ["a", "c", "d"],
    );
    assert.ok(reload.generation > first.generation);
    await rm(join(skillsFolder, "d"), { recursive: true });
    assert.deepEqual(await skills.reloadSkills({ requestId: "once" }), reload);
    await assert.rejects(
      skills.reloadSkills({ requestId: "once", sessionId: "other" }),
      (error) => error instanceof ConnectError && error.code === Code.AlreadyExists,
    );
    const again = await skills.reloadSkills({});
    assert.deepEqual([again.added, again.removed, again.changed], [[], ["d"], []]);
    const nothing = await skills.reloadSkills({});
    assert.deepEqual(
      [nothing.added, nothing.removed, nothing.changed, nothing.generation],
      [[], [], [], again.generation],
    );
  });

  test("is SERVING", async (context) => {
    const { transport } = await start(context);
    assert.equal((await createClient(Health, transport).check({ service: SkillService.typeName })).status, 1);
  });
});

describe("hot reload, seen from outside", () => {
  test("WatchTools, ListTools and ListSkills tell a change within a second, and the next turn has it", async (context) => {
    const { skills, tools, client, skillsFolder } = await start(context, {
      script: "- when: { tool: run_hot }\n  text: done\n- tool_calls: [{ name: run_hot, arguments: {} }]\n",
    });
    const { sessionId } = await client.createSession(allow("run_hot"));
    const stop = new AbortController();
    context.after(() => stop.abort());
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { event } of tools.watchTools({ sessionId }, { signal: stop.signal })) {
        if (event.case !== "generation") continue;
        const { added, removed, changed } = event.value;
        const ours = (names: readonly string[]) =>
          names.filter((name) => name === "run_hot" || name === "load_skill").join();
        seen.push(`+${ours(added)} -${ours(removed)} ~${ours(changed)}`);
      }
    })().catch(() => undefined);
    const told = async (what: string) => {
      const ms = await until(what, () => seen.at(-1) === what);
      assert.ok(ms < 1000, `${what} after ${ms} ms`);
    };
    await told("+ - ~");
    const skill = skillText("hot", toolsText({ run_hot: "run.sh" }));
    await writeFiles(skillsFolder, { "hot/SKILL.md": skill, "hot/run.sh": "echo one\n" });
    await told("+load_skill,run_hot - ~");
    assert.ok(
      (await tools.listTools({ sessionId })).tools.some(
        ({ name, source }) => name === "run_hot" && source === "skill:hot",
      ),
    );
    assert.deepEqual(
      (await skills.listSkills({ sessionId })).skills.map(({ name }) => name),
      ["hot"],
    );
    const output = async () => {
      await client.generate({ sessionId, messages: [user("run it")] });
      const { messages } = await client.listMessages({ sessionId });
      const answered = messages.findLast(({ role }) => role === "tool");
      return answered?.contentType.value;
    };
    assert.equal(await output(), "one\n");
    await writeFile(join(skillsFolder, "hot/run.sh"), "echo two\n");
    await told("+ - ~run_hot");
    assert.equal(await output(), "two\n");
    await rm(join(skillsFolder, "hot"), { recursive: true });
    await told("+ -load_skill,run_hot ~");
    stop.abort();
    await watching;
  });
});

describe("the skills that come with the server", () => {
  const flags = { bundled_skills: true };
  const own = ["load_skill", "move_files", "repo_summary", "survey_files", "web_search"];

  test("are listed without complaint and offered as tools", async (context) => {
    const { skills, tools } = await start(context, { flags });
    const list = await skills.listSkills({});
    assert.deepEqual(
      list.skills.map(({ name, state, diagnostics }) => [name, state, diagnostics]),
      [
        ["file-operations", "ready", []],
        ["repo-summary", "ready", []],
        ["web-search", "ready", []],
      ],
    );
    const names = (await tools.listTools({})).tools.map(({ name }) => name);
    assert.deepEqual(names.filter((name) => own.includes(name)).toSorted(), own);
  });

  /** Runs tools of a session that may. */
  async function startAllowed(context: Parameters<typeof startTestApp>[0], options: TestAppOptions = {}) {
    const started = await start(context, { ...options, flags: { ...flags, ...options.flags } });
    const { sessionId } = await started.client.createSession(allow(...own));
    const run = async (name: string, given: object) => {
      const { result } = await started.tools.executeTool({ sessionId, name, arguments: JSON.stringify(given) });
      assert.ok(result !== undefined);
      return result;
    };
    return { ...started, run };
  }

  test("repo-summary gives the facts of a repository", async (context) => {
    const { run } = await startAllowed(context, {
      files: {
        "package.json": '{"scripts":{"test":"node --test"}}',
        "src/main.ts": "one\ntwo\n",
        "src/lib/other.ts": "one\n",
        "tool.py": "one\n",
        "node_modules/x/index.js": "left out\n",
      },
    });
    const { success, output, error } = await run("repo_summary", {});
    assert.ok(success, error);
    assert.match(output, /^5 files, \d+ bytes; /);
    assert.match(output, / 3 {6}2 {2}TypeScript\n/);
    assert.match(output, /entry points: src\/main\.ts\n/);
    assert.match(output, /package\.json\n {4}npm run test: node --test\n/);
    assert.match(output, /recent commits:\nnone: /);
    assert.doesNotMatch(output, /JavaScript/);
    assert.match((await run("repo_summary", { path: "../.." })).output, /is outside the workspace/);
  });

  test("file-operations surveys and moves, and never overwrites", async (context) => {
    const { run, workspace } = await startAllowed(context, {
      files: { "a/x.txt": "same\n", "b/y.txt": "same\n", "b/x.txt": "other\n" },
    });
    const survey = await run("survey_files", {});
    assert.match(survey.output, /^4 files, /);
    assert.match(survey.output, /same content:\n +5 {2}a\/x\.txt {2}b\/y\.txt\n/);
    const planned = await run("move_files", { pattern: "a/*.txt", into: "c" });
    assert.equal(planned.output, "a/x.txt -> c/x.txt\n1 files would be moved; call again with apply to do it\n");
    const clash = await run("move_files", { pattern: "**/x.txt", into: "c", apply: true });
    assert.match(
      `${clash.success} ${clash.output}`,
      /^false nothing was done:\nc\/x\.txt would be overwritten by b\/x\.txt/,
    );
    const moved = await run("move_files", { pattern: "a/*.txt", into: "c", apply: true });
    assert.equal(moved.output, "a/x.txt -> c/x.txt\n1 files moved\n");
    assert.match((await run("survey_files", { path: "c" })).output, /^1 files/);
    assert.match(
      (await run("move_files", { pattern: "../*", into: "c" })).output,
      /outside the workspace|no file matches/,
    );
    await rm(join(workspace, "c"), { recursive: true });
  });

  test("web-search asks the configured service, and says so where there is none", async (context) => {
    const asked: (string | undefined)[] = [];
    const service = createServer((request, response) => {
      asked.push(request.url, request.headers["x-key"]?.toString());
      response.end(
        JSON.stringify({
          results: [{ title: "A  hit", url: "https://example.com/", content: "About\nit" }, { title: "Second" }],
        }),
      );
    }).listen(0, "127.0.0.1");
    context.after(() => service.close());
    await new Promise((resolve) => service.once("listening", resolve));
    const { port } = service.address() as AddressInfo;
    const env = {
      SKILL_WEB_SEARCH__URL: `http://127.0.0.1:${port}/s?q={query}&n={count}`,
      SKILL_WEB_SEARCH__KEY: "k",
      SKILL_WEB_SEARCH__KEY_HEADER: "X-Key",
    };
    const { run } = await startAllowed(context, { env });
    const { success, output, error } = await run("web_search", { query: "a & b", count: 1 });
    assert.ok(success, `${error}: ${output}`);
    assert.equal(output, "1. A hit\n   https://example.com/\n   About it\n");
    assert.deepEqual(asked, ["/s?q=a%20%26%20b&n=1", "k"]);
    const without = await startAllowed(context);
    const refused = await without.run("web_search", { query: "a" });
    assert.equal(refused.success, false);
    assert.match(refused.output, /^no search service is configured; the operator has to set SKILL_WEB_SEARCH__URL/);
  });
});
