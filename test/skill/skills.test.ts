import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, rename, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type SkillCatalog, Skills } from "../../src/skill/skills.ts";
import { indexFunctions } from "../../src/tool/function-index.ts";
import type { Sandbox } from "../../src/tool/sandbox/sandbox.ts";
import { skillText, temporaryFolder, toolsText, until, writeFiles } from "./write-files.ts";

const noSandbox: Sandbox = {
  kind: "none",
  start: () => assert.fail("nothing is to be started"),
};

async function start(
  context: { after(work: () => unknown): void },
  folders: readonly string[] = ["skills"],
  bundled?: string,
) {
  const folder = await temporaryFolder(context);
  const workspace = join(folder, "workspace");
  await mkdir(workspace);
  const reports: unknown[] = [];
  const skills = new Skills({
    folders: folders.map((name) => join(folder, name)),
    ...(bundled === undefined ? {} : { bundled: join(folder, bundled) }),
    sandbox: noSandbox,
    env: {},
    now: Date.now,
    report: (...report) => reports.push(report),
  });
  context.after(() => skills.close());
  const shown = async () => statesOf(await skills.catalog(workspace));
  const load = async (name: string, file?: string) => {
    const index = await indexFunctions(await skills.providersFor(workspace));
    const found = index.find("load_skill");
    assert.ok(found !== undefined);
    const call = { name: "load_skill", arguments: { name, ...(file === undefined ? {} : { file }) } };
    return found.provider.call(call, {
      sessionId: "s",
      turnId: "t",
      toolCallId: "c",
      workspace,
      signal: new AbortController().signal,
    });
  };
  return { folder, workspace, skills, reports, shown, load };
}

function statesOf({ skills }: SkillCatalog): string[] {
  return skills.map(({ name, state, scope, folder }) => `${name} ${state} ${scope} ${folder}`);
}

describe("which skill of a name serves", () => {
  test("that of the workspace before the operator's, these in order of their folders, what comes with the server last", async (context) => {
    const { folder, shown, load, skills, workspace } = await start(context, ["first", "second"], "bundled");
    const body = (where: string) => skillText("same", "", `from ${where}\n`);
    await writeFiles(folder, {
      "workspace/.codeagent/skills/same/SKILL.md": body("workspace"),
      "first/same/SKILL.md": body("first"),
      "second/same/SKILL.md": body("second"),
      "second/other/SKILL.md": skillText("other"),
      "bundled/same/SKILL.md": body("bundled"),
      "bundled/last/SKILL.md": skillText("last"),
    });
    assert.deepEqual(await shown(), [
      "last ready bundled last",
      "other ready user other",
      "same ready workspace same",
      "same shadowed user same",
      "same shadowed user same",
      "same shadowed bundled same",
    ]);
    assert.match((await load("same")).output, /^from workspace/);
    for (const [gone, next] of [
      ["workspace/.codeagent/skills/same", "first"],
      ["first/same", "second"],
      ["second/same", "bundled"],
    ] as const) {
      await rm(join(folder, gone), { recursive: true });
      const { removed, changed } = await skills.reload(workspace);
      assert.deepEqual([removed, changed], [[], ["same"]]);
      assert.match((await load("same")).output, new RegExp(`^from ${next}`));
    }
  });

  test("in one folder that whose folder has its name, and the other says which", async (context) => {
    const { folder, shown, skills, workspace } = await start(context);
    await writeFiles(join(folder, "skills"), {
      "a-copy/SKILL.md": skillText("real"),
      "real/SKILL.md": skillText("real"),
      "z-copy/SKILL.md": skillText("real"),
    });
    assert.deepEqual(await shown(), ["real ready user real", "real shadowed user a-copy", "real shadowed user z-copy"]);
    const { skills: views } = await skills.catalog(workspace);
    const said = views.map(({ diagnostics }) => diagnostics.map(({ code }) => code));
    assert.deepEqual(
      said,
      [[], ["NAME_DIFFERS_FROM_FOLDER", "SHADOWED"], ["NAME_DIFFERS_FROM_FOLDER", "SHADOWED"]].map((codes) =>
        codes.toSorted((a, b) => (a === "SHADOWED" ? 1 : b === "SHADOWED" ? -1 : 0)),
      ),
    );
    assert.match(
      views[1]?.diagnostics.at(-1)?.message ?? "",
      /another skill real comes first, that in real in the server's folders of skills/,
    );
  });

  test("a broken skill of the workspace takes no name away", async (context) => {
    const { folder, shown } = await start(context);
    await writeFiles(folder, {
      "skills/same/SKILL.md": skillText("same"),
      "workspace/.codeagent/skills/same/SKILL.md": "---\nname: same\n---\n",
    });
    assert.deepEqual(await shown(), ["same ready user same", "same broken workspace same"]);
  });

  test("unloading one of two skills with a tool of the same name leaves the other's", async (context) => {
    const { folder, skills, workspace } = await start(context);
    const skill = (name: string) => ({
      [`skills/${name}/SKILL.md`]: skillText(name, toolsText({ same_tool: "run.sh" })),
      [`skills/${name}/run.sh`]: "echo\n",
    });
    await writeFiles(folder, { ...skill("one"), ...skill("two") });
    const names = async () =>
      (await indexFunctions(await skills.providersFor(workspace))).definitions.map(
        ({ name, source }) => `${name} ${source}`,
      );
    assert.deepEqual(await names(), ["load_skill local", "same_tool skill:one", "skill_two__same_tool skill:two"]);
    await rm(join(folder, "skills/one"), { recursive: true });
    await skills.reload(workspace);
    assert.deepEqual(await names(), ["load_skill local", "same_tool skill:two"]);
  });
});

