import { createHash } from "node:crypto";
import { realpath } from "node:fs/promises";
import { extname, join } from "node:path";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { FunctionCall, FunctionContext, FunctionDefinition, FunctionProvider } from "../tool/function-provider.ts";
import { type ProgramResult, runProgram } from "../tool/run-program.ts";
import { ProgramRefusedError, type Sandbox, SandboxUnavailableError } from "../tool/sandbox/sandbox.ts";
import { openFileBeneath, WorkspacePathError } from "../tool/workspace.ts";
import { readSkillFiles, SkillFilesError } from "./skill-files.ts";
import type { ScriptTool } from "./skill-tool.ts";
import type { SkillVersion } from "./skill-version.ts";

export interface ScriptEnvironment {
  readonly sandbox: Sandbox;
  /** The server's environment; a skill of the operator sees what is named for it in there, `SKILL_<NAME>__...`. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The files are not what they were when the skill was loaded. */
  onChanged(): void;
}

/** Every argument goes through the environment, which takes 128 KiB a piece. */
const maxArgumentsBytes = 100 * 1024;
const programs: Readonly<Record<string, string>> = {
  ".sh": "sh",
  ".bash": "bash",
  ".py": "python3",
  ".js": process.execPath,
  ".mjs": process.execPath,
  ".cjs": process.execPath,
};

/** How a script is run: the program that reads it, or itself; `undefined` for what is no script and not executable. */
export function dispatchOf(path: string, mode: number): { readonly program?: string } | undefined {
  const program = programs[extname(path)];
  if (program !== undefined) return { program };
  return (mode & 0o111) === 0 ? undefined : {};
}

/** The scripts of a skill as functions; what they are stays the same for whoever holds the provider. */
export function scriptFunctions(skill: SkillVersion, environment: ScriptEnvironment): FunctionProvider {
  const definitions = scriptDefinitions(skill);
  const find = (name: string) => skill.manifest.tools.find((tool) => tool.name === name);
  return {
    source: sourceOf(skill),
    list: async () => definitions,
    async call(call, context) {
      const tool = find(call.name);
      if (tool === undefined) return toolFailure(`the skill ${skill.manifest.name} has no tool "${call.name}"`);
      try {
        return await runScript(skill, tool, call.arguments, context, environment);
      } catch (error) {
        const refusals = [WorkspacePathError, SandboxUnavailableError, ProgramRefusedError];
        if (error instanceof Error && refusals.some((refusal) => error instanceof refusal))
          return toolFailure(error.message);
        throw error;
      }
    },
    async fingerprint({ name }) {
      const tool = find(name);
      return tool === undefined ? "" : digestOf(tool, await scriptsNow(skill.directory));
    },
    close: async () => {},
  };
}

/** The functions a skill has, in the order of its author. */
export function scriptDefinitions(skill: SkillVersion): readonly FunctionDefinition[] {
  return skill.manifest.tools.map((tool) => definitionOf(skill, tool));
}

function sourceOf({ manifest }: SkillVersion): string {
  return `skill:${manifest.name}`;
}

function definitionOf(skill: SkillVersion, tool: ScriptTool): FunctionDefinition {
  const { name, title, description, parameters, returns, timeoutMs } = tool;
  const isTrusted = skill.scope !== "workspace";
  return {
    name,
    description,
    parameters,
    timeoutMs,
    ...(title === undefined ? {} : { title }),
    ...(returns === undefined ? {} : { returns }),
    source: sourceOf(skill),
    readOnly: isTrusted && tool.readOnly,
    ...(isTrusted && tool.network ? { openWorld: true } : {}),
    runsProgram: true,
    ...(isTrusted ? {} : { ofWorkspace: true }),
    digest: digestOf(tool, skill.scriptsSha256),
  };
}

/** Over all that decides what a call runs. SKILL.md is not among it: a broken one leaves the last good version at work. */
function digestOf({ command, network, timeoutMs }: ScriptTool, scriptsSha256: string): string {
  return createHash("sha256")
    .update(JSON.stringify([command, network, timeoutMs, scriptsSha256]))
    .digest("hex");
}

/** Empty where the folder can't be read any more. */
async function scriptsNow(directory: string): Promise<string> {
  try {
    return (await readSkillFiles(directory)).scriptsSha256;
  } catch (error) {
    if (error instanceof SkillFilesError) return "";
    throw error;
  }
}

/**
 * What was approved are the bytes the definition's digest is of. Rather than to run a copy of them, a call for which they
 * have changed is refused: a person who edits a script wants the new one to run, and the next turn has it.
 */
