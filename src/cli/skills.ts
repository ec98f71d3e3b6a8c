import { chmod, mkdir, realpath, stat, writeFile } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { toJson } from "@bufbuild/protobuf";
import { type Skill, SkillSchema } from "../../gen/codeagent/v1/skill_service_pb.ts";
import { skillsFolders } from "../configured-skills.ts";
import { skillFile } from "../skill/diagnostic.ts";
import { skillNameFault } from "../skill/manifest.ts";
import { isSkill, type SkillEntry, SkillsFolder } from "../skill/skills-folder.ts";
import { type ConfigFlags, configFrom } from "./config-flags.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openService } from "./service.ts";
import { jsonLine, oneLine, type Page, pageOn } from "./terminal.ts";

export interface SkillsFlags extends ConnectionFlags {
  readonly json?: boolean;
}
export interface CheckSkillsFlags {
  readonly json?: boolean;
}
export interface NewSkillFlags extends ConfigFlags {
  /** Folder of skills to make it in. */
  readonly dir?: string;
}

const descriptionCharacters = 80;

/** Lists the skills of the workspace and the server, with what is wrong with them. @returns the exit code. */
export async function listSkills(flags: SkillsFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const { skills } = await service.client.skills.listSkills({});
  const page = pageOn(process.stdout);
  for (const skill of skills) {
    if (flags.json === true) page.write(jsonLine(toJson(SkillSchema, skill)));
    else showSkill(page, skill);
  }
  if (skills.length === 0 && flags.json !== true) page.write("there are no skills\n", "dim");
  return 0;
}

function showSkill(page: Page, { name, version, state, scope, tools, description, diagnostics }: Skill): void {
  const named = version === "" ? name : `${name} ${version}`;
  page.write(`${named}  ${state}  ${scope}  ${oneLine(description, descriptionCharacters)}\n`);
  if (tools.length > 0) page.write(`  tools: ${tools.map((tool) => tool.name).join(", ")}\n`, "dim");
  for (const { severity, file, line, message } of diagnostics) {
    const place = [file, line].filter((part) => part !== undefined && part !== "").join(":");
    page.write(`  ${severity}: ${place === "" ? "" : `${place}: `}${message}\n`, severity === "error" ? "red" : "dim");
  }
}

/**
 * Looks at a skill, or a folder of skills, as a server would.
 * @returns the exit code: 1 when a skill or a tool would not be loaded, or when there is none.
 */
export async function checkSkills(directory: string, flags: CheckSkillsFlags): Promise<number> {
  const place = await realpath(directory).catch(() => undefined);
  if (place === undefined || !(await stat(place)).isDirectory()) throw new Error(`${directory} is no folder`);
  const isOne = await isSkill(place);
  const folder = new SkillsFolder({
    path: isOne ? resolve(place, "..") : place,
    scope: "user",
    isWatched: false,
    now: Date.now,
    report: () => undefined,
    onChange: () => undefined,
  });
  const entries = (await folder.current()).filter((entry) => !isOne || join(place, "..", entry.folder) === place);
  await folder.close();
  const page = pageOn(process.stdout);
  if (entries.length === 0)
    throw new Error(`${directory} has no skills: a skill is a folder with a ${skillFile} in it`);
  for (const entry of entries)
    showCheck(page, isOne ? directory : join(directory, entry.folder), entry, flags.json === true);
  return entries.some(({ diagnostics }) => diagnostics.some(({ severity }) => severity === "error")) ? 1 : 0;
}

function showCheck(page: Page, shown: string, { name, version, diagnostics }: SkillEntry, isJson: boolean): void {
  const tools = version?.manifest.tools.map((tool) => tool.name) ?? [];
  if (isJson) {
    const found = diagnostics.map(({ severity, code, file, line, column, message }) => {
      const at = { ...(line === undefined ? {} : { line }), ...(column === undefined ? {} : { column }) };
      return { severity, code, file, ...at, message };
    });
    page.write(jsonLine({ name, path: shown, tools, diagnostics: found }));
    return;
  }
  for (const { severity, code, file, line, column, message } of diagnostics) {
    const place = [file === "" ? shown : join(shown, file), line, column]
      .filter((part) => part !== undefined)
      .join(":");
    page.write(`${place}: ${severity}: ${message} [${code}]\n`, severity === "error" ? "red" : "dim");
  }
  if (version !== undefined) page.write(`${shown}: ${name}${tools.length === 0 ? "" : `, with ${tools.join(", ")}`}\n`);
}

/** Makes a skill that works, with one script. @returns the exit code. */
export async function newSkill(name: string, flags: NewSkillFlags, { env }: TakenEnvironment): Promise<number> {
  const fault = skillNameFault(name);
  if (fault !== undefined) throw new Error(`the name ${JSON.stringify(name.slice(0, 80))} ${fault}`);
  const parent = flags.dir === undefined ? skillsFolders(configFrom(flags, env))[0] : resolve(flags.dir);
  if (parent === undefined) throw new Error("there is no folder of skills; name one with --dir");
  const folder = join(parent, name);
  await mkdir(parent, { recursive: true, mode: 0o700 });
  try {
    await mkdir(folder);
  } catch (cause) {
    const isThere = cause instanceof Error && "code" in cause && cause.code === "EEXIST";
    throw isThere ? new Error(`${folder} exists already; take another name`, { cause }) : cause;
  }
  await mkdir(join(folder, "scripts"));
  await writeFile(join(folder, "scripts", "greet.sh"), script);
  await chmod(join(folder, "scripts", "greet.sh"), 0o755);
  // The last one, so that a server that watches never sees it without its script.
  await writeFile(join(folder, skillFile), instructions(name));
  const shown = relative(process.cwd(), folder);
  pageOn(process.stdout).write(`${shown.startsWith("..") ? folder : shown || "."}\n`);
  return 0;
}

const script = `#!/bin/sh
# Arguments come as variables, ARG_NAME for one called name, and all of them as JSON on standard input and in TOOL_ARGS.
# It runs in the workspace; SKILL_DIR is the folder of the skill. What it prints is what the model reads.
set -eu
i=0
while [ "$i" -lt "$ARG_TIMES" ]; do
  printf 'Hello, %s!\\n' "$ARG_NAME"
  i=$((i + 1))
done
`;

function instructions(name: string): string {
  return `---
name: ${name}
description: Greets somebody. Say here what the skill does and when to use it; that is all the model sees before it loads the skill.
version: "0.1"
tools:
  - name: ${name.replaceAll("-", "_").replace(/^(?=\d)/, "run_")}
    description: Greets somebody by name.
    command: scripts/greet.sh
    parameters:
      name: { type: string, description: Whom to greet, required: true }
      times: { type: integer, minimum: 1, maximum: 10, default: 1, description: How often }
---
# ${name}

What the model is to do, step by step. Further files of this folder can be named here; the model reads them with
\`load_skill\` and \`file\`.
`;
}
