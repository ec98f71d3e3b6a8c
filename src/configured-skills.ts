import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Config } from "./config.ts";
import { Skills, type SkillsOptions } from "./skill/skills.ts";

/** The skills that the configuration asks for. Nothing is read before somebody asks. */
export function configuredSkills(config: Config, rest: Omit<SkillsOptions, "folders" | "bundled">): Skills {
  const bundled = config.bundled_skills ? bundledSkillsFolder() : undefined;
  return new Skills({ ...rest, folders: skillsFolders(config), ...(bundled === undefined ? {} : { bundled }) });
}

/** The operator's folders of skills, in the order of their claims to a name. */
export function skillsFolders({ skills_dir: folders, data_dir: dataDir }: Config): readonly string[] {
  return folders.length === 0 ? [join(dataDir, "skills")] : folders;
}

/** They lie in the package, beside the sources and beside what is built of them. */
function bundledSkillsFolder(): string | undefined {
  return ["../examples/skills", "../../examples/skills"]
    .map((path) => fileURLToPath(new URL(path, import.meta.url)))
    .find((path) => existsSync(path));
}