async function runScript(
  skill: SkillVersion,
  tool: ScriptTool,
  given: FunctionCall["arguments"],
  { workspace, signal, onOutput }: FunctionContext,
  { sandbox, env, onChanged }: ScriptEnvironment,
): Promise<ToolResult> {
  const { directory, manifest } = skill;
  if ((await scriptsNow(directory)) !== skill.scriptsSha256) {
    onChanged();
    return toolFailure(
      `the files of the skill ${manifest.name} have changed since this turn began, so ${tool.name} was not run; the next turn has the new ones`,
    );
  }
  const { handle, path, stats } = await openFileBeneath(directory, tool.command);
  await handle.close();
  const dispatch = dispatchOf(path, stats.mode);
  if (dispatch === undefined) return toolFailure(`${tool.command} can't be run; is it executable?`);
  const injected = argumentVariables(tool, given);
  if (typeof injected === "string") return toolFailure(injected);
  const script = join(directory, path);
  const program = dispatch.program === process.execPath ? await realpath(process.execPath) : dispatch.program;
  const isTrusted = skill.scope !== "workspace";
  const result = await runProgram(sandbox, {
    program: program ?? script,
    args: program === undefined ? [] : [script],
    cwd: workspace,
    env: {
      ...(isTrusted ? ownVariables(manifest.name, env) : {}),
      ...injected.variables,
      SKILL_DIR: directory,
      // The folder is to stay what its digest says.
      PYTHONDONTWRITEBYTECODE: "1",
    },
    access: {
      // What is said to change nothing can't.
      writable: isTrusted && tool.readOnly ? [] : [workspace],
      readable: [workspace, directory, ...(program === undefined || !program.startsWith("/") ? [] : [program])],
      network: isTrusted && tool.network,
    },
    timeoutMs: tool.timeoutMs,
    signal,
    stdinText: injected.json,
    ...(onOutput === undefined ? {} : { onOutput }),
  });
  return resultOf(tool, result);
}

/** Variables with the arguments, or a sentence why they can't be handed over. */
function argumentVariables(
  { name: tool, argumentNames, defaults }: ScriptTool,
  given: FunctionCall["arguments"],
): string | { readonly json: string; readonly variables: Record<string, string> } {
  const undeclared = Object.keys(given).find((name) => !argumentNames.includes(name));
  if (undeclared !== undefined) return `${tool} has no argument "${undeclared.slice(0, 80)}"`;
  const all = { ...defaults, ...given };
  const json = JSON.stringify(all);
  const bytes = Buffer.byteLength(json);
  if (bytes > maxArgumentsBytes)
    return `the arguments of ${tool} are ${bytes} bytes long and go through the environment, which takes ${maxArgumentsBytes}; write what is long into a file of the workspace and name that`;
  const variables: Record<string, string> = { TOOL_ARGS: json };
  for (const [name, value] of Object.entries(all)) {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    if (text.includes("\0"))
      return `the argument ${name} of ${tool} has a NUL character, which no program can be given`;
    // As it is written, and in capitals as shells have it. No two arguments are the same in capitals.
    variables[`ARG_${name}`] = text;
    variables[`ARG_${name.toUpperCase()}`] = text;
  }
  return { json, variables };
}

/** What the operator has put into the environment for this skill: `SKILL_WEB_SEARCH__URL` for one called web-search. */
function ownVariables(skill: string, env: ScriptEnvironment["env"]): Record<string, string> {
  const prefix = `SKILL_${skill.replaceAll("-", "_").toUpperCase()}__`;
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) =>
      name.startsWith(prefix) && value !== undefined ? [[name, value] as const] : [],
    ),
  );
}

function resultOf({ name, timeoutMs }: ScriptTool, result: ProgramResult): ToolResult {
  const { exitCode, output, truncated, endedBy, durationMs } = result;
  const error = {
    itself: exitCode === 0 ? undefined : `${name} ended with exit code ${exitCode}`,
    time: `${name} was stopped after ${timeoutMs} ms, the longest it may take`,
    stop: `${name} was stopped`,
    output: `${name} was stopped: it wrote too much`,
  }[endedBy];
  return {
    success: error === undefined,
    output,
    ...(error === undefined ? {} : { error }),
    ...(truncated ? { truncated } : {}),
    metadata: { exit_code: `${exitCode}`, duration_ms: `${durationMs}`, ended_by: endedBy },
  };
}
