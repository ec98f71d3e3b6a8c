import {
  CronPhraseError,
  type CronWish,
  type DayTime,
  dayTime,
  everyUnits,
  hourIn,
  type PartOfDay,
  timesPer,
  together,
} from "./cron-wish.ts";

const numberWords: Readonly<Record<string, number>> = {
  ...{ one: 1, two: 2, three: 3, four: 4, five: 5, six: 6, seven: 7, eight: 8, nine: 9, ten: 10, eleven: 11 },
  ...{ twelve: 12, fifteen: 15, twenty: 20, thirty: 30, forty: 40, sixty: 60 },
};
const ordinalWords: Readonly<Record<string, number>> = {
  ...{ first: 1, second: 2, third: 3, fourth: 4, fifth: 5, sixth: 6, seventh: 7, eighth: 8, ninth: 9, tenth: 10 },
  ...{ fifteenth: 15, twentieth: 20, thirtieth: 30 },
};
const dayNames = [
  ["sunday", "sundays", "sun"],
  ["monday", "mondays", "mon"],
  ["tuesday", "tuesdays", "tue", "tues"],
  ["wednesday", "wednesdays", "wed", "weds"],
  ["thursday", "thursdays", "thu", "thur", "thurs"],
  ["friday", "fridays", "fri"],
  ["saturday", "saturdays", "sat"],
];
const monthNames = [
  ...[["january", "jan"], ["february", "feb"], ["march", "mar"], ["april", "apr"], ["may"], ["june", "jun"]],
  ...[
    ["july", "jul"],
    ["august", "aug"],
    ["september", "sep", "sept"],
    ["october", "oct"],
  ],
  ...[
    ["november", "nov"],
    ["december", "dec"],
  ],
];
const units: Readonly<Record<string, string>> = {
  ...{ second: "second", seconds: "second", sec: "second", secs: "second" },
  ...{ minute: "minute", minutes: "minute", min: "minute", mins: "minute" },
  ...{ hour: "hour", hours: "hour", hr: "hour", hrs: "hour", day: "day", days: "day", week: "week", weeks: "week" },
  ...{ month: "month", months: "month", year: "year", years: "year" },
};
const adverbs: Readonly<Record<string, CronWish>> = {
  hourly: everyUnits(1, "hour"),
  daily: everyUnits(1, "day"),
  nightly: everyUnits(1, "day"),
  weekly: everyUnits(1, "week"),
  monthly: everyUnits(1, "month"),
  quarterly: everyUnits(3, "month"),
  yearly: everyUnits(1, "year"),
  annually: everyUnits(1, "year"),
};
const parts: Readonly<Record<string, PartOfDay>> = {
  morning: "morning",
  mornings: "morning",
  afternoon: "afternoon",
  afternoons: "afternoon",
  evening: "evening",
  evenings: "evening",
  night: "night",
  nights: "night",
};
const workdays = { weekdays: [1, 2, 3, 4, 5] };
const weekend = { weekdays: [0, 6] };
const dayGroups: Readonly<Record<string, CronWish>> = {
  ...{ weekday: workdays, weekdays: workdays, workday: workdays, workdays, weekend, weekends: weekend },
};

/** Reads an English phrase in full. @throws {CronPhraseError} */
export function readEnglish(text: string): CronWish {
  return new EnglishPhrase(text).read();
}

interface SaidTime extends DayTime {
  /** Whether it is said which half of the day is meant; `needless` where the hour itself says it. */
  readonly half: "said" | "open" | "needless";
}

class EnglishPhrase {
  readonly #words: readonly string[];
  #at = 0;
  #part: PartOfDay | undefined;

  constructor(text: string) {
    const plain = text
      .replace(/\b([ap])\.m\.?/g, "$1m")
      .replaceAll("o'clock", "oclock")
      .replace(/[.!]$/, "");
    const token = /\d{1,2}:\d{2}(?!\d)|:\d{2}(?!\d)|\d+|[a-z]+|[,&-]/g;
    const [strange] = plain.replace(token, " ").trim().split(/\s+/);
    if (strange !== undefined && strange !== "") throw notRead(strange);
    this.#words = plain.match(token) ?? [];
  }

