const mostNames = 3;

/** The names somebody may have meant who wrote another one, the nearest first; three at the most. */
export function nearNames(names: readonly string[], wanted: string): readonly string[] {
  return names
    .map((name) => ({ name, distance: editDistance(plain(name), plain(wanted)) }))
    .filter(({ name, distance }) => distance <= Math.max(2, Math.floor(name.length / 4)))
    .sort((left, right) => left.distance - right.distance)
    .slice(0, mostNames)
    .map(({ name }) => name);
}

/** A name without what models get wrong most: case and separators. */
function plain(name: string): string {
  return name.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
}

/** How many characters to insert, remove or change to make one of the other (Levenshtein). */
function editDistance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 0; i < left.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < right.length; j++) {
      const changed = (row[j] ?? 0) + (left[i] === right[j] ? 0 : 1);
      next.push(Math.min(changed, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