describe("load_skill", () => {
  test("is not there without skills", async (context) => {
    const { skills, workspace } = await start(context);
    assert.deepEqual(await skills.providersFor(workspace), []);
    assert.equal(await skills.providersFor(workspace), await skills.providersFor(workspace));
  });

  test("tells names and descriptions in order, then instructions, tools and files, then a file", async (context) => {
    const { folder, skills, workspace, load } = await start(context);
    await writeFiles(join(folder, "skills"), {
      "beta/SKILL.md": skillText(
        "beta",
        `allowed-tools: read_file run_command(git log:*)\n${toolsText({ run_beta: "run.sh" })}`,
        "# Beta\n",
      ),
      "beta/run.sh": "echo\n",
      "beta/docs/more.md": "More of it.\n",
      "beta/empty.md": "",
      "beta/data.bin": "a\0b",
      "beta/.git/config": "secret\n",
      "alpha/SKILL.md": "---\nname: alpha\ndescription: |\n  two\n  lines\u0007\n---\n",
    });
    await writeFile(join(folder, "secret.txt"), "secret\n");
    await symlink(join(folder, "secret.txt"), join(folder, "skills/beta/link.txt"));
    const index = await indexFunctions(await skills.providersFor(workspace));
    const definition = index.find("load_skill")?.definition;
    assert.match(definition?.description ?? "", /The skills:\n- alpha: two lines␇\n- beta: It does beta$/);
    assert.deepEqual([definition?.source, definition?.readOnly], ["local", true]);
    const loaded = await load("beta");
    const list = ["data.bin", "docs/more.md", "empty.md", "run.sh"].map((path) => `- ${path}`).join("\n");
    assert.equal(
      loaded.output,
      `# Beta\n\nTools of this skill: run_beta\n\nOther files, to be read with load_skill and "file":\n${list}`,
    );
    assert.deepEqual(loaded.metadata, {
      skill: "beta",
      skill_scope: "user",
      allowed_tools: '["read_file","run_command(git log:*)"]',
    });
    assert.equal((await load("beta", "docs/more.md")).output, "More of it.\n");
    assert.equal((await load("beta", "empty.md")).output, "[the file is empty]");
    assert.equal((await load("beta", "data.bin")).output, "[binary file of 3 bytes; it is not shown]");
    assert.equal((await load("alpha")).output, "(The skill has no instructions.)");
    assert.match((await load("gamma")).error ?? "", /^there is no skill "gamma"; there are: alpha, beta$/);
    for (const file of [
      "../alpha/SKILL.md",
      "/etc/passwd",
      "link.txt",
      "docs",
      "nothing.md",
      join(folder, "secret.txt"),
    ]) {
      const { success, output, error } = await load("beta", file);
      assert.deepEqual([success, output], [false, ""], file);
      assert.match(error ?? "", /see the list of files of beta$/);
    }
  });

  test("what a skill of the workspace allows itself is nothing", async (context) => {
    const { folder, load } = await start(context);
    await writeFiles(folder, {
      "workspace/.codeagent/skills/sly/SKILL.md": skillText("sly", "allowed-tools: run_command\n"),
    });
    assert.deepEqual((await load("sly")).metadata, { skill: "sly", skill_scope: "workspace", allowed_tools: "[]" });
  });

  test("many skills take a bounded place", async (context) => {
    const { folder, skills, workspace } = await start(context);
    const long = "d".repeat(1000);
    const files = Array.from({ length: 120 }, (_, index) => [
      `s${index}/SKILL.md`,
      `---\nname: s${index}\ndescription: ${long}\n---\n`,
    ]);
    await writeFiles(join(folder, "skills"), Object.fromEntries(files));
    const index = await indexFunctions(await skills.providersFor(workspace));
    const { description = "" } = index.find("load_skill")?.definition ?? {};
    assert.ok(description.length < 25_000 && description.includes("\n- s119: ddd"));
  });
});

