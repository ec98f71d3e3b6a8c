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

const digits: Readonly<Record<string, number>> = {
  ...{ 零: 0, 〇: 0, 一: 1, 二: 2, 两: 2, 三: 3, 四: 4, 五: 5, 六: 6, 七: 7, 八: 8, 九: 9 },
};
const number = "(?:\\d+|[零〇一二两三四五六七八九十廿]+)";
const weekdayNames = "一二三四五六日天";
const partWords: Readonly<Record<string, PartOfDay>> = {
  ...{ 凌晨: "early", 清晨: "morning", 早晨: "morning", 早上: "morning", 上午: "morning", 早: "morning" },
  ...{ 中午: "noon", 下午: "afternoon", 午后: "afternoon", 傍晚: "evening", 晚上: "evening", 晚间: "evening" },
  ...{ 夜里: "night", 夜间: "night", 深夜: "night", 半夜: "night", 晚: "evening" },
};
const part = `(?:${Object.keys(partWords).join("|")})`;
const week = "(?:周|星期|礼拜)";
const unitWords: Readonly<Record<string, string>> = {
  ...{ 秒: "second", 秒钟: "second", 分钟: "minute", 分: "minute", 小时: "hour", 钟头: "hour", 天: "day", 日: "day" },
  ...{ 周: "week", 星期: "week", 礼拜: "week", 月: "month", 年: "year", 季度: "quarter", 刻钟: "quarter hour" },
};
const unit = "(?:秒钟?|分钟?|小时|钟头|刻钟|天|日|周|星期|礼拜|月|季度|年)";
const separator = "[、,和及与跟]";

/** Reads a Chinese phrase in full. @throws {CronPhraseError} */
export function readChinese(text: string): CronWish {
  return new ChinesePhrase(text.replaceAll(/\s+/g, "").replace(/[。!]$/, "")).read();
}

class ChinesePhrase {
  #rest: string;

  constructor(text: string) {
    this.#rest = text;
  }

  read(): CronWish {
    const found: CronWish[] = [];
    while (this.#rest !== "") {
      if (found.length > 0) this.#take(/^(?:,|的)/);
      const said =
        this.#hours() ??
        this.#times() ??
        this.#minuteMark() ??
        this.#frequency() ??
        this.#dates() ??
        this.#monthDays() ??
        this.#days() ??
        this.#interval();
      if (said === undefined) throw new CronPhraseError(`“${this.#rest.slice(0, 60)}” is not understood`);
      found.push(said);
      this.#take(/^(?:执行|运行|跑)(?:一次)?$/);
      this.#take(/^一次$/);
    }
    return together(found);
  }

  /** `每5分钟`, `每隔两小时`, `每天`, `每半小时`. */
  #interval(): CronWish | undefined {
    if (this.#take(/^每(?:隔)?半个?(?:小时|钟头)/)) return everyUnits(30, "minute");
    const [whole, apart, said, name = ""] = this.#take(new RegExp(`^每(隔)?(${number})?个?(${unit})`)) ?? [];
    if (whole === undefined) {
      if (this.#take(/^(?:天天|每(?=[早晚]|凌晨|清晨|上午|下午|中午|傍晚|深夜))/)) return everyUnits(1, "day");
      return undefined;
    }
    const count = said === undefined ? 1 : numeral(said);
    if (apart !== undefined && count === 1)
      throw new CronPhraseError(`“${whole}” may mean each one or each second one; write 每 or 每2 instead`);
    const english = unitWords[name] ?? "";
    if (english === "quarter hour") return everyUnits(15 * count, "minute");
    if (english === "quarter") return everyUnits(3 * count, "month");
    return everyUnits(count, english);
  }

  /** `每天两次`, `一小时四次`. */
  #frequency(): CronWish | undefined {
    const found = this.#take(new RegExp(`^(?:每|一)个?(天|日|小时|钟头|周|星期|月|年)(${number})次`));
    if (found === undefined) return undefined;
    const [, name = "", count = ""] = found;
    return timesPer(numeral(count), unitWords[name] ?? "");
  }

