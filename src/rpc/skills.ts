import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  ReloadSkillsResponseSchema,
  type Skill,
  SkillSchema,
  SkillService,
} from "../../gen/codeagent/v1/skill_service_pb.ts";
import { AgentError, invalidField } from "../chat/error.ts";
import type { Sessions } from "../session/sessions.ts";
import { scriptDefinitions } from "../skill/run-script.ts";
import type { Skills, SkillView } from "../skill/skills.ts";
import { theCaller } from "./caller.ts";
import type { OnceCalls } from "./once.ts";
import { checkLength, optionalSessionIdFrom } from "./request-fields.ts";

const namesShown = 50;

/** The skills of the server and of a session's workspace. */
export function skillHandlers(sessions: Sessions, once: OnceCalls, skills: Skills) {
  const workspaceOf = async (sessionId: string) =>
    (await sessions.permissions(theCaller, optionalSessionIdFrom(sessionId))).workspace;
  return {
    async listSkills(request) {
      const catalog = await skills.catalog(await workspaceOf(request.sessionId));
      return { skills: catalog.skills.map((view) => skillToProto(view)), generation: BigInt(catalog.generation) };
    },
    async getSkill(request) {
      const { name } = request;
      if (name === "") throw invalidField("name", "is empty; name a skill");
      checkLength(name, 256, "name");
      const catalog = await skills.catalog(await workspaceOf(request.sessionId));
      // Of several with one name the one that serves comes first.
      const view = catalog.skills.find((each) => each.name === name);
      if (view === undefined) throw unknownSkill(name, catalog.skills);
      const skill = skillToProto(view);
      skill.instructions = view.version?.manifest.instructions ?? "";
      return skill;
    },
    reloadSkills(request) {
      return once.change(SkillService.method.reloadSkills, request, async () => {
        const { catalog, added, removed, changed } = await skills.reload(await workspaceOf(request.sessionId));
        return create(ReloadSkillsResponseSchema, {
          skills: catalog.skills.map((view) => skillToProto(view)),
          generation: BigInt(catalog.generation),
          added: [...added],
          removed: [...removed],
          changed: [...changed],
        });
      });
    },
  } satisfies ServiceImpl<typeof SkillService>;
}

function skillToProto({ name, folder, scope, state, version, diagnostics }: SkillView): Skill {
  const tools = version === undefined ? [] : scriptDefinitions(version);
  return create(SkillSchema, {
    name,
    state,
    diagnostics: diagnostics.map((diagnostic) => ({ ...diagnostic })),
    pathHint: folder === "" ? "." : folder,
    // Those that come with the server are in a folder of its own, too.
    scope: scope === "workspace" ? "workspace" : "user",
    tools: tools.map((tool) => ({
      name: tool.name,
      description: tool.description,
      parameters: tool.parameters,
      source: tool.source,
      readOnly: tool.readOnly,
      title: tool.title ?? "",
      timeoutMs: BigInt(tool.timeoutMs),
    })),
    ...(version === undefined
      ? {}
      : {
          version: version.manifest.version,
          description: version.manifest.description,
          license: version.manifest.license,
          contentSha256: version.contentSha256,
          loadTime: timestampFromMs(version.loadTimeMs),
        }),
  });
}

function unknownSkill(name: string, skills: readonly SkillView[]): AgentError {
  const names = [...new Set(skills.map((skill) => skill.name))];
  const more = names.length > namesShown ? ` and ${names.length - namesShown} more` : "";
  const known = names.length === 0 ? "there are none" : `there are: ${names.slice(0, namesShown).join(", ")}${more}`;
  return new AgentError("not_found", `there is no skill ${name}; ${known}`, { reason: "SKILL_NOT_FOUND" });
}
