/** What became of a text that may have been too long. */
export interface BoundedText {
  readonly text: string;
  /** UTF-8 bytes left out; 0 when the text is whole. */
  readonly cutBytes: number;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const controls = /\r(?!\n)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

/**
 * Makes control characters visible (NUL becomes ␀, ESC becomes ␛) and lone surrogates legal, so that a text cannot steer a
 * terminal or break an encoder. Tabs and line ends stay. The length in UTF-16 units stays the same.
 */
export function harmlessText(text: string): string {
  return text.toWellFormed().replace(controls, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/** A name may hold line ends; they must not look like more names. */
export function oneLine(path: string): string {
  return path.replaceAll("\n", "␊").replaceAll("\r", "␍");
}

/**
 * A text made harmless and at most `limitBytes` of UTF-8 long: of a longer one the first three quarters and the last quarter
 * of the limit are kept, with a note of how many bytes are missing between them. The note comes on top of the limit.
 */
export function boundedText(text: string, limitBytes: number): BoundedText {
  // A text of n units has at most 3n bytes, and its harmless form too.
  if (text.length * 3 <= limitBytes) return { text: harmlessText(text), cutBytes: 0 };
  if (text.length <= limitBytes) {
    const whole = harmlessText(text);
    if (Buffer.byteLength(whole) <= limitBytes) return { text: whole, cutBytes: 0 };
  }
  const tailBytes = Math.floor(limitBytes / 4);
  const headBytes = limitBytes - tailBytes;
  const head = headOf(harmlessText(text.slice(0, headBytes + 1)), headBytes);
  const tail = tailOf(harmlessText(text.slice(Math.max(head.length, text.length - tailBytes - 1))), tailBytes);
  const cutBytes = Buffer.byteLength(text.slice(head.length, text.length - tail.length));
  return { text: `${head}\n[... ${cutBytes} bytes left out ...]\n${tail}`, cutBytes };
}

/** The longest beginning of a well-formed text that is at most `limitBytes` of UTF-8 long. */
function headOf(text: string, limitBytes: number): string {
  if (text.length * 3 <= limitBytes) return text;
  const bytes = Buffer.from(text.slice(0, limitBytes + 1).toWellFormed());
  if (bytes.length <= limitBytes) return text;
  return bytes.toString("utf8", 0, characterStart(bytes, limitBytes));
}

function tailOf(text: string, limitBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= limitBytes) return text;
  let start = bytes.length - limitBytes;
  while (start < bytes.length && isContinuation(bytes[start])) start++;
  return bytes.toString("utf8", start);
}

/** The start of the character that `offset` lies in: where bytes can be cut without halving it. */
export function characterStart(bytes: Uint8Array, offset: number): number {
  let start = offset;
  while (start > 0 && start > offset - 3 && isContinuation(bytes[start])) start--;
  return start;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
