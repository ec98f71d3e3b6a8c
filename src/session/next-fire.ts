import { Cron } from "croner";
import { invalidField } from "../chat/error.ts";
import type { MisfirePolicy } from "../chat/schedule.ts";
import { quoted } from "../convert/content-check.ts";

/** Times up to this late are on time; what is later passed while no server ran. Shorter than the shortest interval. */
const latenessMs = 60_000;
/** Most times that the policy `all` makes up for: the last ones. */
export const mostMisfires = 100;

const fieldNames = ["minute", "hour", "day of the month", "month", "day of the week"] as const;
const example = "write five fields, as in 0 9 * * 1-5";

/** The times of a cron text in a time zone, in milliseconds since 1970. */
export interface CronTimes {
  /** The first time after one; `undefined` where none comes. */
  next(afterMs: number): number | undefined;
  /** The last times up to one, itself included, oldest first. */
  last(count: number, untilMs: number): readonly number[];
}

/**
 * Reads when something is to run. A time that a clock change skips comes right after the change; one that comes twice
 * counts the first time, unless a `*` or a `/` in the minute or the hour says that time goes on.
 * @throws {AgentError} `invalid_request` that names `cron` and the field of it, or `time_zone`.
 */
export function cronTimes(cron: string, timeZone: string): CronTimes {
  checkTimeZone(timeZone);
  checkFields(cron);
  const times = read(cron, timeZone);
  return {
    next: (afterMs) => times.nextRun(new Date(afterMs))?.getTime(),
    last(count, untilMs) {
      // Before the next whole second: times are whole minutes.
      const before = new Date((Math.floor(untilMs / 1000) + 1) * 1000);
      return times
        .previousRuns(count, before)
        .map((time) => time.getTime())
        .reverse();
    },
  };
}

export interface DueTimes {
  /** Oldest first. */
  readonly runs: readonly { readonly timeMs: number; readonly missed: boolean }[];
  readonly nextMs: number | undefined;
}

/**
 * What is to be run now of a schedule whose next time has come.
 * @param seenMs that next time
 */
export function dueTimes(times: CronTimes, seenMs: number, nowMs: number, policy: MisfirePolicy): DueTimes {
  const most = policy === "all" ? mostMisfires : 1;
  const passed = times.last(most, nowMs).filter((timeMs) => timeMs >= seenMs);
  // What was foreseen counts also where the rules of the time zone changed since.
  const due = (passed.length > 0 ? passed : [seenMs]).map((timeMs) => ({
    timeMs,
    missed: nowMs - timeMs >= latenessMs,
  }));
  return { runs: policy === "none" ? due.filter(({ missed }) => !missed) : due, nextMs: times.next(nowMs) };
}

function read(cron: string, timezone: string): Cron {
  return new Cron(cron, { timezone, mode: "5-part", fixedTimeRule: "no-wildcard", paused: true });
}

function checkTimeZone(timeZone: string): void {
  try {
    new Intl.DateTimeFormat("en", { timeZone });
    if (/^[A-Za-z]/.test(timeZone)) return;
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
  }
  throw invalidField(
    "time_zone",
    `is ${quoted(timeZone)}, which is no time zone; use an IANA name such as Europe/Zurich, or UTC`,
  );
}

function checkFields(cron: string): void {
  const fields = cron.trim().split(/\s+/);
  if (fields.length !== fieldNames.length || cron.trim() === "") {
    const count = cron.trim() === "" ? 0 : fields.length;
    throw invalidField("cron", `has ${count} field${count === 1 ? "" : "s"}; ${example}`);
  }
  for (const [index, field] of fields.entries()) {
    const alone = fieldNames.map((_, other) => (other === index ? field : "*")).join(" ");
    if (!field.includes("?") && isReadable(alone)) continue;
    throw invalidField("cron", `field ${index + 1}, the ${fieldNames[index]}, is ${quoted(field)}: ${example}`);
  }
}

function isReadable(cron: string): boolean {
  try {
    read(cron, "UTC");
    return true;
  } catch {
    return false;
  }
}
