import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { readCronPhrase } from "../../src/convert/legacy/cron-phrase.ts";
import { describeCron } from "../../src/convert/legacy/describe-cron.ts";
import { cronTimes } from "../../src/session/next-fire.ts";

const good: Readonly<Record<string, string>> = {
  // five fields and words of cron
  "0 9 * * 1-5": "0 9 * * 1-5",
  "  */5  *  * * MON-fri ": "*/5 * * * mon-fri",
  "0 0 L * *": "0 0 l * *",
  "@daily": "0 0 * * *",
  "@Hourly": "0 * * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@annually": "0 0 1 1 *",
  // how often
  "every minute": "* * * * *",
  "every 5 minutes": "*/5 * * * *",
  "Every five mins.": "*/5 * * * *",
  "every 60 minutes": "0 * * * *",
  "every 120 minutes": "0 */2 * * *",
  "every 300 seconds": "*/5 * * * *",
  "every other minute": "*/2 * * * *",
  "every half hour": "*/30 * * * *",
  "every quarter of an hour": "*/15 * * * *",
  hourly: "0 * * * *",
  "every hour": "0 * * * *",
  "each hour at :15": "15 * * * *",
  "every hour at minute 5": "5 * * * *",
  "at minute 5 of every hour": "5 * * * *",
  "20 minutes past every hour": "20 * * * *",
  "every hour at 20 minutes past the hour": "20 * * * *",
  "every 2 hours": "0 */2 * * *",
  "every other hour": "0 */2 * * *",
  "every 6 hours at minute 30": "30 */6 * * *",
  "every 24 hours at 9": "0 9 * * *",
  "twice a day": "0 */12 * * *",
  "three times a day": "0 */8 * * *",
  "four times an hour": "*/15 * * * *",
  "once an hour": "0 * * * *",
  "once a day at 6am": "0 6 * * *",
  "every hour from 9am to 5pm": "0 9-17 * * *",
  "every 2 hours between 8 and 18 on weekdays": "0 8-18/2 * * 1-5",
  "every 20 minutes on saturday": "*/20 * * * 6",
  // at what time
  daily: "0 0 * * *",
  "every day": "0 0 * * *",
  "every day at 9am": "0 9 * * *",
  "every day at 9 a.m.": "0 9 * * *",
  "each day at 12am": "0 0 * * *",
  "daily at 12pm": "0 12 * * *",
  "daily at 14:30": "30 14 * * *",
  "9pm every day": "0 21 * * *",
  "at 9": "0 9 * * *",
  "at 9 o'clock": "0 9 * * *",
  "at nine": "0 9 * * *",
  "at midnight": "0 0 * * *",
  "at noon": "0 12 * * *",
  "every day at half past 9": "30 9 * * *",
  "every day at quarter past nine pm": "15 21 * * *",
  "every day at quarter to 12": "45 11 * * *",
  "every day at 9 in the evening": "0 21 * * *",
  "every day at 11 at night": "0 23 * * *",
  "every morning at 7:15": "15 7 * * *",
  "every evening at 8": "0 20 * * *",
  "every night at 1": "0 1 * * *",
  "nightly at 2:30": "30 2 * * *",
  "every afternoon at 3": "0 15 * * *",
  "every day at 9am and 5pm": "0 9,17 * * *",
  "every day at 9:00, 12:00 and 18:00": "0 9,12,18 * * *",
  "at 9 and 17": "0 9,17 * * *",
  "at 9:00, 9:30, 10:00 and 10:30": "0,30 9,10 * * *",
  // on which days
  "every monday at 14:30": "30 14 * * 1",
  "mondays at 9": "0 9 * * 1",
  "at noon on sundays": "0 12 * * 0",
  "every sunday": "0 0 * * 0",
  "weekdays at 18:00": "0 18 * * 1-5",
  "every weekday at 9:30": "30 9 * * 1-5",
  "on business days at 8am": "0 8 * * 1-5",
  "on weekends at noon": "0 12 * * 0,6",
  "monday to friday at 8:30 am": "30 8 * * 1-5",
  "mon-fri at 8": "0 8 * * 1-5",
  "friday through monday at 8": "0 8 * * 0,1,5,6",
  "every monday, wednesday and friday at 9": "0 9 * * 1,3,5",
  "tue & thu at 10:00": "0 10 * * 2,4",
  weekly: "0 0 * * 0",
  "weekly on monday at 9": "0 9 * * 1",
  "once a week on friday at 17:00": "0 17 * * 5",
  "first day of every month at 8": "0 8 1 * *",
  "first of every month": "0 0 1 * *",
  "on the 1st and 15th of each month at 6": "0 6 1,15 * *",
  "on the 1st at 6": "0 6 1 * *",
  "on day 15 of every month at noon": "0 12 15 * *",
  "last day of every month at 23:00": "0 23 L * *",
  monthly: "0 0 1 * *",
  "monthly on the 15th at 8": "0 8 15 * *",
  "every month on the 31st": "0 0 31 * *",
  "every 3 months": "0 0 1 */3 *",
  "quarterly on the 5th at 7": "0 7 5 */3 *",
  "every january 1st at 9": "0 9 1 1 *",
  "on december 25 at 8": "0 8 25 12 *",
  "on the 1st of january and july at 8": "0 8 1 1,7 *",
  "yearly on march 3rd at 10:15": "15 10 3 3 *",
  "every day in june, july and august at 5": "0 5 * 6-8 *",
  // Chinese
  每5分钟: "*/5 * * * *",
  "每 10 分钟 执行一次": "*/10 * * * *",
  每三十分钟: "*/30 * * * *",
  每分钟: "* * * * *",
  每半小时: "*/30 * * * *",
  每一刻钟: "*/15 * * * *",
  每小时: "0 * * * *",
  每个小时: "0 * * * *",
  每小时第15分钟: "15 * * * *",
  每隔两小时: "0 */2 * * *",
  每6个小时: "0 */6 * * *",
  每天: "0 0 * * *",
  每天早上9点: "0 9 * * *",
  每天上午九点整: "0 9 * * *",
  每天下午3点半: "30 15 * * *",
  每天下午两点一刻: "15 14 * * *",
  每天晚上十点三刻: "45 22 * * *",
  每晚8点: "0 20 * * *",
  "每日8:00": "0 8 * * *",
  "每天２０：３０": "30 20 * * *",
  每天20时: "0 20 * * *",
  每天零点: "0 0 * * *",
  每天凌晨两点二十分: "20 2 * * *",
  每天中午: "0 12 * * *",
  每天中午1点: "0 13 * * *",
  午夜: "0 0 * * *",
  每天早上9点和下午6点: "0 9,18 * * *",
  "每天9点、12点、18点": "0 9,12,18 * * *",
  每天两次: "0 */12 * * *",
  每周一上午10点: "0 10 * * 1",
  每周一十点: "0 10 * * 1",
  每星期天晚上十点: "0 22 * * 0",
  每个礼拜三下午4点: "0 16 * * 3",
  每周一三五早上9点: "0 9 * * 1,3,5",
  "每周一、三、五早上9点": "0 9 * * 1,3,5",
  "每周二和周四15:00": "0 15 * * 2,4",
  "周一到周五18:30": "30 18 * * 1-5",
  周五至周日中午: "0 12 * * 0,5,6",
  工作日晚上8点: "0 20 * * 1-5",
  每个工作日早上8点半: "30 8 * * 1-5",
  周末中午: "0 12 * * 0,6",
  每周: "0 0 * * 0",
  每月1号凌晨2点: "0 2 1 * *",
  每个月十五号上午九点: "0 9 15 * *",
  每月1号和15号9点: "0 9 1,15 * *",
  "每月1、15日9点": "0 9 1,15 * *",
  每月最后一天晚上11点: "0 23 L * *",
  每月: "0 0 1 * *",
  每季度: "0 0 1 */3 *",
  每年1月1日0点: "0 0 1 1 *",
  每年十月一号早上8点: "0 8 1 10 *",
  周一至周五9点到18点每小时: "0 9-18 * * 1-5",
};

