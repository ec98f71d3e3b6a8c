import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import { theCaller } from "../caller.ts";
import { checkLength, sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";
import {
  importanceFrom,
  itemFromMemory,
  memoryFromItem,
  memoryTiers,
  statsFromCounts,
  tagsFrom,
} from "./memory-item.ts";
import { labelOf, searchWords } from "./memory-terms.ts";

/** How many memories a session may have. */
const mostMemories = 10_000;
const usualResults = 10;
const mostResults = 100;
const maxQueryCharacters = 1000;

/**
 * Of the earlier service: memories. They belong to a session and go with it. A memory under an id that the session has is
 * replaced. Searches find any of the words and any of the tags, where both are given both; `recent_only` sorts by time.
 */
export function memoryHandlers({ sessions, store, environment, events }: LegacyCore) {
  const { tenant } = theCaller;
  const sessionOf = async (named: string): Promise<string> => {
    const sessionId = sessionIdFrom(named);
    await sessions.get(theCaller, sessionId);
    return sessionId;
  };
  const tell = (type: string, sessionId: string, message: string, data: Readonly<Record<string, string>>) =>
    events.publish({ type, sessionId, message, data, timeMs: environment.now() });

  return {
    async storeMemory({ sessionId: named, memory: item }) {
      const sessionId = await sessionOf(named);
      if (item === undefined) throw invalidField("memory", "is missing; give at least its content");
      const memory = memoryFromItem(item, () => environment.newId("mem"), environment.now());
      const stored = await store.storeMemory({ tenant, sessionId, ...memory }, mostMemories);
      if (stored === "full")
        throw new AgentError(
          "resource_exhausted",
          `session ${sessionId} has ${mostMemories} memories, the most there may be; clear some first`,
          { reason: "TOO_MANY_MEMORIES" },
        );
      if (stored === undefined) throw unknownMemory(sessionId, memory.memoryId);
      const { memoryId, kind } = stored;
      tell("MEMORY_STORED", sessionId, `memory ${memoryId} was stored`, { memory_id: memoryId, memory_type: kind });
      return { success: true, memoryId };
    },

    async retrieveMemory({ sessionId: named, memoryId }) {
      const sessionId = await sessionOf(named);
      if (memoryId === "") throw invalidField("memory_id", "is empty; name a memory");
      // An id that no memory can have is none that is unknown for other reasons, and goes no further.
      const isId = /^[\w.:-]{1,128}$/.test(memoryId);
      const found = isId ? await store.recallMemory(tenant, sessionId, memoryId, environment.now()) : undefined;
      if (found === undefined) throw unknownMemory(sessionId, memoryId);
      tell("MEMORY_RECALLED", sessionId, `memory ${memoryId} was recalled`, { memory_id: memoryId });
      return { memory: itemFromMemory(found) };
    },

    async searchMemories({ sessionId: named, query = "", tags, limit, recentOnly, minImportance }) {
      const sessionId = await sessionOf(named);
      checkLength(query, maxQueryCharacters, "query");
      const labels = tagsFrom(tags, "tags").map(labelOf);
      const found = await store.searchMemories({
        ...{ tenant, sessionId },
        ...(query.trim() === "" ? {} : { words: searchWords(query) }),
        ...(labels.length === 0 ? {} : { labels }),
        ...(minImportance === undefined ? {} : { minImportance: importanceFrom(minImportance, "min_importance") }),
        order: recentOnly ? "newest" : "best",
        limit: limit === 0 ? usualResults : Math.min(limit, mostResults),
      });
      const { memories, totalCount } = found;
      const data = { query, tags: tags.join(","), total_count: String(totalCount) };
      tell("MEMORIES_SEARCHED", sessionId, `${totalCount} memories were found`, data);
      return { memories: memories.map(itemFromMemory), totalCount };
    },

    async getMemoryStats({ sessionId: named }) {
      const sessionId = await sessionOf(named);
      return { stats: statsFromCounts(await store.countMemories(tenant, sessionId)) };
    },

    /** Where nothing is chosen nothing is cleared. */
    async clearMemories({ sessionId: named, clearLongTerm, clearShortTerm, clearWorking }) {
      const sessionId = await sessionOf(named);
      const kinds = [
        ...(clearLongTerm ? memoryTiers.longTerm : []),
        ...(clearShortTerm ? memoryTiers.shortTerm : []),
        ...(clearWorking ? memoryTiers.working : []),
      ];
      const cleared = kinds.length === 0 ? 0 : await store.clearMemories(tenant, sessionId, kinds);
      if (kinds.length > 0)
        tell("MEMORY_CLEARED", sessionId, `${cleared} memories were cleared`, { cleared_count: String(cleared) });
      return { success: true, clearedCount: BigInt(cleared) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function unknownMemory(sessionId: string, memoryId: string): AgentError {
  const shown = memoryId.length > 200 ? `${memoryId.slice(0, 200)}…` : memoryId;
  return new AgentError("not_found", `session ${sessionId} has no memory ${shown}`, { reason: "MEMORY_NOT_FOUND" });
}
