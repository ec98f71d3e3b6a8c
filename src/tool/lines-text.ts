const linesNamed = 10;

/** Numbers of lines for people: `line 4`, `lines 4, 9 and 12`, `lines 4 to 6`; of many the first ten. */
export function linesText(numbers: readonly number[]): string {
  const lines = [...new Set(numbers)];
  const [first = 0] = lines;
  const last = lines.at(-1) ?? first;
  if (lines.length === 1) return `line ${first}`;
  if (lines.length > 2 && last - first === lines.length - 1) return `lines ${first} to ${last}`;
  if (lines.length > linesNamed) {
    return `lines ${lines.slice(0, linesNamed).join(", ")} and ${lines.length - linesNamed} more`;
  }
  return `lines ${lines.slice(0, -1).join(", ")} and ${last}`;
}
