import type { AnsweredRequest, NewInboxEntry, NewSession } from "./store.ts";

/** The part of a store that keeps schedules and the list of their runs. */
export interface ScheduleStore {
  /**
   * Creates a schedule. When its id is taken nothing changes, and the schedule that has it in this tenant is returned.
   * @param answered noted in the same commit; `answered`: there is a note under its id, and nothing changes
   */
  createSchedule(
    schedule: NewSchedule,
    answered?: AnsweredRequest,
  ): Promise<{ readonly created: boolean; readonly schedule: StoredSchedule | undefined } | "answered">;
  readSchedule(tenant: string, scheduleId: string): Promise<StoredSchedule | undefined>;
  /**
   * Newest first, then by id backwards; `before` is the last of the page before.
   * @param sessionId only those that run in this session; empty means all
   */
  listSchedules(
    tenant: string,
    sessionId: string,
    before: SchedulePosition | undefined,
    limit: number,
  ): Promise<readonly StoredSchedule[]>;
  /** Pauses a schedule that is neither paused nor broken, else it stays as it is. `undefined`: there is none. */
  pauseSchedule(change: ScheduleChange): Promise<StoredSchedule | undefined>;
  /**
   * Makes a schedule active that is paused or broken, else it stays as it is. `undefined`: there is none.
   * @param nextMs when it runs next; `undefined` for never
   */
  resumeSchedule(change: ScheduleChange, nextMs: number | undefined): Promise<StoredSchedule | undefined>;
  /**
   * Replaces when a schedule runs and what it does, if both still are what was seen. One that is paused or broken stays so.
   * `stale`: they are not, and nothing changes. `undefined`: there is none.
   */
  updateSchedule(update: ScheduleUpdate): Promise<StoredSchedule | "stale" | undefined>;
  /** Removes a schedule with the list of its runs; what they put into sessions stays. Says whether it was there. `answered` as in `createSchedule`. */
  deleteSchedule(change: ScheduleChange, answered?: AnsweredRequest): Promise<boolean | "answered">;

  /** Schedules of all tenants whose next time is not after `untilMs`, the earliest first, then by id. */
  dueSchedules(untilMs: number, limit: number): Promise<readonly StoredSchedule[]>;
  /**
   * In one transaction: moves a schedule's next time from the one that was seen to the next one, and does for each of the
   * runs what it asks for: the session if it brings one, the command, and the entry in the list. A run is listed as
   * skipped when it gives way and the run before it has not ended, or when the session's inbox is full. When the session
   * is gone nothing is listed and the schedule is broken.
   * @returns the runs that are listed now; `undefined` when the next time is not the seen one any more, or the schedule is
   *   gone: somebody else has done it.
   */
  fireSchedule(fire: ScheduleFire): Promise<readonly StoredRun[] | undefined>;
  /**
   * Runs a schedule outside of its times, whatever its state: as `fireSchedule`, but its next time stays. When a run has
   * the key, nothing changes and that run is returned. `full`: the session's inbox is full, nothing is listed.
   * `undefined`: the schedule or its session is gone.
   */
  runSchedule(tenant: string, run: ScheduledRun, atMs: number): Promise<StoredRun | "full" | undefined>;
  /**
   * Newest first; the last `keptRuns` of a schedule are kept.
   * @param before `StoredRun.position` of the last of the page before
   */
  listScheduleRuns(
    tenant: string,
    scheduleId: string,
    before: number | undefined,
    limit: number,
  ): Promise<readonly StoredRun[]>;
}

/** How many runs of a schedule are kept in its list. */
export const keptRuns = 1000;

/** What a schedule whose session is gone says of it. */
export function sessionGone(sessionId: string): string {
  return `its session ${sessionId} is gone`;
}

export interface NewSchedule extends ScheduleChange {
  /** Who created it: its turns are theirs. */
  readonly principal: string;
  /** The session its turns run in; empty for a new one each time. */
  readonly sessionId: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly misfirePolicy: string;
  /** The rest of it. */
  readonly body: Uint8Array;
  /** When it runs first; `undefined` for never. */
  readonly nextMs: number | undefined;
}

/** Who wants to change which schedule. */
export interface ScheduleChange {
  readonly tenant: string;
  readonly scheduleId: string;
  readonly atMs: number;
}

export interface ScheduleUpdate extends ScheduleChange {
  readonly seen: Pick<StoredSchedule, "cron" | "body">;
  readonly cron: string;
  readonly body: Uint8Array;
  /** When it runs next; `undefined` for never. */
  readonly nextMs: number | undefined;
}

export interface SchedulePosition {
  readonly createdMs: number;
  readonly scheduleId: string;
}

export interface StoredSchedule extends SchedulePosition {
  readonly tenant: string;
  readonly principal: string;
  readonly sessionId: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly misfirePolicy: string;
  readonly body: Uint8Array;
  /** `undefined` while it is paused or broken, and where no time comes. */
  readonly nextMs: number | undefined;
  readonly paused: boolean;
  /** Why it is broken; empty when it isn't. */
  readonly error: string;
  /** When it last ran, by its times or by a call. */
  readonly lastMs: number | undefined;
  /** Without skipped ones. */
  readonly runCount: number;
  readonly updatedMs: number;
}

export interface ScheduleFire {
  readonly tenant: string;
  readonly scheduleId: string;
  /** Its next time as it was read. */
  readonly seenMs: number;
  readonly nextMs: number | undefined;
  /** In the order in which they are to run; none when passed times are left out. */
  readonly runs: readonly ScheduledRun[];
  /** Why it can't go on; empty otherwise. */
  readonly error: string;
  readonly atMs: number;
}

export const runTriggers = ["cron", "misfire", "call"] as const;
export type RunTrigger = (typeof runTriggers)[number];

export interface ScheduledRun {
  readonly runId: string;
  readonly scheduleId: string;
  readonly trigger: RunTrigger;
  /** The time it stands for. */
  readonly scheduledMs: number;
  /** The session to be made for it; absent when it runs in one that is there. */
  readonly session?: NewSession;
  /** Its key makes the run unique in the schedule. */
  readonly command: NewInboxEntry;
  /** It is skipped when the run before has not ended. */
  readonly givesWay: boolean;
}

/** `busy`: the run before had not ended. `full`: too many turns waited in the session. */
export const skipReasons = ["busy", "full"] as const;
export type SkipReason = (typeof skipReasons)[number];

export interface StoredRun {
  /** Grows from run to run. */
  readonly position: number;
  readonly runId: string;
  readonly scheduleId: string;
  readonly trigger: RunTrigger;
  readonly scheduledMs: number;
  /** `undefined` when it was not skipped. */
  readonly skipped: SkipReason | undefined;
  /** Empty when it was skipped. */
  readonly sessionId: string;
  readonly turnId: string;
  /** Whether the session is gone, and with it what became of the turn. */
  readonly lost: boolean;
  /** When the turn began. */
  readonly startedMs: number | undefined;
  /** The event that ended the turn. */
  readonly finished: Uint8Array | undefined;
  readonly finishedMs: number | undefined;
  /** Something in the session waits for an answer. */
  readonly waits: boolean;
}
