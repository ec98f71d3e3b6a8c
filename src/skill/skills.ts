import type { FunctionProvider } from "../tool/function-provider.ts";
import type { WorkspaceFunctions } from "../tool/function-sets.ts";
import type { Sandbox } from "../tool/sandbox/sandbox.ts";
import { type SkillDiagnostic, warningIn } from "./diagnostic.ts";
import { loadSkill } from "./load-skill.ts";
import { scriptFunctions } from "./run-script.ts";
import type { SkillScope, SkillVersion } from "./skill-version.ts";
import { type SkillEntry, SkillsFolder, type SkillsFolderOptions } from "./skills-folder.ts";

/** `ready`; `stale`: broken, the last good version serves; `broken`; `shadowed`: another one of its name comes first. */
export type SkillState = "ready" | "stale" | "broken" | "shadowed";

/** A skill as people are shown it. */
export interface SkillView extends SkillEntry {
  readonly state: SkillState;
}

/** The skills of a workspace, with those of the server. Never changed. */
export interface SkillCatalog {
  /** By name; of several with one name the one that serves first. */
  readonly skills: readonly SkillView[];
  /** Grows with each change while the process lives. */
  readonly generation: number;
}

/** How two catalogs differ in the skills that serve, by names in order. */
export interface SkillReload {
  readonly catalog: SkillCatalog;
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly changed: readonly string[];
}

