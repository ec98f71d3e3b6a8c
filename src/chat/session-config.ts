import type { Message } from "./message.ts";
import type { Budget } from "./request.ts";

export const permissionModes = ["ask", "read-only", "accept-edits", "bypass"] as const;
export type PermissionMode = (typeof permissionModes)[number];

/** What a session's agent may do without asking. */
export interface PermissionPolicy {
  readonly mode: PermissionMode;
  readonly allow: readonly string[];
  readonly ask: readonly string[];
  readonly deny: readonly string[];
}

/** What a session may do that says nothing about it. */
export const plainPermissions: PermissionPolicy = { mode: "ask", allow: [], ask: [], deny: [] };

/** What calls of functions do: they only read, or may change something. */
export const lanes = ["query", "execute"] as const;
export type Lane = (typeof lanes)[number];

export const laneModes = ["internal", "external", "hybrid"] as const;
export type LaneMode = (typeof laneModes)[number];

/**
 * Who runs the calls of a lane: this server (`internal`), a client (`external`; where it does not in time, the call fails), or
 * a client and, where it does not in time, this server after all (`hybrid`).
 */
export interface LaneHandler {
  readonly mode: LaneMode;
  /** How long a client has. */
  readonly timeoutMs: number;
}

export type Lanes = { readonly [Name in Lane]?: LaneHandler };

/** What holds for a lane of which nothing is said. */
export const plainLane: LaneHandler = { mode: "internal", timeoutMs: 60_000 };
export const shortestLaneMs = 1000;
export const longestLaneMs = 3_600_000;

/** What a session is made of before anything happens in it: where its fold begins. */
export interface SessionConfig {
  readonly title: string;
  /** Absolute path of the folder the agent works in. */
  readonly workspace: string;
  /** `provider/model`; empty means the server's default at each turn. */
  readonly model: string;
  /** Empty means the server's. */
  readonly systemPrompt: string;
  readonly permissions?: PermissionPolicy;
  readonly approvalTimeoutMs?: number;
  readonly budget?: Budget;
  /** Only servers of that name work on the session; absent means any. */
  readonly placement?: string;
  /** Absent means that this server runs all calls. */
  readonly lanes?: Lanes;
  readonly initialMessages: readonly Message[];
  readonly metadata: Readonly<Record<string, string>>;
}
