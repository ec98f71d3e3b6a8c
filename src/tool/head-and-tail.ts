import { characterStart, harmlessText } from "./bounded-text.ts";

const noteBytes = 64;

/**
 * Collects a text of any length in bounded memory: of a long one the first three quarters and the last quarter of the limit
 * are kept, and a line between them says how much is missing. Control characters are made visible.
 */
export class HeadAndTail {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  #head = "";
  #headSize = 0;
  #isHeadFull = false;
  /** What came after the head, as it came: the last `#tailBytes` of it at least, from 0 to `#tailEnd`. */
  #tail: Buffer | undefined;
  #tailEnd = 0;
  #afterHead = 0;

  /** @param limitBytes what `text` holds at most, in bytes of UTF-8, its note included; at least 256. */
  constructor(limitBytes: number) {
    this.#tailBytes = Math.floor((limitBytes - noteBytes) / 4);
    this.#headBytes = limitBytes - noteBytes - this.#tailBytes;
  }

  /**
   * Adds a piece, in UTF-8 and whole characters; it is copied.
   * @returns the part of it that belongs to the head, made harmless: what is worth showing while it comes.
   */
  add(piece: Buffer): string {
    if (this.#isHeadFull) {
      this.#addToTail(piece);
      return "";
    }
    // What is harmless has as many UTF-16 units as what it was made of, and at least as many bytes.
    const raw = piece.toString("utf8");
    const bytes = Buffer.from(harmlessText(raw));
    const cut =
      this.#headSize + bytes.length <= this.#headBytes
        ? bytes.length
        : characterStart(bytes, this.#headBytes - this.#headSize);
    const fitting = bytes.toString("utf8", 0, cut);
    this.#head += fitting;
    this.#headSize += cut;
    if (cut < bytes.length) {
      this.#isHeadFull = true;
      this.#addToTail(Buffer.from(raw.slice(fitting.length)));
    }
    return fitting;
  }

  /** Bytes that `text` leaves out. */
  get cutBytes(): number {
    return this.#kept().cutBytes;
  }

  text(): string {
    const { tail, cutBytes } = this.#kept();
    return this.#head + (cutBytes === 0 ? "" : `\n[... ${cutBytes} bytes left out ...]\n`) + tail;
  }

  #addToTail(bytes: Buffer): void {
    this.#afterHead += bytes.length;
    this.#tail ??= Buffer.allocUnsafe(3 * this.#tailBytes);
    const buffer = this.#tail;
    const wanted = bytes.subarray(Math.max(0, bytes.length - this.#tailBytes));
    if (this.#tailEnd + wanted.length > buffer.length) {
      buffer.copyWithin(0, this.#tailEnd - this.#tailBytes, this.#tailEnd);
      this.#tailEnd = this.#tailBytes;
    }
    wanted.copy(buffer, this.#tailEnd);
    this.#tailEnd += wanted.length;
  }

  /** Only here the tail is made harmless, and shorter again where that made it longer: most of what comes is not kept. */
  #kept(): { tail: string; cutBytes: number } {
    if (this.#tail === undefined) return { tail: "", cutBytes: 0 };
    const raw = this.#tail.toString("utf8", characterAfter(this.#tail, this.#tailEnd - this.#tailBytes), this.#tailEnd);
    const bytes = Buffer.from(harmlessText(raw));
    const tail = bytes.toString("utf8", characterAfter(bytes, bytes.length - this.#tailBytes));
    const keptBytes = Buffer.byteLength(raw.slice(raw.length - tail.length));
    return { tail, cutBytes: this.#afterHead - keptBytes };
  }
}

/** The start of the first whole character from `offset` on; 0 where that lies before the beginning. */
function characterAfter(bytes: Uint8Array, offset: number): number {
  let start = Math.max(0, offset);
  while (start < bytes.length && ((bytes[start] ?? 0) & 0xc0) === 0x80) start++;
  return start;
}
