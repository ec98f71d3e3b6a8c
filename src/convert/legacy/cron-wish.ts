/** A time of the day. */
export interface DayTime {
  readonly hour: number;
  readonly minute: number;
}

/** How often something recurs that is told without days or times. */
type Recurrence = "day" | "week" | "month" | "year";

/** What a phrase says of when something is to run, whatever language it is in. What is left out it does not say. */
export interface CronWish {
  /** Every so many minutes or hours. */
  readonly every?: { readonly count: number; readonly unit: "minute" | "hour" };
  /** The minute of the hour at which something hourly runs. */
  readonly minuteMark?: number;
  /** Both included. */
  readonly hours?: { readonly first: number; readonly last: number };
  readonly times?: readonly DayTime[];
  readonly recurrence?: Recurrence;
  /** 0 is Sunday. */
  readonly weekdays?: readonly number[];
  /** 0 is the last day of the month. */
  readonly monthDays?: readonly number[];
  /** From 1. */
  readonly months?: readonly number[];
  /** Every so many months, from January on. */
  readonly everyMonths?: number;
}

/** A phrase can't be read, or says what five fields can't; the message is the end of a sentence. */
export class CronPhraseError extends Error {
  override readonly name = "CronPhraseError";
}

const tooFine = "five fields know whole minutes and nothing finer; the least is every minute";

/** Every so many of a unit of time, as a part of a wish. @throws {CronPhraseError} for what five fields can't say. */
export function everyUnits(count: number, unit: string): CronWish {
  if (!Number.isInteger(count) || count < 1) throw new CronPhraseError(`every ${count} ${unit}s is no time`);
  switch (unit) {
    case "second":
      if (count % 60 === 0) return everyUnits(count / 60, "minute");
      throw new CronPhraseError(tooFine);
    case "minute":
      if (60 % count === 0 && count < 60) return { every: { count, unit } };
      if (count % 60 === 0) return everyUnits(count / 60, "hour");
      throw new CronPhraseError(
        `five fields can't say every ${count} minutes: the minutes begin anew with each hour, so that only what divides 60 comes at even distances`,
      );
    case "hour":
      if (count === 24) return { recurrence: "day" };
      if (24 % count === 0) return { every: { count, unit } };
      throw new CronPhraseError(
        `five fields can't say every ${count} hours: the hours begin anew with each day, so that only what divides 24 comes at even distances`,
      );
    case "month":
      if (count === 1) return { recurrence: "month" };
      if (count === 12) return { recurrence: "year" };
      if (12 % count === 0) return { everyMonths: count };
      throw new CronPhraseError(
        `five fields can't say every ${count} months: only what divides 12 comes at even distances`,
      );
    case "day":
    case "week":
    case "year":
      if (count === 1) return { recurrence: unit };
      throw new CronPhraseError(
        `five fields can't say every ${count} ${unit}s: they name days of the week and of the month, and count none from one to the next`,
      );
    default:
      throw new CronPhraseError(`${unit} is no unit of time`);
  }
}

/** So many times within a unit of time, at even distances from its beginning on. @throws {CronPhraseError} */
export function timesPer(count: number, unit: string): CronWish {
  if (count === 1) return everyUnits(1, unit);
  const [parts, smaller] = unit === "day" ? [24, "hour"] : unit === "hour" ? [60, "minute"] : [0, ""];
  if (count > 0 && smaller !== "" && parts % count === 0) return everyUnits(parts / count, smaller);
  throw new CronPhraseError(`${count} times a ${unit} is not at even distances; say at which times`);
}

/**
 * The five fields of a wish. Where it says days and no times it means midnight, and where it says only that something is
 * weekly, monthly or yearly, the first midnight of that, as the words `@weekly`, `@monthly` and `@yearly` of cron do.
 * @throws {CronPhraseError} for what five fields can't say, and where something is left open.
 */
export function cronFromWish(wish: CronWish): string {
  const { every, minuteMark, hours, times = [], recurrence } = wish;
  const [monthDay, month, weekday] = dayFields(wish, every !== undefined || times.length > 0);
  const days = `${monthDay} ${month} ${weekday}`;
  if (every === undefined) {
    if (hours !== undefined) throw new CronPhraseError("it says from when to when, and not how often");
    if (minuteMark !== undefined) throw new CronPhraseError("it says a minute, and not of which hours");
    const isSaid = recurrence !== undefined || times.length > 0 || days !== "* * *";
    if (!isSaid) throw new CronPhraseError("it says no time");
    return `${timeFields(times.length === 0 ? [{ hour: 0, minute: 0 }] : times)} ${days}`;
  }
  if (times.length > 0) throw new CronPhraseError("it says how often and at which times as well; say one of them");
  const { count, unit } = every;
  if (unit === "minute") {
    if (minuteMark !== undefined) throw new CronPhraseError("it says how often and at which minute as well");
    if (hours !== undefined)
      throw new CronPhraseError(
        `five fields can't say that the last run is at ${hours.last}:00; write them yourself, as in */${count} ${hours.first}-${hours.last - 1} * * *`,
      );
    return `${count === 1 ? "*" : `*/${count}`} * ${days}`;
  }
  const minute = minuteMark ?? 0;
  if (hours === undefined) return `${minute} ${count === 1 ? "*" : `*/${count}`} ${days}`;
  const { first, last } = hours;
  if (last <= first) throw new CronPhraseError("its last hour is not after its first one");
  return `${minute} ${first}-${last}${count === 1 ? "" : `/${count}`} ${days}`;
}

