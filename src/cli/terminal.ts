import { styleText } from "node:util";

/** Somebody who reads: a terminal, a file, a test. */
export interface Page {
  /** Writes text, with what could steer a terminal made visible. */
  write(text: string, style?: Style): void;
  /** Begins a new line, unless one has just begun. */
  endLine(): void;
}
export type Style = "dim" | "bold" | "red" | "cyan";

/** Control characters but tab and line feed, and those that turn the direction of what follows. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

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
      const shown = text.replaceAll("\r\n", "\n").replace(steering, "\u{fffd}");
      write(style === undefined ? shown : styled(shown, style));
      atLineStart = shown.endsWith("\n");
    },
    endLine() {
      if (!atLineStart) write("\n");
      atLineStart = true;
    },
  };
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
