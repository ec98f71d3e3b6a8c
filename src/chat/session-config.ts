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
  readonly initialMessages: readonly Message[];
  readonly metadata: Readonly<Record<string, string>>;
}
