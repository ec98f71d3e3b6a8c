import { AgentError, invalidField } from "../chat/error.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import type { TurnError } from "../chat/log-event.ts";
import type { TurnRequest } from "../chat/request.ts";
import type { Schedule } from "../chat/schedule.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import type { Usage } from "../chat/usage.ts";
import { decodeLogEvent } from "../convert/proto/event.ts";
import { decodeSchedule, encodeSchedule } from "../convert/proto/schedule.ts";
import { decodeSessionConfig, encodeSessionConfig } from "../convert/proto/session-config.ts";
import { encodeTurnRequest } from "../convert/proto/stored-request.ts";
import type {
  RunTrigger,
  ScheduledRun,
  SchedulePosition,
  SkipReason,
  StoredRun,
  StoredSchedule,
} from "../log/schedule-store.ts";
import type { AnsweredRequest, NewSession, Store } from "../log/store.ts";
import { commandRun } from "./command-run.ts";
import { separateLargeContent, withoutReservedMetadata } from "./large-messages.ts";
import { cronTimes, dueTimes } from "./next-fire.ts";
import { turnTerms } from "./profile.ts";
import { type NoteOf, RequestAnsweredError } from "./requests.ts";
import type { TurnEnvironment } from "./run-turn.ts";
import { shuttingDown, tooMany, unknownSession } from "./session-errors.ts";
import type { Principal, Sessions } from "./sessions.ts";
import { emptyState } from "./state.ts";
import { encodeSummary, summaryOf } from "./summary.ts";

/** The times are looked at again after this long, whatever is known of them: other processes make schedules too. */
const sweepEveryMs = 15_000;
/** The same after a failure. */
const retryMs = 5000;
/** Timers can be early: looking again takes at least this long. */
const leastWaitMs = 10;
/** How many schedules are looked at together. */
const pageSchedules = 100;
/** Each run takes all of it, and `all` makes many runs at once. */
const maxScheduleBytes = 256 * 1024;
/** Of how many runs of a command the sessions are kept. */
const usualKeptSessions = 200;
/** How many older ones are looked at after a run. */
const runsForgotten = 20;
/** How often a change is tried that others got in the way of. */
const updateAttempts = 4;

export interface SchedulesOptions {
  readonly store: Store;
  readonly environment: Pick<TurnEnvironment, "profiles" | "now" | "newId" | "report" | "limits">;
  readonly sessions: Pick<Sessions, "admit" | "checkPlacement" | "wake" | "delete">;
  /** The model asked where neither schedule nor session names one; empty for none. May be another one each time. */
  readonly defaultModel: string;
  /** Of how many runs of a command the sessions are kept; default 200. */
  readonly keptCommandSessions?: number;
}

/** A schedule as its readers see it. */
export interface ScheduleView {
  readonly scheduleId: string;
  readonly schedule: Schedule;
  readonly state: "active" | "paused" | "broken";
  /** Why it is broken; empty otherwise. */
  readonly error: string;
  readonly nextMs: number | undefined;
  readonly lastMs: number | undefined;
  readonly runCount: number;
  readonly createdMs: number;
  readonly updatedMs: number;
}

/** One run as its readers see it. */
export interface RunView {
  readonly position: number;
  readonly runId: string;
  readonly scheduleId: string;
  readonly trigger: RunTrigger;
  readonly scheduledMs: number;
  readonly state: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "skipped" | "deleted";
  readonly sessionId: string;
  readonly turnId: string;
  readonly startedMs: number | undefined;
  readonly endedMs: number | undefined;
  /** Absent before the end of its turn. */
  readonly finishReason?: FinishReason;
  readonly error?: TurnError;
  readonly usage?: Usage;
}

/** Turns at set times. However many processes share a store, each time is run once. */
export class Schedules {
  readonly #store: Store;
  readonly #environment: SchedulesOptions["environment"];
  readonly #sessions: SchedulesOptions["sessions"];
  readonly #options: Pick<SchedulesOptions, "defaultModel" | "keptCommandSessions">;
  #timer: NodeJS.Timeout | undefined;
  /** When the timer goes off, by our clock; or has to, once what runs now is done. */
  #wakeMs = Number.POSITIVE_INFINITY;
  #started = false;
  #stopped = false;
  #sweeping: Promise<unknown> = Promise.resolve();

  constructor(options: SchedulesOptions) {
    const { store, environment, sessions } = options;
    this.#store = store;
    this.#environment = environment;
    this.#sessions = sessions;
    this.#options = options;
  }

  /** Begins to run what is due. To be called once. */
  start(): void {
    this.#started = true;
    this.#wakeAt(this.#environment.now());
  }

