import { loadSkillName } from "../chat/skill.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { boundedText, harmlessText } from "../tool/bounded-text.ts";
import type { FunctionProvider } from "../tool/function-provider.ts";
import { textArgument } from "../tool/local-function.ts";
import { openFileBeneath, WorkspacePathError } from "../tool/workspace.ts";
import { skillFile } from "./diagnostic.ts";
import type { SkillVersion } from "./skill-version.ts";

/** What the model reads of all skills at the beginning, in characters. */
const catalogCharacters = 24 * 1024;
const shortCharacters = 160;
const fileLimitBytes = 240 * 1024;
const shownFiles = 200;

/** The function a model reads a skill's instructions with. @param versions at least one, each of another name. */
export function loadSkill(versions: readonly SkillVersion[]): FunctionProvider {
  const byName = new Map(versions.map((version) => [version.manifest.name, version]));
  const definition = {
    name: loadSkillName,
    description:
      "Reads the instructions of a skill: how to go about a certain kind of task, with scripts and further files. " +
      `Read it before you begin a task that one of them is for.\nThe skills:\n${catalogOf(versions)}`,
    parameters: JSON.stringify({
      type: "object",
      properties: {
        name: { type: "string", minLength: 1, description: "Name of the skill" },
        file: {
          type: "string",
          minLength: 1,
          description: "One of the skill's other files, as its list has it; without it the instructions are read",
        },
      },
      required: ["name"],
      additionalProperties: false,
    }),
    source: "local",
    readOnly: true,
    timeoutMs: 30_000,
    returns: "The instructions as Markdown and the list of the skill's other files, or the text of the file.",
  };
  return {
    source: "local",
    list: async () => [definition],
    async call({ arguments: given }) {
      const name = textArgument(given, "name") ?? "";
      const file = textArgument(given, "file");
      const version = byName.get(name);
      if (version === undefined) {
        const names = [...byName.keys()].join(", ");
        return toolFailure(`there is no skill "${name.slice(0, 100)}"; there are: ${names.slice(0, 2000)}`);
      }
      return file === undefined ? instructionsOf(version) : fileOf(version, file);
    },
    close: async () => {},
  };
}

/** A line for each, in order of the names; where there are too many for the place, less of each. */
function catalogOf(versions: readonly SkillVersion[]): string {
  const manifests = versions
    .map(({ manifest }) => manifest)
    .toSorted((left, right) => (left.name < right.name ? -1 : 1));
  const oneLine = (text: string) => harmlessText(text.replace(/\s+/g, " ").trim());
  const whole = manifests.map(({ name, description }) => `- ${name}: ${oneLine(description)}`).join("\n");
  if (whole.length <= catalogCharacters) return whole;
  const short = manifests
    .map(({ name, description }) => `- ${name}: ${oneLine(description).slice(0, shortCharacters).toWellFormed()}`)
    .join("\n");
  if (short.length <= catalogCharacters) return short;
  const lines: string[] = [];
  let length = 0;
  for (const { name } of manifests) {
    length += name.length + 3;
    if (length > catalogCharacters) break;
    lines.push(`- ${name}`);
  }
  const rest = manifests.length - lines.length;
  return [...lines, ...(rest > 0 ? [`and ${rest} more`] : [])].join("\n");
}

function instructionsOf(version: SkillVersion): ToolResult {
  const { name, instructions, tools, allowedTools } = version.manifest;
  const others = version.files.filter(({ path }) => path !== skillFile).map(({ path }) => path);
  const files = others.slice(0, shownFiles).map((path) => `- ${path.replace(/[\r\n]/g, "?")}`);
  if (others.length > files.length) files.push(`and ${others.length - files.length} more`);
  const sections = [
    instructions.trim() === "" ? "(The skill has no instructions.)" : instructions.trimEnd(),
    ...(tools.length === 0 ? [] : [`Tools of this skill: ${tools.map((tool) => tool.name).join(", ")}`]),
    ...(files.length === 0 ? [] : [`Other files, to be read with load_skill and "file":\n${files.join("\n")}`]),
  ];
  const { text, cutBytes } = boundedText(sections.join("\n\n"), fileLimitBytes);
  return {
    success: true,
    output: text,
    ...(cutBytes > 0 ? { truncated: true } : {}),
    metadata: {
      skill: name,
      skill_scope: version.scope,
      // Whoever can write into a workspace is not to allow anything.
      allowed_tools: JSON.stringify(version.scope === "workspace" ? [] : allowedTools),
    },
  };
}

async function fileOf({ manifest, directory, scope }: SkillVersion, file: string): Promise<ToolResult> {
  const metadata = { skill: manifest.name, skill_scope: scope };
  try {
    const { handle, stats } = await openFileBeneath(directory, file);
    try {
      const bytes = Buffer.alloc(Math.min(stats.size, fileLimitBytes));
      const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
      const read = bytes.subarray(0, bytesRead);
      if (read.subarray(0, 8192).includes(0))
        return { success: true, output: `[binary file of ${stats.size} bytes; it is not shown]`, metadata };
      const text = harmlessText(new TextDecoder().decode(read));
      if (stats.size <= bytesRead)
        return { success: true, output: text === "" ? "[the file is empty]" : text, metadata };
      const output = `${text}\n[... ${stats.size - bytesRead} more bytes ...]`;
      return { success: true, output, truncated: true, metadata };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (!(error instanceof WorkspacePathError)) throw error;
    return toolFailure(
      `${error.message.replace("the workspace", "the skill's folder")}; see the list of files of ${manifest.name}`,
    );
  }
}
