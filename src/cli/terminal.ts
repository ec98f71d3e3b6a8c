import { styleText } from "node:util";
import type { JsonValue } from "@bufbuild/protobuf";

/** Somebody who reads: a terminal, a file, a test. */
export interface Page {
  /** Writes text, with what could steer a terminal made visible. */
  write(text: string, style?: Style): void;
  /** Begins a new line, unless one has just begun. */
  endLine(): void;
}
export type Style = "dim" | "bold" | "red" | "cyan";

/** Waits until a reader who is slower than we are has taken what was written, or is gone. */
export async function whenWritable(stream: NodeJS.WriteStream): Promise<void> {
  if (!stream.writableNeedDrain || stream.destroyed) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  stream.once("drain", resolve).once("close", resolve);
  await promise;
  stream.off("drain", resolve).off("close", resolve);
}

/** Waits until all that was written is out of this process, or nobody is there to take it. */
export async function written(stream: NodeJS.WriteStream): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  stream.write("", () => resolve());
  await promise;
}

/** Control characters but tab and line feed, and those that turn the direction of what follows. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A text with what could steer a terminal made visible. */
export function withoutSteering(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(steering, "\u{fffd}");
}

/** A page on a stream; styled where the stream is a terminal that wants it. */
export function pageOn(stream: NodeJS.WriteStream): Page {
  return createPage(
    (text) => void stream.write(text),
    (text, style) => styleText(style, text, { stream }),
  );
}

export function createPage(
  write: (text: string) => void,
  styled: (text: string, style: Style) => string = (text) => text,
): Page {
  let atLineStart = true;
  return {
    write(text, style) {
      if (text === "") return;
      const shown = withoutSteering(text);
      write(style === undefined ? shown : styled(shown, style));
      atLineStart = shown.endsWith("\n");
    },
    endLine() {
      if (!atLineStart) write("\n");
      atLineStart = true;
    },
  };
}

/** A value as JSON on a line of its own; what could steer a terminal is escaped, so that nothing of it is lost. */
export function jsonLine(value: JsonValue): string {
  const escaped = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `${JSON.stringify(value).replace(steering, escaped)}\n`;
}

/** A text of a stranger as it is, line ends and what has no width made visible, so that nothing of it hides. */
export function shownWhole(text: string): string {
  return text.replace(
    /[\r\n\u00ad\u115f\u1160\u2000-\u200d\u2028\u2029\u2060-\u2064\u3000\u3164\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Text on one line, with its end cut off where it is longer than `most` characters. */
export function oneLine(text: string, most: number): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= most
    ? line
    : `${line
        .slice(0, most - 1)
        .toWellFormed()
        .replace(/\u{fffd}$/u, "")}…`;
}
