import { posix } from "node:path";
import { errorIn, inOrder, type SkillDiagnostic, skillFile, warningIn } from "./diagnostic.ts";
import { type Manifest, readManifest } from "./manifest.ts";
import { dispatchOf } from "./run-script.ts";
import { type KnownFiles, readSkillFiles, type SkillFile, type SkillFiles, SkillFilesError } from "./skill-files.ts";

/** Where skills are found: folders of the operator, those that come with the server, the workspace of a session. */
export type SkillScope = "user" | "bundled" | "workspace";

/** A skill as its files were at one moment. Never changed. */
export interface SkillVersion {
  readonly manifest: Manifest;
  readonly scope: SkillScope;
  /** Absolute path of its folder, without links. */
  readonly directory: string;
  readonly files: readonly SkillFile[];
  /** SHA-256 over its files, in hexadecimal. */
  readonly contentSha256: string;
  /** SHA-256 over its files but SKILL.md, in hexadecimal. */
  readonly scriptsSha256: string;
  /** Milliseconds since 1970. */
  readonly loadTimeMs: number;
}

/** What reading a skill's folder came to. */
export interface SkillReading {
  /** Absent where it can't be loaded. */
  readonly version?: SkillVersion;
  /** The name the skill gives itself, wherever that can be read. */
  readonly name?: string;
  /** Errors first. */
  readonly diagnostics: readonly SkillDiagnostic[];
  /** Over all that was read, with what was wrong with it: the same for the same files. */
  readonly state: string;
  /** Some file changed while it was read. */
  readonly isTorn: boolean;
  /** When the newest of the files was changed last, in milliseconds since 1970. */
  readonly changedMs: number;
}

export interface SkillFolderName {
  /** Absolute path without links. */
  readonly directory: string;
  /** The folder's name where it was found; a link may lead to one of another name. */
  readonly folder: string;
  readonly scope: SkillScope;
}

/**
 * Reads a skill's folder.
 * @param before what it came to the last time, which is given again for the same files.
 * @returns `undefined` where there is no SKILL.md, which makes it no skill.
 */
export async function readSkill(
  named: SkillFolderName,
  nowMs: number,
  known?: KnownFiles,
  before?: SkillReading,
): Promise<SkillReading | undefined> {
  let files: SkillFiles;
  try {
    files = await readSkillFiles(named.directory, known);
  } catch (error) {
    if (!(error instanceof SkillFilesError)) throw error;
    const diagnostics = [errorIn("", error.code, error.message)];
    return { diagnostics, state: error.code, isTorn: false, changedMs: 0 };
  }
  const { contentSha256, warnings, isTorn, changedMs } = files;
  const unreadable = warnings.find(({ file }) => file === skillFile);
  if (files.skillFileBytes === undefined && unreadable === undefined) return undefined;
  const state = `${contentSha256} ${JSON.stringify(warnings)}`;
  if (before?.state === state) return { ...before, isTorn, changedMs };
  if (files.skillFileBytes === undefined)
    return {
      diagnostics: [errorIn(skillFile, "UNREADABLE_FILE", unreadable?.message ?? "")],
      state,
      isTorn,
      changedMs,
    };
  const { manifest: read, name, diagnostics: found } = readManifest(files.skillFileBytes, named.folder);
  const diagnostics = [...found, ...warnings];
  const told = { ...(name === undefined ? {} : { name }), state, isTorn, changedMs };
  if (read === undefined) return { ...told, diagnostics: inOrder(diagnostics) };
  const tools = [];
  for (const tool of read.tools) {
    const fault = commandFault(files.files, tool.command);
    if (fault === undefined) tools.push(tool);
    else {
      const sentence = `the command of ${tool.name} ${fault.message}`;
      diagnostics.push(errorIn(skillFile, fault.code, sentence, tool.commandPlace));
    }
  }
  if (named.scope === "workspace") diagnostics.push(...claimsOfWorkspace(read));
  const manifest = { ...read, tools };
  const { directory, scope } = named;
  const { scriptsSha256 } = files;
  const version = { manifest, scope, directory, files: files.files, contentSha256, scriptsSha256, loadTimeMs: nowMs };
  return { ...told, version, diagnostics: inOrder(diagnostics) };
}

/** A script is one of the skill's own files, as they were read; a link to one of the others will do. */
function commandFault(files: readonly SkillFile[], command: string): { code: string; message: string } | undefined {
  if (command.startsWith("/"))
    return { code: "COMMAND_OUTSIDE", message: "is an absolute path; name it from the skill's folder" };
  const path = posix.normalize(command);
  const found = files.find((file) => file.path === path);
  if (found === undefined) {
    const message = "lies outside the skill's folder, is not there or is no regular file";
    return { code: "COMMAND_OUTSIDE", message };
  }
  if (dispatchOf(path, found.isExecutable ? 0o111 : 0) !== undefined) return undefined;
  const message = "has no ending that is known (.sh, .bash, .py, .js, .mjs, .cjs) and is not executable; chmod +x it";
  return { code: "COMMAND_NOT_EXECUTABLE", message };
}

/** What a skill of a workspace asks for and does not get: whoever can write there is not the operator. */
function claimsOfWorkspace({ allowedTools, tools }: Manifest): SkillDiagnostic[] {
  const claims: readonly (readonly [boolean, string, string])[] = [
    [
      allowedTools.length > 0,
      "ALLOWED_TOOLS_WITHOUT_EFFECT",
      "allowed-tools of a skill of the workspace allow nothing",
    ],
    [
      tools.some(({ readOnly }) => readOnly),
      "READ_ONLY_WITHOUT_EFFECT",
      "read_only of a skill of the workspace is not believed: its tools are asked for",
    ],
    [
      tools.some(({ network }) => network),
      "NETWORK_WITHOUT_EFFECT",
      "network of a skill of the workspace is not granted: its tools run without",
    ],
  ];
  return claims.flatMap(([isMade, code, message]) => (isMade ? [warningIn(skillFile, code, message)] : []));
}
