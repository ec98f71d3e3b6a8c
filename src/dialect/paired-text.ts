/** Keeps surrogate pairs whole: half a pair at the end of a delta waits for the next one of its block. */
export function pairedText(): { add(index: number, text: string): string } {
  const halves = new Map<number, string>();
  return {
    add(index, text) {
      const joined = (halves.get(index) ?? "") + text;
      halves.delete(index);
      const lastUnit = joined.charCodeAt(joined.length - 1);
      if (lastUnit < 0xd800 || lastUnit > 0xdbff) return joined.toWellFormed();
      halves.set(index, joined.slice(-1));
      return joined.slice(0, -1).toWellFormed();
    },
  };
}