export interface SkillsOptions {
  /** Folders of the operator's skills, absolute; the first has the first claim to a name. They need not exist. */
  readonly folders: readonly string[];
  /** Folder of the skills that come with the server, which are behind all others; read once. */
  readonly bundled?: string;
  readonly sandbox: Sandbox;
  /** Where an operator leaves what a skill needs to know, as `SKILL_WEB_SEARCH__URL`. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly report: SkillsFolderOptions["report"];
}

/** Where a workspace has its skills. */
export const workspaceSkillsFolder = ".codeagent/skills";

const checkEveryMs = 400;
const maxIdleWorkspaces = 64;
const idleMs = 10 * 60_000;

interface WorkspaceSkills {
  readonly folder: SkillsFolder;
  readonly listeners: Set<() => void>;
  usedMs: number;
  made?: Made;
}

/** What was composed of the folders' entries as they were. */
interface Made {
  readonly of: readonly (readonly SkillEntry[])[];
  readonly catalog: SkillCatalog;
  readonly providers: readonly FunctionProvider[];
}

/**
 * The skills found on disk: of a workspace before the operator's, and these before those that come with the server. Nothing
 * is read before somebody asks; from then on changes are noticed within a second. Its creator closes it.
 */
export class Skills implements WorkspaceFunctions {
  readonly #options: SkillsOptions;
  /** Of the server, in the order of their claims to a name. */
  readonly #shared: readonly SkillsFolder[];
  readonly #workspaces = new Map<string, WorkspaceSkills>();
  /** Providers of a version, which are the same wherever it serves. */
  readonly #providers = new WeakMap<SkillVersion, FunctionProvider>();
  #generation = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: SkillsOptions) {
    this.#options = options;
    const onChange = () => this.#changed();
    const { folders, bundled } = options;
    this.#shared = [
      ...folders.map((path) => this.#folder({ path, scope: "user", isWatched: true, onChange })),
      ...(bundled === undefined ? [] : [this.#folder({ path: bundled, scope: "bundled", isWatched: false, onChange })]),
    ];
  }

  async providersFor(workspace: string): Promise<readonly FunctionProvider[]> {
    return (await this.#make(workspace)).providers;
  }

  watch(workspace: string, onChange: () => void): () => void {
    const { listeners } = this.#of(workspace);
    // Two may listen with the same function.
    const listener = () => onChange();
    listeners.add(listener);
    void this.#make(workspace).catch(() => undefined);
    return () => void listeners.delete(listener);
  }

  /** All skills there are, with what is wrong with them. */
  async catalog(workspace: string): Promise<SkillCatalog> {
    return (await this.#make(workspace)).catalog;
  }

  /** Reads all folders of a workspace and of the server again, and says what that changed. */
  async reload(workspace: string): Promise<SkillReload> {
    const before = serving(await this.catalog(workspace));
    await Promise.all([this.#of(workspace).folder, ...this.#shared].map((folder) => folder.reload()));
    const catalog = await this.catalog(workspace);
    const after = serving(catalog);
    return {
      catalog,
      added: [...after.keys()].filter((name) => !before.has(name)),
      removed: [...before.keys()].filter((name) => !after.has(name)),
      changed: [...after].flatMap(([name, digest]) => (before.has(name) && before.get(name) !== digest ? [name] : [])),
    };
  }

  /** Ends all watches. Harmless a second time. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    const folders = [...this.#shared, ...[...this.#workspaces.values()].map(({ folder }) => folder)];
    this.#workspaces.clear();
    await Promise.all(folders.map((folder) => folder.close()));
  }

  #folder(options: Pick<SkillsFolderOptions, "path" | "scope" | "workspace" | "isWatched" | "onChange">): SkillsFolder {
    const { now, report } = this.#options;
    return new SkillsFolder({ ...options, now, report });
  }

  #of(workspace: string): WorkspaceSkills {
    if (this.#isClosed) throw new Error("the skills are closed");
    this.#timer ??= setInterval(() => this.#check(), checkEveryMs).unref();
    let skills = this.#workspaces.get(workspace);
    this.#workspaces.delete(workspace);
    if (skills === undefined) {
      const listeners = new Set<() => void>();
      const onChange = () => {
        for (const listener of listeners) listener();
      };
      const folder = this.#folder({
        path: workspaceSkillsFolder,
        workspace,
        scope: "workspace",
        isWatched: true,
        onChange,
      });
      skills = { folder, listeners, usedMs: 0 };
    }
    skills.usedMs = performance.now();
    // The one used last is the last.
    this.#workspaces.set(workspace, skills);
    return skills;
  }

  async #make(workspace: string): Promise<Made> {
    const skills = this.#of(workspace);
    const of = await Promise.all([skills.folder, ...this.#shared].map((folder) => folder.current()));
    const { made } = skills;
    if (made?.of.every((entries, index) => entries === of[index]) === true) return made;
    const views = viewsOf(of);
    const versions = views.flatMap(({ state, version }) =>
      version !== undefined && state !== "shadowed" ? [version] : [],
    );
    const isSame = made !== undefined && isSameViews(made.catalog.skills, views);
    skills.made = {
      of,
      catalog: isSame ? made.catalog : { skills: views, generation: ++this.#generation },
      providers: isSame ? made.providers : this.#providersOf(versions, workspace),
    };
    return skills.made;
  }

  #providersOf(versions: readonly SkillVersion[], workspace: string): readonly FunctionProvider[] {
    if (versions.length === 0) return [];
    const scripts = versions.flatMap((version) =>
      version.manifest.tools.length > 0 ? [this.#providerOf(version, workspace)] : [],
    );
    return Object.freeze([loadSkill(versions), ...scripts]);
  }

  #providerOf(version: SkillVersion, workspace: string): FunctionProvider {
    const { sandbox, env } = this.#options;
    const known = this.#providers.get(version);
    if (known !== undefined) return known;
    const onChanged = () => {
      for (const folder of [...this.#shared, this.#workspaces.get(workspace)?.folder]) folder?.touch();
    };
    const provider = scriptFunctions(version, { sandbox, env, onChanged });
    this.#providers.set(version, provider);
    return provider;
  }

  #changed(): void {
    for (const { listeners } of this.#workspaces.values()) for (const listener of listeners) listener();
  }

  #check(): void {
    const nowMs = performance.now();
    let idle = 0;
    for (const { listeners } of this.#workspaces.values()) if (listeners.size === 0) idle++;
    for (const [workspace, { folder, listeners, usedMs }] of this.#workspaces) {
      // The one used longest ago comes first.
      if (listeners.size > 0 || (idle <= maxIdleWorkspaces && nowMs - usedMs < idleMs)) continue;
      idle--;
      this.#workspaces.delete(workspace);
      void folder.close();
    }
    for (const { folder } of this.#workspaces.values()) void folder.check();
    for (const folder of this.#shared) void folder.check();
  }
}

/** @param of the entries of folders, in the order of their claims to a name. */
function viewsOf(of: readonly (readonly SkillEntry[])[]): SkillView[] {
  const owners = new Map<string, SkillEntry>();
  const views: SkillView[] = [];
  for (const entries of of) {
    // Of two in one folder the one whose folder has its name, else the first.
    const claims = entries.toSorted(
      (left, right) => Number(right.folder === right.name) - Number(left.folder === left.name),
    );
    for (const entry of claims) {
      const owner = owners.get(entry.name);
      if (entry.version === undefined) views.push({ ...entry, state: "broken" });
      else if (owner === undefined) {
        owners.set(entry.name, entry);
        views.push({ ...entry, state: entry.isStale ? "stale" : "ready" });
      } else views.push({ ...entry, state: "shadowed", diagnostics: [...entry.diagnostics, shadowedBy(owner)] });
    }
  }
  const rank = ({ state }: SkillView) => ["ready", "stale", "shadowed", "broken"].indexOf(state);
  return views.toSorted((left, right) =>
    left.name < right.name ? -1 : left.name > right.name ? 1 : rank(left) - rank(right),
  );
}

const places: Record<SkillScope, string> = {
  workspace: "of the workspace",
  user: "in the server's folders of skills",
  bundled: "that comes with the server",
};

function shadowedBy({ name, folder, scope }: SkillEntry): SkillDiagnostic {
  const sentence = `another skill ${name} comes first, that in ${folder} ${places[scope]}; rename one of them`;
  return warningIn("", "SHADOWED", sentence);
}

function isSameViews(before: readonly SkillView[], after: readonly SkillView[]): boolean {
  const shown = (views: readonly SkillView[]) =>
    JSON.stringify(views.map(({ version, ...rest }) => [rest, version?.contentSha256, version?.loadTimeMs]));
  return shown(before) === shown(after);
}

/** The digests of those that serve, by name. */
function serving({ skills }: SkillCatalog): Map<string, string> {
  return new Map(
    skills.flatMap(({ name, state, version }) =>
      version !== undefined && (state === "ready" || state === "stale") ? [[name, version.contentSha256] as const] : [],
    ),
  );
}