describe("what lies in a folder of skills", () => {
  test("what is no skill is passed over; what can't be loaded is listed with the reason", async (context) => {
    const { folder, shown, skills, workspace } = await start(context);
    await writeFiles(join(folder, "skills"), {
      "README.md": "no skill\n",
      "notes/README.md": "no skill\n",
      ".hidden/SKILL.md": skillText("hidden"),
      "good/SKILL.md": skillText("good"),
      "broken/SKILL.md": "no front matter\n",
      "nameless/SKILL.md": "---\ndescription: d\n---\n",
      "folder/SKILL.md/x": "",
    });
    await writeFiles(folder, { "elsewhere/SKILL.md": skillText("linked"), "outside.md": skillText("outside") });
    await symlink(join(folder, "elsewhere"), join(folder, "skills/linked"));
    await symlink(join(folder, "skills"), join(folder, "skills/loop"));
    await symlink(join(folder, "nowhere"), join(folder, "skills/dangling"));
    await mkdir(join(folder, "skills/outside"));
    await symlink(join(folder, "outside.md"), join(folder, "skills/outside/SKILL.md"));
    await symlink("..", join(folder, "skills/good/up"));
    assert.deepEqual(await shown(), [
      "broken broken user broken",
      "good ready user good",
      "linked ready user linked",
      "nameless broken user nameless",
      "outside broken user outside",
    ]);
    const { skills: views } = await skills.catalog(workspace);
    const codes = Object.fromEntries(views.map(({ name, diagnostics }) => [name, diagnostics.map(({ code }) => code)]));
    assert.deepEqual(codes, {
      broken: ["MISSING_FRONT_MATTER"],
      good: ["LINK_LEFT_OUT"],
      linked: [],
      nameless: ["MISSING_NAME"],
      outside: ["UNREADABLE_FILE"],
    });
  });

  test("of a workspace nothing comes from outside it", async (context) => {
    const { folder, workspace, shown } = await start(context);
    await writeFiles(folder, {
      "elsewhere/one/SKILL.md": skillText("one"),
      "workspace/inner/two/SKILL.md": skillText("two"),
    });
    await mkdir(join(workspace, ".codeagent/skills"), { recursive: true });
    await symlink(join(folder, "elsewhere/one"), join(workspace, ".codeagent/skills/one"));
    await symlink("../../inner/two", join(workspace, ".codeagent/skills/two"));
    assert.deepEqual(await shown(), ["two ready workspace two"]);
    const other = await start(context);
    await symlink(join(folder, "elsewhere"), join(other.workspace, ".codeagent"));
    await writeFiles(folder, { "elsewhere/skills/three/SKILL.md": skillText("three") });
    assert.deepEqual(await other.shown(), ["skills broken workspace "]);
  });

  test("too much is refused: a file, a folder, their number", async (context) => {
    const { folder, skills, workspace } = await start(context);
    const many = Object.fromEntries(Array.from({ length: 2001 }, (_, index) => [`many/f${index}`, ""]));
    await writeFiles(join(folder, "skills"), {
      "large/SKILL.md": skillText("large", "", "x".repeat(1024 * 1024)),
      "many/SKILL.md": skillText("many"),
      ...many,
      "heavy/SKILL.md": skillText("heavy"),
      "heavy/data": "",
    });
    await truncate(join(folder, "skills/heavy/data"), 65 * 1024 * 1024);
    const { skills: views } = await skills.catalog(workspace);
    const codes = views.map(({ name, state, diagnostics }) => [name, state, diagnostics.map(({ code }) => code)]);
    assert.deepEqual(codes, [
      ["heavy", "broken", ["TOO_LARGE"]],
      ["large", "broken", ["FILE_TOO_LARGE"]],
      ["many", "broken", ["TOO_MANY_FILES"]],
    ]);
  });

  test("500 skills are loaded, in the order of their names, while nobody else waits", async (context) => {
    const { folder, skills, workspace } = await start(context);
    const name = (index: number) => `skill-${String(index).padStart(3, "0")}`;
    const files = Array.from({ length: 505 }, (_, index) => [`${name(index)}/SKILL.md`, skillText(name(index))]);
    await writeFiles(join(folder, "skills"), Object.fromEntries(files));
    // What others on this machine do does not count: only our own thread's time.
    let longestMs = 0;
    let last = process.threadCpuUsage();
    const timer = setInterval(() => {
      const { user, system } = process.threadCpuUsage(last);
      longestMs = Math.max(longestMs, (user + system) / 1000);
      last = process.threadCpuUsage();
    }, 1);
    const { skills: views } = await skills.catalog(workspace);
    clearInterval(timer);
    assert.equal(views.filter(({ state }) => state === "ready").length, 500);
    const beyond = views.filter(({ state }) => state === "broken");
    assert.deepEqual(
      beyond.map((view) => [view.name, view.diagnostics[0]?.code]),
      [500, 501, 502, 503, 504].map((index) => [name(index), "TOO_MANY_SKILLS"]),
    );
    assert.ok(longestMs < 200, `the event loop stood still for ${longestMs} ms`);
    const startMs = performance.now();
    await writeFile(join(folder, "skills/skill-250/SKILL.md"), skillText("skill-250", "", "changed\n"));
    const changed = async () =>
      (await skills.catalog(workspace)).skills[250]?.version?.manifest.instructions === "changed\n";
    await until("a change among 500", changed);
    assert.ok(performance.now() - startMs < 1000);
  });
});

