import { readFileSync, statSync } from "node:fs";

const headerBytes = 32;
const frameHeaderBytes = 24;
/** A journal is checkpointed at about 4 MB; one far larger than that is not looked at. */
const checkedBytes = 256 * 1024 * 1024;

/** Size of a file; 0 when it is not there. */
export function fileBytes(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/**
 * Looks for commits in a write-ahead log that SQLite will pass over in silence, because something before them can't be
 * read. What an earlier use of the file left behind its end is no damage.
 * @returns what was found, in words for the operator
 */
export function findWalDamage(path: string): string | undefined {
  const size = fileBytes(path);
  if (size === 0 || size > checkedBytes) return undefined;
  const wal = readFileSync(path);
  const view = new DataView(wal.buffer, wal.byteOffset, wal.byteLength);
  if (size < headerBytes) return `its journal is cut to ${size} bytes`;
  const magic = view.getUint32(0);
  const littleEndian = magic === 0x377f0682;
  const sum = checksum(view, 0, 24, littleEndian, [0, 0]);
  if ((!littleEndian && magic !== 0x377f0683) || sum[0] !== view.getUint32(24) || sum[1] !== view.getUint32(28)) {
    return `the beginning of its journal (${size} bytes) can't be read`;
  }
  const frameBytes = frameHeaderBytes + view.getUint32(8);
  const ours = (at: number) =>
    view.getUint32(at + 8) === view.getUint32(16) && view.getUint32(at + 12) === view.getUint32(20);
  let at = headerBytes;
  let before = sum;
  for (; at + frameBytes <= size && ours(at); at += frameBytes) {
    const head = checksum(view, at, 8, littleEndian, before);
    before = checksum(view, at + frameHeaderBytes, frameBytes - frameHeaderBytes, littleEndian, head);
    if (before[0] !== view.getUint32(at + 16) || before[1] !== view.getUint32(at + 20)) break;
  }
  let unread = 0;
  let last = at;
  // A frame that ends a commit says how large the database is then; others may be what a transaction undone left behind.
  for (; last + frameBytes <= size; last += frameBytes) if (ours(last) && view.getUint32(last + 4) > 0) unread++;
  // Part of a page at its end is a write that a kill cut short, before it was acknowledged.
  return unread > 0 ? `${unread} commits in its journal can't be read` : undefined;
}

/** SQLite's sum over 32-bit words, which goes on from the one before. */
function checksum(
  view: DataView,
  from: number,
  length: number,
  littleEndian: boolean,
  [first, second]: readonly [number, number],
): readonly [number, number] {
  let one = first;
  let two = second;
  for (let at = from; at + 8 <= from + length; at += 8) {
    one = (one + view.getUint32(at, littleEndian) + two) >>> 0;
    two = (two + view.getUint32(at + 4, littleEndian) + one) >>> 0;
  }
  return [one, two];
}