const bad: Readonly<Record<string, RegExp>> = {
  "": /empty/,
  "   ": /empty/,
  banana: /“banana” is not understood/,
  every: /not understood/,
  "every day at": /“at” is not understood/,
  "every day except monday": /“except monday”/,
  "tomorrow at 9": /“tomorrow at 9”/,
  "in 5 minutes": /not understood/,
  "sometimes on monday": /not understood/,
  "every day at 9 $(reboot)": /“\$\(”/,
  "@reboot": /start of the server/,
  "@every 5m": /no such word/,
  "* * * *": /4 fields/,
  "0 0 9 * * 1-5": /6 fields/,
  "every 30 seconds": /whole minutes/,
  "every 0 minutes": /no time/,
  "every 7 minutes": /divides 60/,
  "every 45 minutes": /divides 60/,
  "every 90 minutes": /divides 60/,
  "every 5 hours": /divides 24/,
  "every other day": /every 2 days/,
  "every 2 weeks": /every 2 weeks/,
  "every other monday": /every other week/,
  "every 2nd day of the month": /not understood/,
  "every 5 months": /divides 12/,
  "five times a day": /even distances/,
  "daily 9": /“9” is not understood/,
  "daily at 25:00": /25:00 is no time/,
  "daily at 9:60": /9:60 is no time/,
  "daily at 13pm": /13 pm/,
  "daily at 0am": /0 am/,
  "at 9 and 5pm": /am or pm of some/,
  "every morning": /at what time of the morning/,
  "every morning at 20:00": /not|no hour/,
  "every evening at 3": /no hour/,
  "monthly at 8": /which day of the month/,
  "weekly at 9": /which day of the week/,
  "every year at 9": /which day of the year/,
  "first monday of every month": /count a day of the week/,
  "on friday the 13th": /together/,
  "every monday at 9 and friday at 10": /“and friday at 10”/,
  "every day at 9 every day at 10": /in two places/,
  "every day at 9:15 and 17:30": /differ in hour and minute/,
  "every 5 minutes at 9": /how often and at which times/,
  "every hour every day at 9": /how often and at which times/,
  "every 15 minutes from 9 to 17": /last run is at 17:00/,
  "every hour from 17 to 9": /not after/,
  "from 9 to 17": /not how often/,
  "on the 32nd at 9": /no month has a day 32/,
  "every day on monday": /every day and certain days/,
  每隔一天: /may mean/,
  每隔一小时: /may mean/,
  每两天: /every 2 days/,
  每45分钟: /divides 60/,
  每30秒: /whole minutes/,
  每天早上: /not understood/,
  每天早上9点和6点: /which part of the day/,
  每天早上15点: /no hour/,
  每天25点: /25:00 is no time/,
  每天9点15和17点30: /differ in hour and minute/,
  每周两次: /even distances/,
  每周9点: /which day of the week/,
  每月底: /“底” is not understood/,
  每月32号: /no month has a day 32/,
  明天9点: /“明天9点”/,
  每天9点之后: /“之后”/,
  香蕉: /“香蕉”/,
  每周一三五点: /is no number/,
};

describe("phrases that say when", () => {
  for (const [phrase, cron] of Object.entries(good))
    test(`${phrase} is ${cron}`, () => {
      assert.deepEqual(readCronPhrase(phrase), { ok: true, cron });
      assert.ok((cronTimes(cron, "UTC").next(0) ?? 0) > 0, "its times come");
    });

  for (const [phrase, why] of Object.entries(bad))
    test(`${JSON.stringify(phrase)} is refused`, () => {
      const read = readCronPhrase(phrase);
      assert.ok(!read.ok, `it was read as ${JSON.stringify(read)}`);
      assert.match(read.error, why);
      assert.match(read.error, /; write five fields as in .* or “每周一上午10点”$/, "it says what can be written");
    });

  test("long and strange texts are refused in a short sentence", () => {
    const texts = [
      "every ".repeat(100),
      "9".repeat(100),
      "\u0000\u0007 at 9",
      "每".repeat(199),
      ", , ,",
      "and",
      "-".repeat(150),
    ];
    for (const text of texts) {
      const read = readCronPhrase(text);
      assert.ok(!read.ok, text);
      assert.ok(read.error.length < 600, read.error);
    }
  });
});

/** Whether something is to run at a minute, told without cron. */
type Runs = (minute: { readonly date: Date; readonly hour: number; readonly minute: number }) => boolean;

interface Piece {
  readonly text: string;
  readonly runs: Runs;
}

const english = {
  days: [
    { text: "every day", runs: () => true },
    { text: "on weekdays", runs: ({ date }) => date.getUTCDay() >= 1 && date.getUTCDay() <= 5 },
    { text: "every weekend", runs: ({ date }) => date.getUTCDay() % 6 === 0 },
    { text: "on tuesday and sunday", runs: ({ date }) => [2, 0].includes(date.getUTCDay()) },
    { text: "thursday to monday", runs: ({ date }) => ![2, 3].includes(date.getUTCDay()) },
    { text: "on the 1st and 15th of every month", runs: ({ date }) => [1, 15].includes(date.getUTCDate()) },
    {
      text: "on the last day of the month",
      runs: ({ date }) => new Date(date.getTime() + 86_400_000).getUTCDate() === 1,
    },
    { text: "every february 3rd", runs: ({ date }) => date.getUTCMonth() === 1 && date.getUTCDate() === 3 },
  ],
  times: [
    { text: "at 9", runs: ({ hour, minute }) => hour === 9 && minute === 0 },
    { text: "at 12:05 am", runs: ({ hour, minute }) => hour === 0 && minute === 5 },
    { text: "at 7:30pm and 8:30pm", runs: ({ hour, minute }) => (hour === 19 || hour === 20) && minute === 30 },
    { text: "at midnight", runs: ({ hour, minute }) => hour === 0 && minute === 0 },
    { text: "at half past six in the evening", runs: ({ hour, minute }) => hour === 18 && minute === 30 },
  ],
} as const satisfies Record<string, readonly Piece[]>;

const chinese = {
  days: [
    { text: "每天", runs: () => true },
    { text: "工作日", runs: ({ date }) => date.getUTCDay() >= 1 && date.getUTCDay() <= 5 },
    { text: "周末", runs: ({ date }) => date.getUTCDay() % 6 === 0 },
    { text: "每周二和周日", runs: ({ date }) => [2, 0].includes(date.getUTCDay()) },
    { text: "周四到周一", runs: ({ date }) => ![2, 3].includes(date.getUTCDay()) },
    { text: "每月1号和十五号", runs: ({ date }) => [1, 15].includes(date.getUTCDate()) },
    { text: "每年二月3日", runs: ({ date }) => date.getUTCMonth() === 1 && date.getUTCDate() === 3 },
  ],
  times: [
    { text: "九点", runs: ({ hour, minute }) => hour === 9 && minute === 0 },
    { text: "凌晨12点零五分", runs: ({ hour, minute }) => hour === 0 && minute === 5 },
    { text: "晚上7点半和晚上8点半", runs: ({ hour, minute }) => (hour === 19 || hour === 20) && minute === 30 },
    { text: "中午十二点", runs: ({ hour, minute }) => hour === 12 && minute === 0 },
    { text: "下午三点一刻", runs: ({ hour, minute }) => hour === 15 && minute === 15 },
  ],
} as const satisfies Record<string, readonly Piece[]>;

const intervals: readonly (readonly [texts: readonly string[], runs: Runs])[] = [
  [["every 15 minutes", "每15分钟"], ({ minute }) => minute % 15 === 0],
  [["every 4 hours", "每四小时"], ({ hour, minute }) => hour % 4 === 0 && minute === 0],
  [["every hour at minute 40", "每小时第四十分钟"], ({ minute }) => minute === 40],
  [["every hour from 9 to 17", "9点到17点每小时"], ({ hour, minute }) => hour >= 9 && hour <= 17 && minute === 0],
];

describe("the times of a phrase are those that somebody counts who reads it", () => {
  const phrases: Piece[] = [];
  for (const [join, { days, times }] of [
    [" ", english],
    ["", chinese],
  ] as const) {
    for (const day of days) {
      for (const time of times) {
        const runs: Runs = (at) => day.runs(at) && time.runs(at);
        phrases.push({ text: `${day.text}${join}${time.text}`, runs });
        if (join === " ") phrases.push({ text: `${time.text} ${day.text}`, runs });
      }
      for (const [texts, often] of intervals)
        phrases.push({
          text: `${day.text}${join}${texts[join === " " ? 0 : 1]}`,
          runs: (at) => day.runs(at) && often(at),
        });
    }
  }
  // Among them the end of a month, of a year and of a February with 29 days.
  const starts = [Date.UTC(2027, 11, 30, 22, 17), Date.UTC(2028, 1, 27, 5, 0), Date.UTC(2026, 6, 14, 12, 59)];

  test(`${phrases.length} of them`, () => {
    for (const { text, runs } of phrases) {
      const read = readCronPhrase(text);
      assert.ok(read.ok, `${text}: ${read.ok ? "" : read.error}`);
      const times = cronTimes(read.cron, "UTC");
      for (const start of starts) {
        let [expected, found] = [start, start];
        for (let count = 0; count < 3; count++) {
          expected = nextRun(expected, runs);
          found = times.next(found) ?? 0;
          const [left, right] = [new Date(found), new Date(expected)].map((time) => time.toISOString());
          assert.equal(left, right, `${text} (${read.cron}) after ${new Date(start).toISOString()}`);
        }
      }
    }
  });
});

/** The first minute after a time at which something is to run; days on which it never does are passed over whole. */
function nextRun(afterMs: number, runs: Runs): number {
  const dayMs = 86_400_000;
  for (let day = afterMs - (afterMs % dayMs); ; day += dayMs) {
    const date = new Date(day);
    for (let minute = 0; minute < 1440; minute++) {
      const atMs = day + minute * 60_000;
      if (atMs > afterMs && runs({ date, hour: Math.floor(minute / 60), minute: minute % 60 })) return atMs;
    }
  }
}

describe("cron fields in plain English", () => {
  const described: Readonly<Record<string, string>> = {
    "* * * * *": "every minute",
    "*/5 * * * *": "every 5 minutes",
    "*/7 * * * *": "every 7 minutes of each hour",
    "0 * * * *": "every hour",
    "15 */2 * * *": "every 2 hours at minute 15",
    "0 9-17 * * *": "every hour from 09:00 to 17:00",
    "0 9-17/2 * * 1,3": "every 2 hours from 09:00 to 17:00 on Monday and Wednesday",
    "0 9 * * *": "at 09:00 every day",
    "30 9 * * 1-5": "at 09:30 from Monday to Friday",
    "0 9,17 * * 0,6": "at 09:00 and 17:00 on Sunday and Saturday",
    "0 0 * * 7": "at 00:00 on Sunday",
    "0 0 * * mon#2": "at 00:00 on Monday number 2 of the month",
    "0 0 1,15 * *": "at 00:00 on day 1 and 15 of the month",
    "0 23 L * *": "at 23:00 on the last day of the month",
    "0 8 25 12 *": "at 08:00 on day 25 of the month in December",
    "0 0 1 */3 *": "at 00:00 on day 1 of the month in every 3 months from January on",
    "0 0 13 * 5": "at 00:00 on day 13 of the month and on Friday",
    "5-10 * * * *": "at minute 5 to 10 of every hour",
    "* 9 * jun-aug *": "every minute in hour 9 from June to August",
  };
  for (const [cron, text] of Object.entries(described))
    test(`${cron} is ${text}`, () => assert.equal(describeCron(cron), text));

  test("whatever a phrase comes to can be described", () => {
    for (const cron of Object.values(good)) assert.doesNotMatch(describeCron(cron), /undefined|NaN|\*|\//);
  });
});