describe("changes on disk", () => {
  const inForceMs = 1000;

  test("what comes, changes, breaks, is mended, renamed and removed is in force within a second", async (context) => {
    const { folder, skills, workspace, shown, load } = await start(context);
    const stop = skills.watch(workspace, () => {});
    context.after(stop);
    assert.deepEqual(await shown(), []);
    const becomes = async (...wanted: string[]) => {
      const ms = await until(wanted.join(), async () => (await shown()).join() === wanted.join());
      assert.ok(ms < inForceMs, `${wanted.join()} after ${ms} ms`);
    };
    const file = join(folder, "skills/one/SKILL.md");
    await writeFiles(join(folder, "skills"), {
      "one/SKILL.md": skillText("one", toolsText({ run_one: "run.sh" })),
      "one/run.sh": "echo 1\n",
    });
    await becomes("one ready user one");
    const before = await skills.providersFor(workspace);
    assert.equal(await skills.providersFor(workspace), before);
    const { generation } = await skills.catalog(workspace);
    const digestOf = async () =>
      (await indexFunctions(await skills.providersFor(workspace))).find("run_one")?.definition.digest;
    const digest = await digestOf();
    await writeFile(join(folder, "skills/one/run.sh"), "echo 2\n");
    assert.ok((await until("the script's change", async () => (await digestOf()) !== digest)) < inForceMs);
    assert.notEqual(await skills.providersFor(workspace), before);
    assert.ok((await skills.catalog(workspace)).generation > generation);
    await writeFile(file, "---\nname: one\n");
    await becomes("one stale user one");
    const [stale] = (await skills.catalog(workspace)).skills;
    assert.deepEqual(
      stale?.diagnostics.map(({ code }) => code),
      ["UNTERMINATED_FRONT_MATTER"],
    );
    assert.match((await load("one")).output, /^How to one\./);
    await writeFile(file, skillText("one", "", "Mended.\n"));
    await becomes("one ready user one");
    assert.match((await load("one")).output, /^Mended\./);
    await writeFile(`${file}.new`, skillText("one", "", "Exchanged.\n"));
    await rename(`${file}.new`, file);
    await until("the exchange", async () => (await load("one")).output.startsWith("Exchanged."), inForceMs);
    await rename(join(folder, "skills/one"), join(folder, "skills/two"));
    await becomes("one ready user two");
    await writeFile(join(folder, "skills/two/SKILL.md"), skillText("two"));
    await becomes("two ready user two");
    await writeFiles(folder, { "workspace/.codeagent/skills/two/SKILL.md": skillText("two") });
    await becomes("two ready workspace two", "two shadowed user two");
    await rm(join(workspace, ".codeagent"), { recursive: true });
    await becomes("two ready user two");
    await rm(join(folder, "skills/two/SKILL.md"));
    await becomes();
    await writeFiles(join(folder, "skills"), { "two/SKILL.md": skillText("two") });
    await becomes("two ready user two");
    await rm(join(folder, "skills"), { recursive: true });
    await becomes();
    await writeFiles(join(folder, "skills"), { "three/SKILL.md": skillText("three") });
    await becomes("three ready user three");
    await writeFile(join(folder, "skills/three/SKILL.md"), skillText("three", "version: 2\n"));
    await until(
      "a change in the new folder",
      async () => (await skills.catalog(workspace)).skills[0]?.version?.manifest.version === "2",
      inForceMs,
    );
  });

  test("what a link leads to is watched too", async (context) => {
    const { folder, skills, workspace, shown } = await start(context);
    await writeFiles(folder, {
      "elsewhere/one/SKILL.md": skillText("one"),
      "skills/other/SKILL.md": skillText("other"),
    });
    await symlink(join(folder, "elsewhere/one"), join(folder, "skills/one"));
    assert.deepEqual(await shown(), ["one ready user one", "other ready user other"]);
    await writeFile(join(folder, "elsewhere/one/SKILL.md"), skillText("one", "version: 2\n"));
    await until(
      "the change behind the link",
      async () => (await skills.catalog(workspace)).skills[0]?.version?.manifest.version === "2",
      inForceMs,
    );
  });

  test("whoever watches is told, until the watch ends", async (context) => {
    const { folder, skills, workspace, shown } = await start(context);
    let told = 0;
    const stop = skills.watch(workspace, () => told++);
    await writeFiles(join(folder, "skills"), { "one/SKILL.md": skillText("one") });
    await until("the first word", () => told > 0);
    stop();
    const before = told;
    await writeFiles(join(folder, "skills"), { "two/SKILL.md": skillText("two") });
    await until("the second skill", async () => (await shown()).length === 2);
    assert.equal(told, before);
  });

  test("a file that is written slowly is never seen in part", async (context) => {
    const { folder, skills, workspace } = await start(context);
    const file = join(folder, "skills/slow/SKILL.md");
    const text = (version: number) =>
      skillText("slow", `version: "${version}"\n`, `${"line\n".repeat(2000)}end ${version}\n`);
    await writeFiles(join(folder, "skills"), { "slow/SKILL.md": text(0) });
    const seen = new Set<string>();
    const look = async () => {
      const { manifest } = (await skills.catalog(workspace)).skills[0]?.version ?? {};
      const last = manifest?.instructions.trimEnd().split("\n").at(-1);
      seen.add(`${manifest?.version} ${last}`);
      return last === "end 1";
    };
    await look();
    const whole = text(1);
    for (let end = 0; end <= whole.length; end += 1500) {
      await writeFile(file, whole.slice(0, end));
      await new Promise((resolve) => setTimeout(resolve, 40));
      await look();
    }
    await writeFile(file, whole);
    await until("the whole file", look);
    assert.deepEqual([...seen], ["0 end 0", "1 end 1"]);
  });

  test("many workspaces are watched, and no watch is left after the end", {
    skip: process.platform !== "linux",
  }, async (context) => {
    const { folder, skills } = await start(context);
    const before = watches();
    const workspaces = Array.from({ length: 80 }, (_, index) => join(folder, `w${index}`));
    for (const workspace of workspaces)
      await writeFiles(workspace, { ".codeagent/skills/one/SKILL.md": skillText("one") });
    const providers = await Promise.all(workspaces.map((workspace) => skills.providersFor(workspace)));
    assert.ok(providers.every((each) => each.length === 1));
    // Two folders each; those that were used longest ago are left to themselves.
    await until("the oldest watches to end", () => watches() - before <= 2 * 64, 3000);
    assert.ok(watches() - before >= 2 * 60);
    await skills.close();
    assert.equal(watches(), before);
    await skills.close();
  });
});

/** Places that this process has the system watch. */
function watches(): number {
  return readdirSync("/proc/self/fdinfo").reduce((sum, descriptor) => {
    try {
      return sum + (readFileSync(`/proc/self/fdinfo/${descriptor}`, "utf8").match(/^inotify wd/gm) ?? []).length;
    } catch {
      return sum; // it was the one that read the list
    }
  }, 0);
}
