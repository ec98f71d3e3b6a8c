import type { Message } from "./message.ts";
import type { GenerateOptions } from "./request.ts";
import type { SessionConfig } from "./session-config.ts";

/** What is done about times that passed while no server ran: each of them is run, one for all of them, or none. */
export const misfirePolicies = ["one", "all", "none"] as const;
export type MisfirePolicy = (typeof misfirePolicies)[number];

/** What is done when a time comes while the run before still goes on. */
export const overlapPolicies = ["queue", "skip"] as const;
export type OverlapPolicy = (typeof overlapPolicies)[number];

/** Where the turns of a schedule run: in one session, or in a new one each time. */
export type ScheduleTarget =
  | { readonly type: "session"; readonly sessionId: string }
  | { readonly type: "template"; readonly config: SessionConfig };

/** A command line that runs at set times instead of a turn with a model. */
export interface ScheduledCommand {
  readonly commandLine: string;
  readonly timeoutMs: number;
}

/** Turns at set times, as their caller asked for them. */
export interface Schedule {
  readonly title: string;
  /** Five cron fields. */
  readonly cron: string;
  /** The IANA name of the time zone the fields are read in. */
  readonly timeZone: string;
  readonly target: ScheduleTarget;
  /** What each turn adds to the history. */
  readonly messages: readonly Message[];
  /** `provider/model`; empty means the session's, else the server's default. */
  readonly model: string;
  readonly options: GenerateOptions;
  readonly misfirePolicy: MisfirePolicy;
  readonly overlapPolicy: OverlapPolicy;
  readonly metadata: Readonly<Record<string, string>>;
  /** Each run is this command in a session of its own; only the server itself makes such a schedule. */
  readonly command?: ScheduledCommand;
}
