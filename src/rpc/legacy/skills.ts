import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { Manifest } from "../../skill/manifest.ts";
import type { SkillView } from "../../skill/skills.ts";
import { theCaller } from "../caller.ts";
import { checkLength, optionalSessionIdFrom, sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";
import { changeSessionPolicy, readSessionPolicy } from "./session-policy.ts";

const namesShown = 50;
const maxNameLength = 256;

/** A skill that serves, broken ones left out. */
interface ServingSkill {
  readonly view: SkillView;
  readonly manifest: Manifest;
  /** What its functions are called in the workspace. */
  readonly toolNames: readonly string[];
}

/**
 * Of the earlier service: skills. They are folders on disk and there for every session of their workspace; what is loaded
 * and unloaded is whether the session's calls of their functions are denied.
 */
export function legacySkillHandlers(core: LegacyCore) {
  const servingIn = async (workspace: string): Promise<readonly ServingSkill[]> => {
    const [{ skills }, { definitions }] = await Promise.all([
      core.skills.catalog(workspace),
      core.functions.current(workspace),
    ]);
    return skills.flatMap((view) => {
      const manifest = view.version?.manifest;
      if (manifest === undefined || (view.state !== "ready" && view.state !== "stale")) return [];
      const ofIt = definitions.filter(({ source }) => source === `skill:${view.name}`);
      return [{ view, manifest, toolNames: ofIt.map(({ name }) => name) }];
    });
  };
  const find = async (sessionId: string, name: string): Promise<ServingSkill> => {
    if (name === "") throw invalidField("skill_name", "is empty; name a skill");
    checkLength(name, maxNameLength, "skill_name");
    const { config } = await core.sessions.get(theCaller, sessionId);
    const serving = await servingIn(config.workspace);
    return serving.find(({ view }) => view.name === name) ?? unknownSkill(name, serving);
  };
  return {
    async loadSkill(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      if (request.skillContent !== undefined && request.skillContent !== "")
        throw new AgentError(
          "unimplemented",
          "skill_content is not taken: it would be code from a caller; put the skill's folder into .codeagent/skills of the workspace or the server's folder of skills, and load it by its name",
        );
      const { view, toolNames } = await find(sessionId, request.skillName);
      await changeSessionPolicy(core, sessionId, (before) => ({
        ...before,
        unloadedSkills: before.unloadedSkills.filter((name) => name !== view.name),
      }));
      return { success: true, toolNames: [...toolNames] };
    },
    async unloadSkill(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { view, toolNames } = await find(sessionId, request.skillName);
      await changeSessionPolicy(core, sessionId, (before) => ({
        ...before,
        unloadedSkills: [...new Set([...before.unloadedSkills, view.name])],
      }));
      return { success: true, removedTools: [...toolNames] };
    },
    async listSkills(request) {
      const sessionId = optionalSessionIdFrom(request.sessionId ?? "");
      const workspace =
        sessionId === "" ? core.defaultWorkspace : (await core.sessions.get(theCaller, sessionId)).config.workspace;
      const unloaded = sessionId === "" ? [] : (await readSessionPolicy(core, sessionId)).policies.unloadedSkills;
      const serving = await servingIn(workspace);
      return {
        skills: serving.map(({ view: { name, scope, state }, manifest, toolNames }) => ({
          name,
          description: manifest.description,
          tools: [...toolNames],
          metadata: {
            version: manifest.version,
            license: manifest.license,
            author: manifest.author,
            scope: scope === "workspace" ? "workspace" : "user",
            state,
            ...(sessionId === "" ? {} : { loaded: String(!unloaded.includes(name)) }),
          },
        })),
      };
    },
    async getClaudeCodeSkills({ name = "" }) {
      checkLength(name, maxNameLength, "name");
      const serving = await servingIn(core.defaultWorkspace);
      const wanted = name === "" ? serving : serving.filter(({ view }) => view.name === name);
      if (name !== "" && wanted.length === 0) unknownSkill(name, serving);
      return {
        skills: wanted.map(({ view, manifest }) => ({
          name: view.name,
          description: manifest.description,
          ...(manifest.allowedTools.length === 0 ? {} : { allowedTools: manifest.allowedTools.join(", ") }),
          disableModelInvocation: manifest.otherFields["disable-model-invocation"] === true,
          content: manifest.instructions,
        })),
      };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function unknownSkill(name: string, serving: readonly ServingSkill[]): never {
  const names = serving.map(({ view }) => view.name);
  const more = names.length > namesShown ? ` and ${names.length - namesShown} more` : "";
  const known = names.length === 0 ? "there are none" : `there are: ${names.slice(0, namesShown).join(", ")}${more}`;
  throw new AgentError("not_found", `there is no skill ${name} that works; ${known}`, { reason: "SKILL_NOT_FOUND" });
}