  /** Runs nothing more from the returned promise on. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#sweeping;
  }

  /**
   * Runs what is due by now; `start` does it by itself.
   * @returns how many runs it put into sessions
   * @throws {AgentError} what the store throws; what was not done is still due.
   */
  sweep(): Promise<number> {
    const sweep = this.#sweeping.then(() => this.#sweep());
    this.#sweeping = sweep.catch(() => undefined);
    return sweep;
  }

  /**
   * @param note makes the note of the answer that is committed with it
   * @throws {AgentError} `invalid_request` for times that can't be read or never come, `not_found` for an unknown session,
   *   `already_exists` for an id that is taken; and as `Sessions.admit`.
   */
  async create(
    principal: Principal,
    schedule: Schedule,
    scheduleId: string,
    note: NoteOf<ScheduleView>,
  ): Promise<ScheduleView> {
    const { target, cron, timeZone, misfirePolicy } = schedule;
    const { tenant, name } = principal;
    const atMs = this.#environment.now();
    const nextMs = cronTimes(cron, timeZone).next(atMs);
    if (nextMs === undefined) throw invalidField("cron", "names days that never come");
    const clean = { ...schedule, messages: schedule.messages.map(withoutReservedMetadata) };
    const body = encodeSchedule(clean);
    if (body.length > maxScheduleBytes) throw tooLarge(body.length);
    const sessionId = target.type === "session" ? target.sessionId : "";
    const config = target.type === "template" ? target.config : await this.#configOf(tenant, sessionId);
    if (config === undefined) throw unknownSession(sessionId);
    this.#sessions.checkPlacement(config);
    if (schedule.command === undefined) await this.#sessions.admit(turnOf(schedule, sessionId, ""), config);
    const id = scheduleId === "" ? this.#environment.newId("sch") : scheduleId;
    const fields = { tenant, scheduleId: id, principal: name, sessionId, cron, timeZone, misfirePolicy, body, nextMs };
    const before = { paused: false, error: "", lastMs: undefined, runCount: 0, createdMs: atMs, updatedMs: atMs };
    const made = await this.#store.createSchedule({ ...fields, atMs }, note(viewOf({ ...fields, ...before })));
    if (made === "answered") throw new RequestAnsweredError();
    if (!made.created || made.schedule === undefined) {
      throw new AgentError("already_exists", `schedule ${id} exists; choose another id or leave it out`, {
        reason: "SCHEDULE_EXISTS",
      });
    }
    this.#wakeAt(nextMs);
    return viewOf(made.schedule);
  }

