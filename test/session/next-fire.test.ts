import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { cronTimes, dueTimes, mostMisfires } from "../../src/session/next-fire.ts";

const at = (time: string) => Date.parse(time);
const minuteMs = 60_000;

/** The first times after one, as `MM-DDTHH:MM` in UTC. */
function timesAfter(cron: string, timeZone: string, after: string, count: number): string[] {
  const times = cronTimes(cron, timeZone);
  const found: string[] = [];
  let last: number | undefined = at(after);
  while (found.length < count) {
    last = times.next(last);
    if (last === undefined) break;
    found.push(new Date(last).toISOString().slice(5, 16));
  }
  return found;
}

describe("when a schedule runs", () => {
  const cases = [
    { name: "UTC", cron: "0 9 * * 1-5", zone: "UTC", after: "2026-01-02T09:00:00Z", times: ["01-05T09:00"] },
    { name: "a minute", cron: "* * * * *", zone: "UTC", after: "2026-01-02T09:00:30Z", times: ["01-02T09:01"] },
    { name: "a zone", cron: "0 9 * * *", zone: "Asia/Tokyo", after: "2026-01-02T09:00:00Z", times: ["01-03T00:00"] },
    {
      name: "winter and summer: nine o'clock stays nine o'clock",
      cron: "0 9 * * *",
      zone: "Europe/Zurich",
      after: "2026-03-27T12:00:00Z",
      times: ["03-28T08:00", "03-29T07:00", "03-30T07:00"],
    },
    {
      name: "a time that the change in March skips comes right after it",
      cron: "30 2 * * *",
      zone: "Europe/Zurich",
      after: "2026-03-28T12:00:00Z",
      times: ["03-29T01:00", "03-30T00:30"],
    },
    {
      name: "a time that comes twice in October is run the first time",
      cron: "30 2 * * *",
      zone: "Europe/Zurich",
      after: "2026-10-24T12:00:00Z",
      times: ["10-25T00:30", "10-26T01:30"],
    },
    {
      name: "lists of times that come twice are run the first time",
      cron: "0,30 2-3 * * *",
      zone: "Europe/Zurich",
      after: "2026-10-24T12:00:00Z",
      times: ["10-25T00:00", "10-25T00:30", "10-25T02:00", "10-25T02:30"],
    },
    {
      name: "every half hour goes on through the hour that comes twice",
      cron: "*/30 * * * *",
      zone: "Europe/Zurich",
      after: "2026-10-24T23:30:00Z",
      times: ["10-25T00:00", "10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"],
    },
    {
      name: "every half hour goes on over the hour that is skipped",
      cron: "*/30 * * * *",
      zone: "Europe/Zurich",
      after: "2026-03-29T00:30:00Z",
      times: ["03-29T01:00", "03-29T01:30"],
    },
    { name: "a leap day", cron: "0 0 29 2 *", zone: "UTC", after: "2026-01-01T00:00:00Z", times: ["02-29T00:00"] },
    { name: "a day that never comes", cron: "0 0 30 2 *", zone: "UTC", after: "2026-01-01T00:00:00Z", times: [] },
  ];
  for (const { name, cron, zone, after, times } of cases) {
    test(name, () => assert.deepEqual(timesAfter(cron, zone, after, Math.max(1, times.length)), times));
  }

  test("looking back finds the times that looking forward finds, over both changes of the clock", () => {
    for (const cron of ["30 2 * * *", "0,30 2-3 * * *", "*/20 * * * *", "0 * * * *", "15 1-3/1 * * *"]) {
      for (const from of ["2026-03-28T22:00:00Z", "2026-10-24T22:00:00Z"]) {
        const times = cronTimes(cron, "Europe/Zurich");
        const until = at(from) + 30 * 60 * minuteMs;
        const forward: number[] = [];
        for (let time = times.next(at(from)); time !== undefined && time <= until; time = times.next(time))
          forward.push(time);
        assert.ok(forward.length > 0);
        assert.deepEqual(times.last(forward.length, until), forward, `${cron} from ${from}`);
      }
    }
  });

  const bad = [
    { name: "nothing", cron: "", zone: "UTC", message: /^cron: has 0 fields/ },
    { name: "seconds", cron: "* * * * * *", zone: "UTC", message: /^cron: has 6 fields/ },
    { name: "a nickname", cron: "@daily", zone: "UTC", message: /^cron: has 1 field;/ },
    { name: "minute 61", cron: "61 * * * *", zone: "UTC", message: /field 1, the minute, is "61"/ },
    { name: "month 13", cron: "5 4 * 13 *", zone: "UTC", message: /field 4, the month, is "13"/ },
    { name: "words", cron: "0 0 * * someday", zone: "UTC", message: /field 5, the day of the week, is "someday"/ },
    { name: "steps of nothing", cron: "*/0 * * * *", zone: "UTC", message: /field 1, the minute/ },
    { name: "any minute", cron: "? * * * *", zone: "UTC", message: /field 1, the minute/ },
    { name: "an unknown zone", cron: "0 0 * * *", zone: "Mars/Olympus", message: /^time_zone: is "Mars\/Olympus"/ },
    { name: "an offset", cron: "0 0 * * *", zone: "+02:00", message: /^time_zone:/ },
  ];
  for (const { name, cron, zone, message } of bad) {
    test(`refused: ${name}`, () => {
      assert.throws(
        () => cronTimes(cron, zone),
        (error) => error instanceof AgentError && error.kind === "invalid_request" && message.test(error.message),
      );
    });
  }
});

describe("what is due", () => {
  const hourly = cronTimes("0 * * * *", "UTC");
  const shown = (seen: string, now: string, policy: "one" | "all" | "none") => {
    const { runs, nextMs } = dueTimes(hourly, at(seen), at(now), policy);
    const times = runs.map(({ timeMs, missed }) => `${new Date(timeMs).getUTCHours()}${missed ? " missed" : ""}`);
    return `${times.join(", ")} then ${new Date(nextMs ?? 0).getUTCHours()}`;
  };
  const seen = "2026-01-01T10:00:00Z";
  const cases = [
    ["on time, whatever the policy", "2026-01-01T10:00:00.500Z", "10 then 11", "10 then 11", "10 then 11"],
    ["a little late", "2026-01-01T10:00:59.999Z", "10 then 11", "10 then 11", "10 then 11"],
    ["too late", "2026-01-01T10:01:00Z", "10 missed then 11", "10 missed then 11", " then 11"],
    [
      "after some hours",
      "2026-01-01T12:30:00Z",
      "12 missed then 13",
      "10 missed, 11 missed, 12 missed then 13",
      " then 13",
    ],
    ["back at a time", "2026-01-01T12:00:05Z", "12 then 13", "10 missed, 11 missed, 12 then 13", "12 then 13"],
  ] as const;
  for (const [name, now, one, all, none] of cases) {
    test(name, () => {
      assert.deepEqual([shown(seen, now, "one"), shown(seen, now, "all"), shown(seen, now, "none")], [one, all, none]);
    });
  }

  test("`all` makes up for a bounded number of times, the last ones", () => {
    const times = cronTimes("* * * * *", "UTC");
    const now = at("2026-06-01T00:00:10Z");
    const { runs } = dueTimes(times, at(seen), now, "all");
    assert.equal(runs.length, mostMisfires);
    assert.equal(runs.at(-1)?.timeMs, at("2026-06-01T00:00:00Z"));
    assert.equal(runs[0]?.timeMs, at("2026-06-01T00:00:00Z") - (mostMisfires - 1) * minuteMs);
  });
});