  read(): CronWish {
    const found: CronWish[] = [];
    let times: readonly SaidTime[] | undefined;
    while (this.#at < this.#words.length) {
      if (found.length > 0 || times !== undefined) this.#take(",");
      const said = this.#times();
      if (said !== undefined) {
        if (times !== undefined) throw new CronPhraseError("it says times in two places; make a job for each of them");
        times = said;
        continue;
      }
      const clause = this.#clause();
      if (clause === undefined) throw notRead(this.#words.slice(this.#at).join(" "));
      found.push(clause);
    }
    if (times === undefined && this.#part !== undefined)
      throw new CronPhraseError(`it does not say at what time of the ${this.#part}`);
    return together([...found, ...(times === undefined ? [] : [{ times: times.map((time) => this.#clear(time)) }])]);
  }

  /** One part of the phrase; undefined, with nothing taken, where there is none. */
  #clause(): CronWish | undefined {
    return (
      this.#attempt(() => this.#minuteMark()) ??
      this.#attempt(() => this.#hours()) ??
      this.#attempt(() => this.#frequency()) ??
      this.#attempt(() => this.#date()) ??
      this.#attempt(() => this.#monthDays()) ??
      this.#attempt(() => this.#days()) ??
      this.#attempt(() => this.#months()) ??
      this.#attempt(() => this.#interval())
    );
  }

  /** `every 5 minutes`, `every other hour`, `hourly`, `every day`, `every morning`. */
  #interval(): CronWish | undefined {
    const word = this.#word();
    const adverb = own(adverbs, word);
    if (adverb !== undefined) {
      this.#at++;
      if (word === "nightly") this.#part = "night";
      return adverb;
    }
    if (this.#take("once", "per") !== undefined) return undefined;
    if (this.#take("every", "each") === undefined) return undefined;
    if (this.#takeAll("half", "hour") || this.#takeAll("half", "an", "hour")) return everyUnits(30, "minute");
    if (this.#takeAll("quarter", "hour") || this.#takeAll("quarter", "of", "an", "hour"))
      return everyUnits(15, "minute");
    if (this.#take("quarter") !== undefined) return everyUnits(3, "month");
    const part = own(parts, this.#word());
    if (part !== undefined) {
      this.#at++;
      this.#part = part;
      return everyUnits(1, "day");
    }
    const isOther = this.#take("other") !== undefined;
    if (isOther && (dayIndex(this.#word()) !== -1 || own(dayGroups, this.#word()) !== undefined))
      throw new CronPhraseError("five fields can't say every other week; they know no odd and even ones");
    const count = isOther ? 2 : (this.#number() ?? 1);
    const unit = own(units, this.#word());
    if (unit === undefined) return undefined;
    this.#at++;
    return everyUnits(count, unit);
  }

  /** `twice a day`, `three times an hour`, `once a week`. */
  #frequency(): CronWish | undefined {
    const once = ["once", "twice", "thrice"].indexOf(this.#word());
    let count: number | undefined;
    if (once !== -1) {
      this.#at++;
      count = once + 1;
    } else {
      count = this.#number();
      if (count === undefined || this.#take("times") === undefined) return undefined;
    }
    if (this.#take("daily") !== undefined) return timesPer(count, "day");
    if (this.#take("hourly") !== undefined) return timesPer(count, "hour");
    if (this.#take("a", "an", "per", "each", "every") === undefined) return undefined;
    const unit = own(units, this.#word());
    if (unit === undefined) return undefined;
    this.#at++;
    return timesPer(count, unit);
  }

  /** `at minute 15`, `at :15`, `15 minutes past every hour`, `every hour at 15 minutes past`. */
  #minuteMark(): CronWish | undefined {
    const at = this.#take("at", "on") !== undefined;
    let minute: number | undefined;
    const [, mark] = /^:(\d\d)$/.exec(this.#word()) ?? [];
    if (at && mark !== undefined) {
      this.#at++;
      minute = Number(mark);
    } else if (at && this.#take("minute") !== undefined) {
      minute = this.#number();
      if (minute !== undefined && this.#take("of", "past") !== undefined && !this.#takeAll("the", "hour")) {
        if (!this.#takeAll("every", "hour") && !this.#takeAll("each", "hour")) return undefined;
        return { ...everyUnits(1, "hour"), minuteMark: checkedMinute(minute) };
      }
    } else {
      minute = this.#number();
      if (minute === undefined || this.#take("minutes", "minute", "mins", "min") === undefined) return undefined;
      if (this.#take("past", "after") === undefined) return undefined;
      if (this.#takeAll("every", "hour") || this.#takeAll("each", "hour"))
        return { ...everyUnits(1, "hour"), minuteMark: checkedMinute(minute) };
      if (this.#takeAll("the", "hour") || at) return { minuteMark: checkedMinute(minute) };
      return undefined;
    }
    return minute === undefined ? undefined : { minuteMark: checkedMinute(minute) };
  }

  /** `from 9am to 5pm`, `between 9 and 17`. */
  #hours(): CronWish | undefined {
    const word = this.#take("from", "between");
    if (word === undefined) return undefined;
    const first = this.#time(true);
    const between = word === "between" ? this.#take("and") : this.#take("to", "until", "till", "through", "-");
    const last = first === undefined || between === undefined ? undefined : this.#time(true);
    if (first === undefined || last === undefined) return undefined;
    checkHalves([first, last]);
    if (first.minute !== 0 || last.minute !== 0)
      throw new CronPhraseError("it begins or ends within an hour; five fields know whole hours only");
    return { hours: { first: first.hour, last: last.hour } };
  }

  /** `on monday and friday`, `every weekday`, `monday to friday`, `on weekends`. */
  #days(): CronWish | undefined {
    this.#take("on", "every", "each", "from");
    this.#take("the");
    const group = own(dayGroups, this.#word());
    if (group !== undefined) {
      this.#at++;
      return group;
    }
    if (this.#take("business", "working", "work") !== undefined)
      return this.#take("days", "day") === undefined ? undefined : workdays;
    const days = this.#list(() => {
      this.#take("on", "every", "each");
      const first = this.#day();
      if (first === undefined) return undefined;
      const last = this.#attempt(() => (this.#take("to", "through", "thru", "until", "-") ? this.#day() : undefined));
      if (last === undefined) return [first];
      return Array.from({ length: ((last - first + 7) % 7) + 1 }, (_, index) => (first + index) % 7);
    });
    if (days === undefined) return undefined;
    if (
      this.#attempt(() =>
        this.#takeAll("of", "the", "month") || this.#takeAll("of", "every", "month") ? true : undefined,
      )
    )
      throw countedWeekday();
    return { weekdays: days.flat() };
  }

  /** `on the 1st and 15th of every month`, `first day of the month`, `on day 15`, `last day of every month`. */
  #monthDays(): CronWish | undefined {
    const hasOn = this.#take("on") !== undefined;
    let isEvery = this.#take("every", "each") !== undefined;
    const hasThe = this.#take("the") !== undefined;
    let days: readonly number[] | undefined;
    if (this.#takeAll("last", "day")) days = [0];
    else if (this.#take("day", "days") !== undefined) days = this.#list(() => this.#number());
    else {
      days = this.#list(() => {
        this.#take("the");
        return this.#ordinal();
      });
      if (days !== undefined && (dayIndex(this.#word()) !== -1 || own(dayGroups, this.#word()) !== undefined))
        throw countedWeekday();
      // “Every 2nd day” may be each second one.
      if (days !== undefined && this.#take("day", "days") !== undefined && isEvery && days.some((day) => day !== 1))
        return undefined;
    }
    if (days === undefined) return undefined;
    const ofMonth = this.#attempt(() => {
      if (this.#take("of", "in") === undefined && this.#words[this.#at + 1] !== "month") return undefined;
      const said = this.#take("the", "every", "each", "a");
      if (said === "every" || said === "each") isEvery = true;
      return this.#take("month") !== undefined && said !== undefined ? true : undefined;
    });
    if (ofMonth === undefined) {
      const months = this.#attempt(() => (this.#take("of", "in") === undefined ? undefined : this.#monthList()));
      if (months !== undefined) return { monthDays: days.map(monthDay), months };
      if (!hasOn && !hasThe) return undefined;
      if (days.includes(0)) throw new CronPhraseError("it does not say of what the last day is meant");
    }
    return { monthDays: days.map(monthDay), ...(isEvery && ofMonth === undefined ? { recurrence: "month" } : {}) };
  }

  /** `on january 1st`, `every march 3`. */
  #date(): CronWish | undefined {
    const every = this.#take("on", "every", "each");
    const month = this.#month();
    if (month === undefined) return undefined;
    this.#take("the");
    const day = this.#ordinal() ?? (this.#isTimeNext() ? undefined : this.#number());
    if (day === undefined || every === undefined) return undefined;
    return { months: [month], monthDays: [monthDay(day)] };
  }

  /** `in june and july`. */
  #months(): CronWish | undefined {
    if (this.#take("in", "during") === undefined) return undefined;
    const months = this.#monthList();
    return months === undefined ? undefined : { months };
  }

  #monthList(): readonly number[] | undefined {
    return this.#list(() => {
      const first = this.#month();
      if (first === undefined) return undefined;
      const last = this.#attempt(() => (this.#take("to", "through", "thru", "-") ? this.#month() : undefined));
      if (last === undefined) return [first];
      return Array.from({ length: ((last - first + 12) % 12) + 1 }, (_, index) => ((first - 1 + index) % 12) + 1);
    })?.flat();
  }

  /** `at 9am and 5pm`, `at noon`, `9:30`. */
  #times(): readonly SaidTime[] | undefined {
    return this.#attempt(() => {
      const hasAt = this.#take("at", "@") !== undefined;
      const first = this.#attempt(() => this.#time(hasAt));
      if (first === undefined) return undefined;
      const times = [first];
      for (;;) {
        const next = this.#attempt(() => {
          if (!this.#separator()) return undefined;
          this.#take("at");
          return this.#time(hasAt);
        });
        if (next === undefined) break;
        times.push(next);
      }
      checkHalves(times);
      return times;
    });
  }

  /** @param bare whether a number alone is an hour */
  #time(bare: boolean): SaidTime | undefined {
    if (this.#take("noon", "midday") !== undefined) return { hour: 12, minute: 0, half: "needless" };
    if (this.#take("midnight") !== undefined) return { hour: 0, minute: 0, half: "needless" };
    const word = this.#word();
    const [, hourText, minuteText] = /^(\d{1,2}):(\d\d)$/.exec(word) ?? [];
    if (hourText !== undefined && minuteText !== undefined) {
      this.#at++;
      return this.#withHalf(Number(hourText), Number(minuteText), hourText.length === 2 && hourText.startsWith("0"));
    }
    const isHalf = this.#takeAll("half", "past");
    const isQuarter = !isHalf && this.#takeAll("quarter", "past");
    const isBefore = !isHalf && !isQuarter && this.#takeAll("quarter", "to");
    const hour = this.#number();
    if (hour === undefined) return undefined;
    if (isBefore) return this.#withHalf(hour, -15, false);
    if (isHalf || isQuarter) return this.#withHalf(hour, isHalf ? 30 : 15, false);
    if (own(units, this.#word()) !== undefined || this.#isOrdinalEnd(this.#word())) return undefined;
    const hasHalf = this.#word() === "am" || this.#word() === "pm" || this.#word() === "oclock";
    if (!bare && !hasHalf) return undefined;
    return this.#withHalf(hour, 0, false);
  }

  /** Takes what says which half of the day is meant. */
  #withHalf(said: number, minutes: number, isFull: boolean): SaidTime {
    this.#take("oclock");
    const at = (hour: number, saidHalf: SaidTime["half"]): SaidTime => {
      const total = (dayTime(hour, Math.max(0, minutes)).hour * 60 + minutes + 1440) % 1440;
      return { hour: Math.floor(total / 60), minute: total % 60, half: saidHalf };
    };
    const half = this.#take("am", "pm");
    if (half !== undefined) {
      if (said < 1 || said > 12)
        throw new CronPhraseError(`${said} ${half} is no time; hours go from 1 to 12 with am and pm`);
      return at((said % 12) + (half === "pm" ? 12 : 0), "said");
    }
    const part = this.#attempt(() => {
      const found = this.#takeAll("in", "the")
        ? own(parts, this.#word())
        : this.#takeAll("at", "night")
          ? "night"
          : undefined;
      if (found !== undefined && found !== "night") this.#at++;
      return found;
    });
    if (part !== undefined) return at(hourIn(part, said), "said");
    return at(said, said === 0 || said > 12 || isFull ? "needless" : "open");
  }

  #clear({ hour, minute, half }: SaidTime): DayTime {
    if (this.#part === undefined) return { hour, minute };
    const inPart = hourIn(this.#part, hour);
    if (half !== "open" && inPart !== hour) throw new CronPhraseError(`${hour}:00 is not in the ${this.#part}`);
    return { hour: inPart, minute };
  }

  #day(): number | undefined {
    const index = dayIndex(this.#word());
    if (index === -1) return undefined;
    this.#at++;
    return index;
  }

  #month(): number | undefined {
    const index = monthNames.findIndex((names) => names.includes(this.#word()));
    if (index === -1) return undefined;
    this.#at++;
    return index + 1;
  }

  #number(): number | undefined {
    const word = this.#word();
    const number = /^\d+$/.test(word) ? Number(word) : own(numberWords, word);
    if (number !== undefined) this.#at++;
    return number;
  }

  /** `1st`, `first`. */
  #ordinal(): number | undefined {
    const word = own(ordinalWords, this.#word());
    if (word !== undefined) {
      this.#at++;
      return word;
    }
    return this.#attempt(() => {
      if (!/^\d+$/.test(this.#word())) return undefined;
      const number = Number(this.#word());
      this.#at++;
      if (!this.#isOrdinalEnd(this.#word())) return undefined;
      this.#at++;
      return number;
    });
  }

  #isOrdinalEnd(word: string): boolean {
    return word === "st" || word === "nd" || word === "rd" || word === "th";
  }

  #isTimeNext(): boolean {
    return this.#word().includes(":") || ["am", "pm", "oclock"].includes(this.#words[this.#at + 1] ?? "");
  }

  #list<Item>(item: () => Item | undefined): readonly Item[] | undefined {
    const first = item();
    if (first === undefined) return undefined;
    const items = [first];
    for (;;) {
      const next = this.#attempt(() => (this.#separator() ? item() : undefined));
      if (next === undefined) return items;
      items.push(next);
    }
  }

  #separator(): boolean {
    const comma = this.#take(",") !== undefined;
    return this.#take("and", "&") !== undefined || comma;
  }

  /** Takes back what was taken where nothing came of it. */
  #attempt<Value>(read: () => Value | undefined): Value | undefined {
    const before = this.#at;
    const partBefore = this.#part;
    const value = read();
    if (value !== undefined) return value;
    this.#at = before;
    this.#part = partBefore;
    return undefined;
  }

  #word(): string {
    return this.#words[this.#at] ?? "";
  }

  #take(...words: readonly string[]): string | undefined {
    const word = this.#words[this.#at];
    if (word === undefined || !words.includes(word)) return undefined;
    this.#at++;
    return word;
  }

  #takeAll(...words: readonly string[]): boolean {
    if (!words.every((word, index) => this.#words[this.#at + index] === word)) return false;
    this.#at += words.length;
    return true;
  }
}

function own<Value>(table: Readonly<Record<string, Value>>, word: string): Value | undefined {
  return Object.hasOwn(table, word) ? table[word] : undefined;
}

function dayIndex(word: string): number {
  return dayNames.findIndex((names) => names.includes(word));
}

function monthDay(day: number): number {
  if (Number.isInteger(day) && day >= 0 && day <= 31) return day;
  throw new CronPhraseError(`no month has a day ${day}`);
}

function checkedMinute(minute: number): number {
  if (minute <= 59) return minute;
  throw new CronPhraseError(`no hour has a minute ${minute}`);
}

function countedWeekday(): CronPhraseError {
  return new CronPhraseError("five fields can't count a day of the week within its month");
}

function checkHalves(times: readonly SaidTime[]): void {
  if (times.some(({ half }) => half === "said") && times.some(({ half }) => half === "open"))
    throw new CronPhraseError("it says am or pm of some of its times only; say it of all, or write hours from 0 to 23");
}

function notRead(rest: string): CronPhraseError {
  return new CronPhraseError(`“${rest.slice(0, 60)}” is not understood`);
}
