import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type MemoryItem,
  MemoryItemSchema,
  type MemoryStats,
  MemoryStatsSchema,
  MemoryType,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import { readStored } from "../../convert/proto/error.ts";
import type { NewMemory, StoredMemory } from "../../log/memory-store.ts";
import { memoryTerms } from "./memory-terms.ts";

/** How large a memory may be. */
const memoryLimits = {
  contentBytes: 16 * 1024,
  tags: 50,
  tagCharacters: 100,
  /** Keys and values together. */
  metadataCharacters: 16 * 1024,
  idCharacters: 128,
} as const;

const kinds: ReadonlyMap<MemoryType, string> = new Map([
  [MemoryType.UNKNOWN, "unknown"],
  [MemoryType.EPISODIC, "episodic"],
  [MemoryType.SEMANTIC, "semantic"],
  [MemoryType.PROCEDURAL, "procedural"],
  [MemoryType.WORKING, "working"],
]);

/** What is known and how things are done stays, what happened is kept for a shorter time, the rest is at hand. */
export const memoryTiers = {
  longTerm: ["semantic", "procedural"],
  shortTerm: ["episodic", "unknown"],
  working: ["working"],
} as const;

/** Importance is kept as a whole number. */
const importanceUnits = 1_000_000;

/**
 * Reads a memory that is to be stored.
 * @param newId makes an id where the client gives none
 * @throws {AgentError} `invalid_request` that names the field.
 */
export function memoryFromItem(
  item: MemoryItem,
  newId: () => string,
  nowMs: number,
): Omit<NewMemory, "tenant" | "sessionId"> {
  const { id, content, metadata } = item;
  if (id !== "" && !/^[\w.:-]+$/.test(id))
    throw invalidField("memory.id", "may hold letters, digits and _ . : - only; leave it out to get one");
  if (id.length > memoryLimits.idCharacters)
    throw invalidField("memory.id", `has ${id.length} characters; ${memoryLimits.idCharacters} is the most`);
  if (content.trim() === "") throw invalidField("memory.content", "is empty; say what is to be remembered");
  const contentBytes = Buffer.byteLength(content);
  if (contentBytes > memoryLimits.contentBytes)
    throw invalidField("memory.content", `has ${contentBytes} bytes; ${memoryLimits.contentBytes} is the most`);
  const metadataCharacters = Object.entries(metadata).reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  if (metadataCharacters > memoryLimits.metadataCharacters)
    throw invalidField(
      "memory.metadata",
      `has ${metadataCharacters} characters in keys and values; ${memoryLimits.metadataCharacters} is the most`,
    );
  const kind = kinds.get(item.memoryType);
  if (kind === undefined) throw invalidField("memory.memory_type", `is ${item.memoryType}, which is no type of memory`);
  const tags = tagsFrom(item.tags, "memory.tags");
  return {
    memoryId: id === "" ? newId() : id,
    kind,
    importance: importanceFrom(item.importance, "memory.importance"),
    atMs: item.timestamp === 0n ? nowMs : timeFrom(item.timestamp),
    body: toBinary(MemoryItemSchema, create(MemoryItemSchema, { content, tags: [...tags], metadata })),
    terms: memoryTerms(content, tags),
  };
}

/** @throws {AgentError} `data_loss` where the bytes can't be read. */
export function itemFromMemory(memory: StoredMemory): MemoryItem {
  const { memoryId, kind, importance, atMs, accessCount, accessedMs } = memory;
  const { content, tags, metadata } = readStored("a memory", () => fromBinary(MemoryItemSchema, memory.body));
  const [memoryType = MemoryType.UNKNOWN] = [...kinds].find(([, name]) => name === kind) ?? [];
  return create(MemoryItemSchema, {
    ...{ id: memoryId, content, tags, metadata, memoryType, accessCount },
    timestamp: BigInt(atMs),
    importance: importance / importanceUnits,
    ...(accessedMs === undefined ? {} : { lastAccessed: BigInt(accessedMs) }),
  });
}

export function statsFromCounts(counts: ReadonlyMap<string, number>): MemoryStats {
  const sum = (tier: readonly string[]) => BigInt(tier.reduce((count, kind) => count + (counts.get(kind) ?? 0), 0));
  return create(MemoryStatsSchema, {
    longTermCount: sum(memoryTiers.longTerm),
    shortTermCount: sum(memoryTiers.shortTerm),
    workingCount: sum(memoryTiers.working),
  });
}

/** @returns each once. @throws {AgentError} `invalid_request`. */
export function tagsFrom(tags: readonly string[], field: string): readonly string[] {
  if (tags.length > memoryLimits.tags)
    throw invalidField(field, `has ${tags.length} tags; ${memoryLimits.tags} is the most`);
  for (const [index, tag] of tags.entries()) {
    const path = `${field}[${index}]`;
    if (tag.trim() === "") throw invalidField(path, "is empty; leave it out");
    if (/\p{Cc}/u.test(tag)) throw invalidField(path, "holds control characters");
    if (tag.length > memoryLimits.tagCharacters)
      throw invalidField(path, `has ${tag.length} characters; ${memoryLimits.tagCharacters} is the most`);
  }
  return [...new Set(tags)];
}

/** @returns in the units that are stored. @throws {AgentError} `invalid_request`. */
export function importanceFrom(importance: number, field: string): number {
  if (importance >= 0 && importance <= 1) return Math.round(importance * importanceUnits);
  throw invalidField(field, `is ${importance}; a number from 0 to 1 is wanted`);
}

function timeFrom(timestamp: bigint): number {
  if (timestamp > 0n && timestamp <= BigInt(8.64e15)) return Number(timestamp);
  throw invalidField("memory.timestamp", `is ${timestamp}; milliseconds since 1970 are wanted, or 0 for now`);
}