function timeFields(times: readonly DayTime[]): string {
  const hours = sorted(times.map(({ hour }) => hour));
  const minutes = sorted(times.map(({ minute }) => minute));
  const said = new Set(times.map(({ hour, minute }) => hour * 60 + minute));
  if (said.size !== hours.length * minutes.length)
    throw new CronPhraseError(
      "five fields can't say times that differ in hour and minute; make a job for each of them",
    );
  return `${minutes.join(",")} ${hours.join(",")}`;
}

function dayFields(wish: CronWish, hasTime: boolean): readonly [monthDay: string, month: string, weekday: string] {
  const { recurrence, weekdays = [], monthDays = [], months = [], everyMonths } = wish;
  const month = everyMonths !== undefined ? `*/${everyMonths}` : months.length > 0 ? fieldOf(months) : "*";
  if (everyMonths !== undefined && months.length > 0)
    throw new CronPhraseError("it says how often in months and which months as well");
  if (weekdays.length > 0 && monthDays.length > 0)
    throw new CronPhraseError("five fields can't say a day of the week and a day of the month together");
  if (weekdays.length > 0) {
    if (recurrence === "month" || recurrence === "year" || everyMonths !== undefined)
      throw new CronPhraseError("it does not say which of these days in the month; five fields can't");
    if (recurrence === "day" && weekdays.length < 7)
      throw new CronPhraseError("it says every day and certain days of the week as well");
    return ["*", month, fieldOf(weekdays)];
  }
  if (monthDays.length > 0) {
    if (recurrence === "day" || recurrence === "week")
      throw new CronPhraseError(`it says every ${recurrence} and certain days of the month as well`);
    if (recurrence === "year" && months.length === 0) throw new CronPhraseError("it does not say in which month");
    return [fieldOf(monthDays).replace(/^0\b/, "L"), month, "*"];
  }
  if (recurrence === undefined && everyMonths === undefined) return ["*", month, "*"];
  if (recurrence === "day") return ["*", month, "*"];
  if (hasTime || months.length > 0)
    throw new CronPhraseError(`it does not say on which day of the ${recurrence ?? "month"}`);
  if (recurrence === "week") return ["*", "*", "0"];
  if (recurrence === "year") return ["1", "1", "*"];
  return ["1", month, "*"];
}

/** Numbers as a field has them: three and more in a row as a range. */
function fieldOf(numbers: readonly number[]): string {
  const each = sorted(numbers);
  const parts: string[] = [];
  for (let at = 0; at < each.length; ) {
    let end = at;
    while (each[end + 1] === (each[end] ?? 0) + 1) end++;
    if (end - at >= 2) parts.push(`${each[at]}-${each[end]}`);
    else for (let single = at; single <= end; single++) parts.push(String(each[single]));
    at = end + 1;
  }
  return parts.join(",");
}

function sorted(numbers: readonly number[]): number[] {
  return [...new Set(numbers)].toSorted((left, right) => left - right);
}

/** What a part of the day makes of an hour that people say. @throws {CronPhraseError} for an hour it does not have. */
export type PartOfDay = "early" | "morning" | "noon" | "afternoon" | "evening" | "night";

const partHours: Readonly<Record<PartOfDay, readonly (readonly [said: number, hour: number])[]>> = {
  early: [[12, 0], ...span(0, 6, 0)],
  morning: span(1, 11, 0),
  noon: [...span(11, 13, 0), [1, 13], [2, 14]],
  afternoon: [[12, 12], ...span(1, 6, 12), ...span(13, 18, 0)],
  evening: [...span(5, 11, 12), ...span(17, 23, 0)],
  night: [[12, 0], [0, 0], ...span(1, 4, 0), ...span(8, 11, 12), ...span(20, 23, 0)],
};

function span(first: number, last: number, shift: number): readonly (readonly [said: number, hour: number])[] {
  return Array.from({ length: last - first + 1 }, (_, index) => [first + index, first + index + shift] as const);
}

export function hourIn(part: PartOfDay, said: number): number {
  const [, hour] = partHours[part].find(([each]) => each === said) ?? [];
  if (hour !== undefined) return hour;
  throw new CronPhraseError(`${said} is no hour of that part of the day; write the hour from 0 to 23`);
}

/** @throws {CronPhraseError} for a time that no day has. */
export function dayTime(hour: number, minute: number): DayTime {
  if (hour >= 0 && hour <= 23 && minute >= 0 && minute <= 59) return { hour, minute };
  throw new CronPhraseError(`${hour}:${String(minute).padStart(2, "0")} is no time of a day`);
}

/** Brings parts of a wish together. @throws {CronPhraseError} when one of them is said twice. */
export function together(parts: readonly CronWish[]): CronWish {
  let wish: CronWish = {};
  for (const part of parts) {
    for (const key of Object.keys(part))
      if (Object.hasOwn(wish, key)) throw new CronPhraseError(twice[key] ?? "it says something twice");
    wish = { ...wish, ...part };
  }
  return wish;
}

const twice: Readonly<Record<string, string>> = {
  every: "it says twice how often",
  recurrence: "it says twice how often",
  times: "it says times in two places; make a job for each of them",
  weekdays: "it says days in two places; make a job for each of them",
  monthDays: "it says days in two places; make a job for each of them",
  months: "it says months in two places; make a job for each of them",
};
