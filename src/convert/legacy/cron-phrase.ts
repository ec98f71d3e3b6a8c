import { readChinese } from "./chinese-cron.ts";
import { CronPhraseError, cronFromWish } from "./cron-wish.ts";
import { readEnglish } from "./english-cron.ts";

/** What a phrase is as five cron fields, or in a sentence why it is none. */
type CronPhrase = { readonly ok: true; readonly cron: string } | { readonly ok: false; readonly error: string };

const maxCharacters = 200;

/** Words that cron programs know. */
const macros: Readonly<Record<string, string>> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};

const examples =
  "write five fields as in 0 9 * * 1-5, a word such as @daily, or a phrase such as “every 15 minutes”, “weekdays at 9:30” or “每周一上午10点”";
const field = /^(?:\*|\d+|[a-z]{3}|l)(?:[-/,*\d#lw]|[a-z]{3})*$/;

/**
 * Reads when something is to run: five cron fields, a word such as `@daily`, or a phrase in English or Chinese. Hours without
 * am and pm count from 0 to 23; days without a time mean midnight. What is not understood in full is refused, never guessed,
 * and so is what five fields can't say.
 * @returns fields that a cron reader has still to check where they were fields already
 */
export function readCronPhrase(text: string): CronPhrase {
  const plain = text.normalize("NFKC").toLowerCase().replaceAll(/\s+/g, " ").trim();
  const refused = (why: string): CronPhrase => ({ ok: false, error: `${shown(text)}: ${why}; ${examples}` });
  if (plain === "") return { ok: false, error: `it is empty; ${examples}` };
  if (plain.length > maxCharacters)
    return { ok: false, error: `it has ${plain.length} characters; ${maxCharacters} is the most; ${examples}` };
  if (plain.startsWith("@")) {
    if (Object.hasOwn(macros, plain)) return { ok: true, cron: macros[plain] ?? "" };
    return refused(plain === "@reboot" ? "a start of the server is no time" : "there is no such word");
  }
  const fields = plain.split(" ");
  if (fields.length > 1 && fields.every((each) => field.test(each)) && /[\d*]/.test(fields[0] ?? "")) {
    if (fields.length === 5) return { ok: true, cron: plain };
    return refused(
      `it has ${fields.length} fields where five are wanted: minute, hour, day of the month, month, weekday`,
    );
  }
  try {
    return { ok: true, cron: cronFromWish(/\p{Script=Han}/u.test(plain) ? readChinese(plain) : readEnglish(plain)) };
  } catch (error) {
    if (error instanceof CronPhraseError) return refused(error.message);
    throw error;
  }
}

function shown(text: string): string {
  const line = text.replaceAll(/[\p{Cc}\p{Cf}\s]+/gu, " ").trim();
  return `“${line.length > 80 ? `${line.slice(0, 80)}…` : line}”`;
}
