const titleCharacters = 200;

/** A text in one line, cut where it is long. */
export function shortLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  if (line.length <= titleCharacters) return line;
  const kept = line.slice(0, titleCharacters).toWellFormed();
  return `${kept} … (${line.length - titleCharacters} more characters)`;
}
