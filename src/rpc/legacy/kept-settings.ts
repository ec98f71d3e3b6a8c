import { StorageType } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import type { SessionConfig } from "../../chat/session-config.ts";
import { isJsonObject, parseJson } from "../../dialect/json.ts";

/** Where a session's metadata holds what only clients of the earlier service set, as JSON. */
const keptKey = "codeagent.legacy";

/** What clients of the earlier service set of a session and `codeagent.v1` has no place for. */
export interface KeptSettings {
  /** Of the session's turns that come over the earlier service. */
  readonly temperature?: number;
  readonly maxTokens?: number;
  /** Told back, and of no effect: when a history is compacted is the server's setting. */
  readonly maxContextLength?: number;
  readonly autoCompact?: boolean;
  /** Told back, and of no effect: all sessions are kept in the server's store. */
  readonly storageType?: StorageType;
}

/** Whatever else the metadata holds there is passed over: other callers can write it too. */
export function keptFrom({ metadata }: Pick<SessionConfig, "metadata">): KeptSettings {
  const value = parseJson(metadata[keptKey] ?? "");
  if (!isJsonObject(value)) return {};
  const { temperature, maxTokens, maxContextLength, autoCompact, storageType } = value;
  const isCount = (count: unknown): count is number => typeof count === "number" && Number.isSafeInteger(count);
  const storage = [StorageType.MEMORY, StorageType.FILE].find((known) => known === storageType);
  return {
    ...(typeof temperature === "number" ? { temperature } : {}),
    ...(isCount(maxTokens) ? { maxTokens } : {}),
    ...(isCount(maxContextLength) ? { maxContextLength } : {}),
    ...(typeof autoCompact === "boolean" ? { autoCompact } : {}),
    ...(storage === undefined ? {} : { storageType: storage }),
  };
}

export function withKept(metadata: Readonly<Record<string, string>>, kept: KeptSettings): Record<string, string> {
  const { [keptKey]: _, ...others } = metadata;
  return Object.keys(kept).length === 0 ? others : { ...others, [keptKey]: JSON.stringify(kept) };
}
