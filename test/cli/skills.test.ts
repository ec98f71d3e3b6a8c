import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fromJson } from "@bufbuild/protobuf";
import { SkillSchema } from "../../gen/codeagent/v1/skill_service_pb.ts";
import { runToEnd, temporaryFolder } from "./start-codeagent.ts";

test("a skill can be made, checked, listed and broken", { timeout: 120_000 }, async (context) => {
  const folder = temporaryFolder(context);
  const env = { CODEAGENT_BUNDLED_SKILLS: "false" };
  const codeagent = async (...words: string[]) =>
    runToEnd(context, ["skills", ...words], { folder, env, script: "- text: hi\n" });
  const done = async (...words: string[]) => {
    const { exit, stdout, stderr } = await codeagent(...words);
    assert.equal(exit, 0, `${words.join(" ")}: ${stderr}${stdout}`);
    return stdout;
  };
  assert.equal(await done("new", "my-skill"), "data/skills/my-skill\n");
  const file = join(folder, "data/skills/my-skill/SKILL.md");
  assert.ok(existsSync(file));
  assert.equal(
    await done("ls"),
    "my-skill 0.1  ready  user  Greets somebody. Say here what the skill does and when to use it; that is all t…\n  tools: my_skill\n",
  );
  assert.match((await codeagent("new", "My Skill")).stderr, /^codeagent: the name "My Skill" has to be small letters/);
  writeFileSync(file, "---\nname: my-skill\ndescription: [a]\n---\n");
  mkdirSync(join(folder, "data/skills/other"));
  writeFileSync(join(folder, "data/skills/other/SKILL.md"), "---\nname: else\ndescription: d\n---\n");
  const checked = await codeagent("check", "data/skills");
  assert.equal(checked.exit, 1);
  assert.match(
    checked.stdout,
    /^data\/skills\/my-skill\/SKILL\.md:3:14: error: description has to be a text \[INVALID_DESCRIPTION\]\ndata\/skills\/other\/SKILL\.md:2:7: warning: .* \[NAME_DIFFERS_FROM_FOLDER\]\ndata\/skills\/other: else\n$/,
  );
  const lines = (await codeagent("check", "data/skills", "--json")).stdout.trimEnd().split("\n");
  assert.deepEqual(
    lines.map((line) => JSON.parse(line).diagnostics[0].line),
    [3, 2],
  );
  const listed = (await done("ls", "--json"))
    .trimEnd()
    .split("\n")
    .map((line) => fromJson(SkillSchema, JSON.parse(line)));
  assert.deepEqual(
    listed.map(({ name, state }) => [name, state]),
    [
      ["else", "ready"],
      ["my-skill", "broken"],
    ],
  );
  const nothing = await codeagent("check", "data/skills/my-skill/scripts");
  assert.deepEqual([nothing.exit, nothing.stdout], [1, ""]);
  assert.match(nothing.stderr, /has no skills: a skill is a folder with a SKILL\.md in it\n$/);
});
