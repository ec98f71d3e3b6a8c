const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const months = [
  ...["January", "February", "March", "April", "May", "June", "July", "August", "September", "October"],
  ...["November", "December"],
];
/** More times are told field by field. */
const mostTimes = 12;

/**
 * Says in plain English when five cron fields are, as `at 09:00 from Monday to Friday`.
 * @param cron that a cron reader has accepted
 */
export function describeCron(cron: string): string {
  const [minute = "*", hour = "*", monthDay = "*", month = "*", weekday = "*"] = cron.trim().toLowerCase().split(/\s+/);
  const time = timeText(minute, hour);
  const days: string[] = [];
  if (monthDay !== "*") days.push(monthDaysText(monthDay));
  if (weekday !== "*") days.push(weekdaysText(weekday));
  const dayText = days.join(" and ");
  const isEveryDay = dayText === "" && month === "*" && /^at \d/.test(time);
  const monthText = month === "*" ? "" : monthsText(month);
  return [time, isEveryDay ? "every day" : dayText, monthText].filter((part) => part !== "").join(" ");
}

function timeText(minute: string, hour: string): string {
  const [minutes, hours] = [numbersOf(minute), numbersOf(hour)];
  if (minutes !== undefined && hours !== undefined && minutes.length * hours.length <= mostTimes) {
    const times = hours.flatMap((each) => minutes.map((of) => clock(each, of)));
    return `at ${listed(times)}`;
  }
  const [only] = minutes?.length === 1 ? minutes : [];
  if (only !== undefined) {
    const [, first, last, step] = /^(?:\*|(\d+)-(\d+))(?:\/(\d+))?$/.exec(hour) ?? [];
    const every = step === undefined || step === "1" ? "every hour" : `every ${step} hours`;
    if (first !== undefined && last !== undefined)
      return `${every} from ${clock(Number(first), only)} to ${clock(Number(last), only)}`;
    if (/^\*(\/\d+)?$/.test(hour)) return only === 0 ? every : `${every} at minute ${only}`;
  }
  const [, step] = /^\*(?:\/(\d+))?$/.exec(minute) ?? [];
  const isAll = minute === "*" || step !== undefined;
  const said = !isAll
    ? `at minute ${fieldText(minute, String)}`
    : step === undefined || step === "1"
      ? "every minute"
      : `every ${step} minutes${60 % Number(step) === 0 ? "" : " of each hour"}`;
  if (hour === "*") return isAll ? said : `${said} of every hour`;
  return `${said} in hour ${fieldText(hour, String)}`;
}

function monthDaysText(field: string): string {
  if (field === "l") return "on the last day of the month";
  return `on day ${fieldText(field, (day) => (day === "l" ? "the last" : day))} of the month`;
}

function weekdaysText(field: string): string {
  const name = (day: string) => {
    const [word = ""] = day.split("#");
    const known =
      weekdays[
        /^\d+$/.test(word)
          ? Number(word) % 7
          : weekdays.findIndex((each) => each.toLowerCase().startsWith(word.slice(0, 3)))
      ];
    return day.includes("#") ? `${known ?? day} number ${day.split("#")[1]} of the month` : (known ?? day);
  };
  const text = fieldText(field, name);
  return /^[a-z0-7]+-[a-z0-7]+$/.test(field) ? `from ${text}` : `on ${text}`;
}

function monthsText(field: string): string {
  const name = (month: string) =>
    (/^\d+$/.test(month) ? months[Number(month) - 1] : months.find((each) => each.toLowerCase().startsWith(month))) ??
    month;
  const [, step] = /^\*\/(\d+)$/.exec(field) ?? [];
  if (step !== undefined) return `in every ${step} months from January on`;
  const text = fieldText(field, name);
  return /^[a-z0-9]+-[a-z0-9]+$/.test(field) ? `from ${text}` : `in ${text}`;
}

function fieldText(field: string, name: (value: string) => string): string {
  return listed(
    field.split(",").map((part) => {
      const [range = "", step] = part.split("/");
      const [first = "", last] = range.split("-");
      const text = range === "*" ? "any" : last === undefined ? name(first) : `${name(first)} to ${name(last)}`;
      return step === undefined || step === "1" ? text : `${text} in steps of ${step}`;
    }),
  );
}

function numbersOf(field: string): readonly number[] | undefined {
  const parts = field.split(",");
  if (!parts.every((part) => /^\d+$/.test(part))) return undefined;
  return [...new Set(parts.map(Number))].toSorted((left, right) => left - right);
}

function clock(hour: number, minute: number): string {
  return `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;
}

function listed(parts: readonly string[]): string {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}