  /** @throws {AgentError} `not_found`. */
  async get(principal: Principal, scheduleId: string): Promise<ScheduleView> {
    return viewOf(await this.#stored(principal, scheduleId));
  }

  /**
   * Newest first.
   * @param sessionId only those that run in this session; empty means all
   */
  async list(principal: Principal, sessionId: string, before: SchedulePosition | undefined, limit: number) {
    const stored = await this.#store.listSchedules(principal.tenant, sessionId, before, limit + 1);
    let bytes = 0;
    const page = stored.slice(0, limit).filter((schedule, index) => {
      bytes += schedule.body.length;
      return bytes <= maxPageBytes || index === 0;
    });
    return { schedules: page.map(viewOf), more: stored.length > page.length };
  }

  /** @throws {AgentError} `not_found`. */
  async pause(principal: Principal, scheduleId: string): Promise<ScheduleView> {
    const change = { tenant: principal.tenant, scheduleId, atMs: this.#environment.now() };
    const paused = await this.#store.pauseSchedule(change);
    if (paused === undefined) throw unknownSchedule(scheduleId);
    return viewOf(paused);
  }

  /** @throws {AgentError} `not_found`, `failed_precondition` when its session is gone. */
  async resume(principal: Principal, scheduleId: string): Promise<ScheduleView> {
    const { tenant } = principal;
    const stored = await this.#stored(principal, scheduleId);
    const { sessionId, cron, timeZone } = stored;
    if (sessionId !== "" && (await this.#store.readSession(tenant, sessionId)) === undefined)
      throw brokenSchedule(stored);
    const atMs = this.#environment.now();
    const nextMs = cronTimes(cron, timeZone).next(atMs);
    const resumed = await this.#store.resumeSchedule({ tenant, scheduleId, atMs }, nextMs);
    if (resumed === undefined) throw unknownSchedule(scheduleId);
    this.#wakeAt(resumed.nextMs);
    return viewOf(resumed);
  }

  /**
   * Changes when a schedule runs and what it does; one that is paused stays so.
   * @param change may be asked more than once, of what others have changed meanwhile
   * @throws {AgentError} `not_found`, `invalid_request` for times that can't be read or never come, `unavailable` when others
   *   keep changing it.
   */
  async update(
    principal: Principal,
    scheduleId: string,
    change: (schedule: Schedule) => Schedule,
  ): Promise<ScheduleView> {
    const { tenant } = principal;
    for (let attempt = 0; attempt < updateAttempts; attempt++) {
      const seen = await this.#stored(principal, scheduleId);
      const schedule = { ...change(decodeSchedule(seen.body, seen)), timeZone: seen.timeZone };
      const { cron } = schedule;
      const atMs = this.#environment.now();
      const nextMs = cronTimes(cron, seen.timeZone).next(atMs);
      if (nextMs === undefined) throw invalidField("cron", "names days that never come");
      const body = encodeSchedule(schedule);
      if (body.length > maxScheduleBytes) throw tooLarge(body.length);
      const updated = await this.#store.updateSchedule({ tenant, scheduleId, atMs, seen, cron, body, nextMs });
      if (updated === undefined) throw unknownSchedule(scheduleId);
      if (updated === "stale") continue;
      this.#wakeAt(updated.nextMs);
      return viewOf(updated);
    }
    throw new AgentError("unavailable", `others change schedule ${scheduleId} at the same time; try again`);
  }

  /**
   * @param answered the note of the answer that is committed with it
   * @throws {AgentError} `not_found`.
   */
  async delete(principal: Principal, scheduleId: string, answered: AnsweredRequest | undefined): Promise<void> {
    const change = { tenant: principal.tenant, scheduleId, atMs: this.#environment.now() };
    const deleted = await this.#store.deleteSchedule(change, answered);
    if (deleted === "answered") throw new RequestAnsweredError();
    if (!deleted) throw unknownSchedule(scheduleId);
  }

  /**
   * Runs a schedule now, whatever its state; the same request id again gives the same run.
   * @throws {AgentError} `not_found`, `failed_precondition` when its session is gone, `resource_exhausted` when too many
   *   turns wait in it.
   */
  async run(principal: Principal, scheduleId: string, requestId: string): Promise<RunView> {
    if (this.#stopped) throw shuttingDown();
    const stored = await this.#stored(principal, scheduleId);
    const nowMs = this.#environment.now();
    const runId = this.#environment.newId("run");
    const key = `cron:${scheduleId}:call:${requestId === "" ? runId : requestId}`;
    const plan = await this.#planner(stored, nowMs);
    const run = plan({ runId, key, trigger: "call", scheduledMs: nowMs });
    const done = await this.#store.runSchedule(principal.tenant, run, nowMs);
    if (done === undefined) throw brokenSchedule(await this.#stored(principal, scheduleId));
    if (done === "full")
      throw tooMany(`${run.command.waitingLimit} turns wait in session ${stored.sessionId} already`, "TURN_QUEUE_FULL");
    this.#sessions.wake(done.sessionId);
    await this.#forgetOldRuns(stored);
    return runView(done);
  }

  /**
   * The runs of a schedule, newest first.
   * @param before `RunView.position` of the last of the page before
   * @throws {AgentError} `not_found`.
   */
  async runs(principal: Principal, scheduleId: string, before: number | undefined, limit: number) {
    await this.#stored(principal, scheduleId);
    const stored = await this.#store.listScheduleRuns(principal.tenant, scheduleId, before, limit + 1);
    return { runs: stored.slice(0, limit).map(runView), more: stored.length > limit };
  }

  async #sweep(): Promise<number> {
    let count = 0;
    while (!this.#stopped) {
      const due = await this.#store.dueSchedules(this.#environment.now(), pageSchedules);
      let failure: { readonly error: unknown } | undefined;
      for (const stored of due) {
        if (this.#stopped) break;
        try {
          count += await this.#fire(stored);
        } catch (error) {
          failure ??= { error }; // the others run all the same
        }
      }
      if (failure !== undefined) throw failure.error;
      // Each of them has a later time now, here or elsewhere, so that the next page is another one.
      if (due.length < pageSchedules) break;
    }
    return count;
  }

  async #fire(stored: StoredSchedule): Promise<number> {
    const { tenant, scheduleId, nextMs: seenMs } = stored;
    if (seenMs === undefined) return 0;
    const atMs = this.#environment.now();
    try {
      const times = cronTimes(stored.cron, stored.timeZone);
      const { misfirePolicy } = decodeSchedule(stored.body, stored);
      const due = dueTimes(times, seenMs, atMs, misfirePolicy);
      const plan = await this.#planner(stored, atMs, due.runs.length);
      const runs = due.runs.map(({ timeMs, missed }) =>
        plan({
          runId: this.#environment.newId("run"),
          key: `cron:${scheduleId}:${timeMs}`,
          trigger: missed ? "misfire" : "cron",
          scheduledMs: timeMs,
        }),
      );
      const { nextMs } = due;
      const listed = await this.#store.fireSchedule({ tenant, scheduleId, seenMs, nextMs, runs, error: "", atMs });
      const begun = (listed ?? []).filter(({ skipped }) => skipped === undefined);
      for (const sessionId of new Set(begun.map((run) => run.sessionId))) this.#sessions.wake(sessionId);
      await this.#forgetOldRuns(stored);
      return begun.length;
    } catch (error) {
      // What no waiting mends is not to keep the others from running.
      if (!(error instanceof AgentError) || (error.kind !== "data_loss" && error.kind !== "invalid_request"))
        throw error;
      this.#environment.report("error", "a schedule can't be run any more", { scheduleId, error });
      const broken = { nextMs: undefined, runs: [], error: error.message };
      await this.#store.fireSchedule({ tenant, scheduleId, seenMs, atMs, ...broken });
      return 0;
    }
  }

  /** Nobody talks in the sessions of commands: those of runs that are long over are removed, a few at a time. */
  async #forgetOldRuns({ tenant, principal, scheduleId, body, ...columns }: StoredSchedule): Promise<void> {
    if (decodeSchedule(body, columns).command === undefined) return;
    const { keptCommandSessions = usualKeptSessions } = this.#options;
    try {
      const kept = await this.#store.listScheduleRuns(tenant, scheduleId, undefined, keptCommandSessions);
      const last = kept.at(-1);
      if (last === undefined || kept.length < keptCommandSessions) return;
      for (const run of await this.#store.listScheduleRuns(tenant, scheduleId, last.position, runsForgotten))
        if (run.finished !== undefined && !run.lost)
          await this.#sessions.delete({ tenant, name: principal }, run.sessionId);
    } catch (error) {
      this.#environment.report("warn", "sessions of old runs can't be removed now", { scheduleId, error });
    }
  }

  /**
   * What the runs of a schedule have in common; gives the run for a time.
   * @param together how many runs are put into the session at once; there is room for all when there is for one
   */
  async #planner(stored: StoredSchedule, nowMs: number, together = 1) {
    const { tenant, principal, scheduleId } = stored;
    const schedule = decodeSchedule(stored.body, stored);
    const template = schedule.target.type === "template" ? schedule.target.config : undefined;
    // Where the session is gone the store finds out.
    const config = template ?? (await this.#configOf(tenant, stored.sessionId));
    const { profiles } = this.#environment;
    const asked =
      schedule.command === undefined
        ? turnTerms(profiles, schedule, config?.model ?? "", this.#options.defaultModel)
        : { model: "", plan: commandRun(scheduleId, schedule.command, nowMs) };
    const { maxQueuedTurns } = this.#environment.limits;
    return ({ runId, key, trigger, scheduledMs }: FirePlan) => {
      const session = template === undefined ? undefined : this.#newSession(tenant, template, nowMs);
      const sessionId = session?.sessionId ?? stored.sessionId;
      const command = {
        sessionId,
        tenant,
        key,
        kind: "turn",
        turnId: this.#environment.newId("turn"),
        principal,
        body: encodeTurnRequest({ ...turnOf(schedule, sessionId, key), ...asked }),
        hash: "",
        atMs: nowMs,
        waitingLimit: maxQueuedTurns + together - 1,
      } as const;
      const givesWay = schedule.overlapPolicy === "skip" && trigger !== "call";
      const run: ScheduledRun = { runId, scheduleId, trigger, scheduledMs, command, givesWay };
      return session === undefined ? run : { ...run, session };
    };
  }

  #newSession(tenant: string, template: SessionConfig, atMs: number): NewSession {
    const { messages, blobs } = separateLargeContent(template.initialMessages.map(withoutReservedMetadata));
    return {
      sessionId: this.#environment.newId("ses"),
      tenant,
      parentId: "",
      parentSeq: 0,
      placement: template.placement ?? "",
      config: encodeSessionConfig({ ...template, initialMessages: messages }),
      summary: encodeSummary(summaryOf(emptyState(messages))),
      blobs,
      requestId: "",
      requestHash: "",
      atMs,
    };
  }

  async #configOf(tenant: string, sessionId: string): Promise<SessionConfig | undefined> {
    const session = await this.#store.readSession(tenant, sessionId);
    return session === undefined ? undefined : decodeSessionConfig(session.config);
  }

  async #stored(principal: Principal, scheduleId: string): Promise<StoredSchedule> {
    const stored = await this.#store.readSchedule(principal.tenant, scheduleId);
    if (stored === undefined) throw unknownSchedule(scheduleId);
    return stored;
  }

  #wakeAt(timeMs: number | undefined): void {
    if (!this.#started || this.#stopped || timeMs === undefined || timeMs >= this.#wakeMs) return;
    this.#wakeMs = timeMs;
    clearTimeout(this.#timer);
    const delayMs = Math.max(leastWaitMs, timeMs - this.#environment.now());
    this.#timer = setTimeout(() => void this.#wake(), Math.min(delayMs, sweepEveryMs));
  }

  async #wake(): Promise<void> {
    this.#wakeMs = Number.POSITIVE_INFINITY;
    const { now, report } = this.#environment;
    try {
      await this.sweep();
      if (this.#stopped) return;
      const [next] = await this.#store.dueSchedules(Number.MAX_SAFE_INTEGER, 1);
      this.#wakeAt(Math.min(next?.nextMs ?? Number.POSITIVE_INFINITY, now() + sweepEveryMs));
    } catch (error) {
      if (this.#stopped) return;
      report("warn", "schedules can't be looked at now", { error });
      this.#wakeAt(now() + retryMs);
    }
  }
}

type FirePlan = Pick<ScheduledRun, "runId" | "trigger" | "scheduledMs"> & { readonly key: string };

/** Most bytes of schedules in one answer: shown twice, as blocks and as OpenAI shapes them, they still fit. */
const maxPageBytes = 6 * 1024 * 1024;

function turnOf({ messages, model, options }: Schedule, sessionId: string, requestId: string): TurnRequest {
  return { sessionId, messages, model, options, tools: [], requestId };
}

function tooLarge(bytes: number): AgentError {
  const size = `has ${bytes} bytes with its messages; ${maxScheduleBytes} is the most for a schedule`;
  return new AgentError("resource_exhausted", `the schedule ${size}`);
}

function unknownSchedule(scheduleId: string): AgentError {
  return new AgentError("not_found", `there is no schedule ${scheduleId}`, { reason: "SCHEDULE_NOT_FOUND" });
}

function brokenSchedule({ scheduleId, sessionId }: StoredSchedule): AgentError {
  return new AgentError(
    "failed_precondition",
    `schedule ${scheduleId} can't run: its session ${sessionId} is gone; create a schedule for another session`,
    { reason: "SCHEDULE_BROKEN" },
  );
}

function viewOf(stored: StoredSchedule): ScheduleView {
  const { scheduleId, error, paused, nextMs, lastMs, runCount, createdMs, updatedMs } = stored;
  const state = error !== "" ? "broken" : paused ? "paused" : "active";
  const schedule = decodeSchedule(stored.body, stored);
  return { scheduleId, schedule, state, error, nextMs, lastMs, runCount, createdMs, updatedMs };
}

const skipErrors: Readonly<Record<SkipReason, TurnError>> = {
  busy: { kind: "failed_precondition", reason: "RUN_UNFINISHED", message: "the run before had not ended", detail: {} },
  full: {
    kind: "resource_exhausted",
    reason: "TURN_QUEUE_FULL",
    message: "too many turns waited in the session",
    detail: {},
  },
};

function runView(stored: StoredRun): RunView {
  const { position, runId, scheduleId, trigger, scheduledMs, sessionId, turnId, startedMs, skipped } = stored;
  const run = { position, runId, scheduleId, trigger, scheduledMs, sessionId, turnId, startedMs };
  if (skipped !== undefined) return { ...run, state: "skipped", endedMs: undefined, error: skipErrors[skipped] };
  if (stored.lost) return { ...run, state: "deleted", endedMs: undefined };
  if (stored.finished === undefined) {
    const state = startedMs === undefined ? "queued" : stored.waits ? "waiting" : "running";
    return { ...run, state, endedMs: undefined };
  }
  const { event } = decodeLogEvent(stored.finished);
  if (event.type !== "turn-finished") throw new AgentError("data_loss", `the end of turn ${turnId} can't be read`);
  const { finishReason, error, usage } = event;
  return {
    ...run,
    state: finishReason === "error" ? "failed" : finishReason === "cancelled" ? "cancelled" : "completed",
    endedMs: stored.finishedMs,
    finishReason,
    ...(error === undefined ? {} : { error }),
    ...(usage === undefined ? {} : { usage }),
  };
}