  /** `9点到18点每小时`: the hours before the interval. */
  #hours(): CronWish | undefined {
    const before = this.#rest;
    this.#take(/^从/);
    const first = this.#time(undefined);
    const last = first !== undefined && this.#take(/^(?:到|至|-|~)/) ? this.#time(first.part) : undefined;
    if (first === undefined || last === undefined) {
      this.#rest = before;
      return undefined;
    }
    this.#take(/^(?:之间|期间)/);
    if (first.minute !== 0 || last.minute !== 0)
      throw new CronPhraseError("it begins or ends within an hour; five fields know whole hours only");
    return { hours: { first: first.hour, last: last.hour } };
  }

  /** `早上9点和下午6点半`, `8:30、20:30`. */
  #times(): CronWish | undefined {
    const before = this.#rest;
    this.#take(/^(?:在|于)/);
    const first = this.#time(undefined);
    if (first === undefined) {
      this.#rest = before;
      return undefined;
    }
    const times = [first];
    for (;;) {
      const here = this.#rest;
      const next = this.#take(new RegExp(`^${separator}`)) ? this.#time(times.at(-1)?.part) : undefined;
      if (next !== undefined) times.push(next);
      else {
        this.#rest = here;
        break;
      }
    }
    return { times: times.map(({ hour, minute }) => ({ hour, minute })) };
  }

  /** @param inherited the part of the day that the time before it is in, which holds on where none is said */
  #time(inherited: PartOfDay | undefined): (DayTime & { readonly part: PartOfDay | undefined }) | undefined {
    if (this.#take(/^午夜(?!\d|[零一二两三四五六七八九十])/)) return { hour: 0, minute: 0, part: undefined };
    const clock = new RegExp(
      `^(${part})?的?(?:(\\d{1,2}):(\\d{2})(?!\\d)|(${number})(?:点钟?|时)(?!间)(?:整|(半)|([一三])刻|(${number})分?(?!钟|小时))?)`,
    );
    const [whole, partWord, hourText, minuteText, saidHour, half, quarters, minutes] = this.#take(clock) ?? [];
    if (whole === undefined) {
      if (this.#take(/^(?:正午|中午)/)) return { hour: 12, minute: 0, part: undefined };
      return undefined;
    }
    const said = hourText === undefined ? numeral(saidHour ?? "") : Number(hourText);
    const minute =
      minuteText !== undefined
        ? Number(minuteText)
        : half !== undefined
          ? 30
          : quarters !== undefined
            ? numeral(quarters) * 15
            : minutes === undefined
              ? 0
              : numeral(minutes);
    const named = partWord === undefined ? undefined : partWords[partWord];
    if (named === undefined && inherited !== undefined && said <= 12)
      throw new CronPhraseError(`it does not say in which part of the day “${whole}” is; say it of each time`);
    return { ...dayTime(named === undefined ? said : hourIn(named, said), minute), part: named };
  }

  /** `每小时第15分钟`, `每小时的15分`. */
  #minuteMark(): CronWish | undefined {
    const found = this.#take(new RegExp(`^每个?(?:小时|钟头)的?(?:第(${number})分钟?|(${number})分(?!钟))`));
    if (found === undefined) return undefined;
    const minute = numeral(found[1] ?? found[2] ?? "");
    if (minute > 59) throw new CronPhraseError(`no hour has a minute ${minute}`);
    return { ...everyUnits(1, "hour"), minuteMark: minute };
  }

  /** `每年1月1日`, `每年三月和九月1号`. */
  #dates(): CronWish | undefined {
    const found = this.#take(
      new RegExp(`^每年的?(${number}月(?:份)?(?:${separator}${number}月(?:份)?)*)的?(${number})[号日]`),
    );
    if (found === undefined) return undefined;
    const [, monthText = "", day = ""] = found;
    return {
      recurrence: "year",
      months: [...monthText.matchAll(new RegExp(number, "g"))].map(([each]) => monthOf(numeral(each))),
      monthDays: [dayOf(numeral(day))],
    };
  }

  /** `每月1号`, `每个月1号和15号`, `每月1、15日`, `每月最后一天`. */
  #monthDays(): CronWish | undefined {
    if (this.#take(/^每个?月的?最后一[天日]/)) return { monthDays: [0] };
    if (this.#take(/^每个?月的?第一[天日]/)) return { monthDays: [1] };
    const found = this.#take(new RegExp(`^每个?月的?(${number}[号日]?(?:${separator}${number}[号日]?)*)(?<=[号日])`));
    if (found === undefined) return undefined;
    const [, days = ""] = found;
    return { monthDays: [...days.matchAll(new RegExp(number, "g"))].map(([each]) => dayOf(numeral(each))) };
  }

  /** `每周一三五`, `周一到周五`, `工作日`, `每个周末`. */
  #days(): CronWish | undefined {
    if (this.#take(/^每?个?(?:工作日|平日)/)) return { weekdays: [1, 2, 3, 4, 5] };
    if (this.#take(new RegExp(`^每?个?(?:${week}末)`))) return { weekdays: [0, 6] };
    const days: number[] = [];
    const begin = new RegExp(`^每?个?${week}([${weekdayNames}])(?!次|点)`);
    const first = this.#take(begin);
    if (first === undefined) return undefined;
    days.push(weekdayOf(first[1] ?? ""));
    for (;;) {
      const range = this.#take(new RegExp(`^(?:到|至|-|~)${week}?([${weekdayNames}])(?!点)`));
      const from = days.at(-1) ?? 0;
      if (range !== undefined) {
        const to = weekdayOf(range[1] ?? "");
        for (let step = 1; step <= (to - from + 7) % 7; step++) days.push((from + step) % 7);
        continue;
      }
      // A numeral before 点 is an hour.
      const next =
        this.#take(new RegExp(`^${separator}每?个?${week}([${weekdayNames}])(?!点|时)`)) ??
        this.#take(new RegExp(`^${separator}?([${weekdayNames}])(?![十一二三四五六七八九]*[点时])`));
      if (next === undefined) return { weekdays: days };
      days.push(weekdayOf(next[1] ?? ""));
    }
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    const found = pattern.exec(this.#rest) ?? undefined;
    if (found !== undefined) this.#rest = this.#rest.slice(found[0].length);
    return found;
  }
}

/** A number up to 99 in Chinese or in digits. @throws {CronPhraseError} */
function numeral(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  const plain = text.replace("廿", "二十");
  const [, tens, ones] = /^([一二三四五六七八九])?十([一二三四五六七八九])?$/.exec(plain) ?? [];
  if (plain.includes("十")) {
    if (!/^[一二三四五六七八九]?十[一二三四五六七八九]?$/.test(plain))
      throw new CronPhraseError(`“${text}” is no number`);
    return (tens === undefined ? 1 : (digits[tens] ?? 0)) * 10 + (ones === undefined ? 0 : (digits[ones] ?? 0));
  }
  const values = [...plain].map((each) => digits[each] ?? 0);
  if (values.length === 1) return values[0] ?? 0;
  if (values.length === 2 && values[0] === 0) return values[1] ?? 0;
  throw new CronPhraseError(`“${text}” is no number`);
}

function weekdayOf(name: string): number {
  return name === "天" ? 0 : (weekdayNames.indexOf(name) + 1) % 7;
}

function dayOf(day: number): number {
  if (day >= 1 && day <= 31) return day;
  throw new CronPhraseError(`no month has a day ${day}`);
}

function monthOf(month: number): number {
  if (month >= 1 && month <= 12) return month;
  throw new CronPhraseError(`no year has a month ${month}`);
}
