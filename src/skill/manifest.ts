import { isRecord } from "../tool/check-value.ts";
import { ruleFault } from "../tool/permission.ts";
import { errorIn, type SkillDiagnostic, skillFile, warningIn } from "./diagnostic.ts";
import { type FrontMatter, readFrontMatter } from "./front-matter.ts";
import { readTools, type ScriptTool } from "./skill-tool.ts";

/** What a SKILL.md says. */
export interface Manifest {
  readonly name: string;
  readonly description: string;
  /** Empty where there is none, as are the next two. */
  readonly version: string;
  readonly author: string;
  readonly license: string;
  /** Rules of permission that are to allow what the skill needs. */
  readonly allowedTools: readonly string[];
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Fields nobody here knows, as they are. */
  readonly otherFields: Readonly<Record<string, unknown>>;
  readonly tools: readonly ScriptTool[];
  /** The Markdown after the front matter. */
  readonly instructions: string;
}

export interface ManifestReading {
  /** Absent where the skill can't be loaded; then one of the diagnostics is an error that says why. */
  readonly manifest?: Manifest;
  /** The name it gives itself, wherever that can be read. */
  readonly name?: string;
  readonly diagnostics: readonly SkillDiagnostic[];
}

/** The largest SKILL.md that is read. */
export const maxSkillFileBytes = 1024 * 1024;

const namePattern = /^[a-z0-9]+(?:-[a-z0-9]+)*$/;
const maxNameCharacters = 64;
const maxDescriptionCharacters = 1024;
const maxAllowedTools = 100;
const knownFields = ["name", "description", "version", "author", "license", "metadata", "allowed-tools", "tools"];

/** Says what is wrong with the name of a skill, as the end of a sentence; `undefined` for a good one. */
export function skillNameFault(name: string): string | undefined {
  if (name.length > maxNameCharacters) return `has ${name.length} characters; ${maxNameCharacters} is the most`;
  return namePattern.test(name) ? undefined : "has to be small letters and digits, with single - between them";
}

/**
 * Reads a SKILL.md: the open format for skills of agents (https://agentskills.io/specification), and the tools that come
 * with a skill of this server. Where that format asks its readers for mercy
 * (https://agentskills.io/client-implementation/adding-skills-support), as for a name that is not the folder's, it is a warning.
 * @param folder name of the folder it lies in
 */
export function readManifest(bytes: Uint8Array, folder: string): ManifestReading {
  if (bytes.length > maxSkillFileBytes) {
    const sentence = `the file has ${bytes.length} bytes; ${maxSkillFileBytes} is the most`;
    return { diagnostics: [errorIn(skillFile, "FILE_TOO_LARGE", sentence)] };
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return { diagnostics: [errorIn(skillFile, "NOT_UTF8", "the file is not UTF-8; save it so")] };
  }
  const reading = readFrontMatter(text);
  if (!reading.ok) return { diagnostics: [reading.diagnostic] };
  return manifestOf(reading.frontMatter, folder);
}

function manifestOf(frontMatter: FrontMatter, folder: string): ManifestReading {
  const diagnostics: SkillDiagnostic[] = [];
  const diagnose = (diagnostic: SkillDiagnostic) => void diagnostics.push(diagnostic);
  const name = readName(frontMatter, folder, diagnose);
  const description = readDescription(frontMatter, diagnose);
  const allowedTools = readAllowedTools(frontMatter, diagnose);
  const metadata = readMetadata(frontMatter, diagnose);
  const tools = readTools(frontMatter, diagnose);
  const told = (field: string) => readShortText(frontMatter, field, diagnose);
  // The open format has these two in its metadata.
  const version = told("version") ?? frontMatter.writtenAt(["metadata", "version"])?.slice(0, 100) ?? "";
  const author = told("author") ?? frontMatter.writtenAt(["metadata", "author"])?.slice(0, 100) ?? "";
  const license = told("license") ?? "";
  if (name === undefined || description === undefined) return { ...(name === undefined ? {} : { name }), diagnostics };
  const others = Object.entries(frontMatter.fields).filter(([field]) => !knownFields.includes(field));
  const manifest: Manifest = {
    ...{ name, description, version, author, license, allowedTools, metadata, tools },
    otherFields: Object.fromEntries(others),
    instructions: frontMatter.body.replace(/^(?:[ \t]*\r?\n)+/, ""),
  };
  return { manifest, name, diagnostics };
}

