import { harmlessText } from "../tool/bounded-text.ts";

const titleCharacters = 200;
/** They change the order in which the characters around them are shown. */
const bidirectional = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** They take no room, so that a text looks like another one. */
const invisible = /[\u00ad\u180e\u200b-\u200d\u2060-\u2064\ufeff]/g;

/**
 * A text in one line of at most 200 characters, shown as it is: what would steer a terminal, turn the order of characters
 * around or hide is made visible, and of a longer text the line says how much is not shown.
 */
export function shortLine(text: string): string {
  const line = harmlessText(text.replace(/\s+/g, " ").trim())
    .replace(bidirectional, "\ufffd")
    .replace(invisible, "\ufffd");
  if (line.length <= titleCharacters) return line;
  const kept = line.slice(0, titleCharacters).toWellFormed();
  return `${kept} … (${line.length - titleCharacters} more characters)`;
}
