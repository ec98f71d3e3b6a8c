/**
 * Reads stdin to its end.
 * @param what what is read, as the beginning of a sentence: `the prompt`.
 * @throws {Error} one sentence, for more than `limitBytes`.
 */
export async function readStdin(what: string, limitBytes: number): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of process.stdin) {
    const piece = Buffer.from(part);
    bytes += piece.length;
    if (bytes > limitBytes) throw new Error(`${what} on stdin is larger than ${limitBytes} bytes`);
    parts.push(piece);
  }
  return Buffer.concat(parts).toString("utf8");
}