type Diagnose = (diagnostic: SkillDiagnostic) => void;

function readName({ fields, placeOf }: FrontMatter, folder: string, diagnose: Diagnose): string | undefined {
  const name = fields["name"];
  if (name === undefined || name === null || name === "") {
    diagnose(errorIn(skillFile, "MISSING_NAME", "name is missing; give the skill the name of its folder", placeOf([])));
    return undefined;
  }
  const fault = typeof name === "string" ? skillNameFault(name) : "has to be a text; put it in quotes";
  if (fault !== undefined || typeof name !== "string") {
    diagnose(errorIn(skillFile, "INVALID_NAME", `name ${fault}`, placeOf(["name"])));
    return undefined;
  }
  if (name !== folder) {
    const sentence = `the name ${name} differs from that of the folder, ${folder.slice(0, 100)}; other agents want them to be the same`;
    diagnose(warningIn(skillFile, "NAME_DIFFERS_FROM_FOLDER", sentence, placeOf(["name"])));
  }
  return name;
}

function readDescription({ fields, placeOf }: FrontMatter, diagnose: Diagnose): string | undefined {
  const given = fields["description"];
  if (given === undefined || given === null || (typeof given === "string" && given.trim() === "")) {
    const sentence = "description is missing; say what the skill does and when to use it";
    diagnose(errorIn(skillFile, "MISSING_DESCRIPTION", sentence, placeOf(["description"])));
    return undefined;
  }
  const characters = typeof given === "string" ? [...given.trim()].length : 0;
  if (typeof given === "string" && characters <= maxDescriptionCharacters) return given.trim();
  const fault =
    characters > 0 ? `has ${characters} characters; ${maxDescriptionCharacters} is the most` : "has to be a text";
  diagnose(errorIn(skillFile, "INVALID_DESCRIPTION", `description ${fault}`, placeOf(["description"])));
  return undefined;
}

function readShortText(frontMatter: FrontMatter, field: string, diagnose: Diagnose): string | undefined {
  const given = frontMatter.fields[field];
  if (given === undefined || given === null) return undefined;
  const written = frontMatter.writtenAt([field])?.trim();
  const most = 500;
  if (written !== undefined && written.length <= most) return written;
  const sentence = `${field} has to be a text of up to ${most} characters; it is left out`;
  diagnose(warningIn(skillFile, "INVALID_FIELD", sentence, frontMatter.placeOf([field])));
  return undefined;
}

function readMetadata({ fields, placeOf }: FrontMatter, diagnose: Diagnose): Readonly<Record<string, unknown>> {
  const given = fields["metadata"] ?? {};
  if (isRecord(given)) return given;
  diagnose(warningIn(skillFile, "INVALID_FIELD", "metadata has to be a map; it is left out", placeOf(["metadata"])));
  return {};
}

/** A list, or a text with spaces or commas between the rules; those within parentheses belong to a rule. */
function readAllowedTools({ fields, placeOf }: FrontMatter, diagnose: Diagnose): readonly string[] {
  const given = fields["allowed-tools"] ?? [];
  const warn = (code: string, message: string, path: readonly (string | number)[] = ["allowed-tools"]) =>
    diagnose(warningIn(skillFile, code, message, placeOf(path)));
  if (typeof given !== "string" && !Array.isArray(given)) {
    warn("INVALID_FIELD", "allowed-tools has to be a list or a text with spaces between; it is left out");
    return [];
  }
  const items: readonly unknown[] = typeof given === "string" ? (given.match(/(?:[^\s,(]|\([^)]*\)?)+/g) ?? []) : given;
  const rules = new Set<string>();
  for (const [index, item] of items.entries()) {
    const path = typeof given === "string" ? ["allowed-tools"] : ["allowed-tools", index];
    const fault = typeof item === "string" ? ruleFault(item) : "is no text";
    if (typeof item !== "string" || fault !== undefined) {
      const shown = typeof item === "string" ? item.slice(0, 100) : "an entry";
      warn("INVALID_ALLOWED_TOOL", `${shown} in allowed-tools ${fault}; it is left out`, path);
    } else if (rules.size < maxAllowedTools) rules.add(item);
    else {
      warn(
        "TOO_MANY_ALLOWED_TOOLS",
        `allowed-tools has more than ${maxAllowedTools} rules; the others are left out`,
        path,
      );
      break;
    }
  }
  return [...rules];
}
