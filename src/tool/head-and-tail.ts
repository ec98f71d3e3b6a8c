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
  /** What came after the head: the last `#tailBytes` of it at least, from 0 to `#tailEnd`. */
  #tail: Buffer | undefined;
  #tailEnd = 0;
  #afterHead = 0;

  /** @param limitBytes what `text` holds at most, in bytes of UTF-8, its note included; at least 256. */
  constructor(limitBytes: number) {
    this.#tailBytes = Math.floor((limitBytes - noteBytes) / 4);
    this.#headBytes = limitBytes - noteBytes - this.#tailBytes;
  }

  /** Adds a piece. @returns the part of it that belongs to the head, made harmless: what is worth showing while it comes. */
  add(piece: string): string {
    const text = harmlessText(piece);
    if (this.#isHeadFull) {
      this.#addToTail(Buffer.from(text));
      return "";
    }
    const size = Buffer.byteLength(text);
    if (this.#headSize + size <= this.#headBytes) {
      this.#head += text;
      this.#headSize += size;
      return text;
    }
    const bytes = Buffer.from(text);
    const cut = characterStart(bytes, this.#headBytes - this.#headSize);
    const fitting = bytes.toString("utf8", 0, cut);
    this.#head += fitting;
    this.#headSize += cut;
    this.#isHeadFull = true;
    this.#addToTail(bytes.subarray(cut));
    return fitting;
  }

  /** Bytes that `text` leaves out. */
  get cutBytes(): number {
    return this.#afterHead - this.#keptTail().length;
  }

  text(): string {
    const tail = this.#keptTail();
    const cutBytes = this.#afterHead - tail.length;
    const note = cutBytes === 0 ? "" : `\n[... ${cutBytes} bytes left out ...]\n`;
    return this.#head + note + tail.toString("utf8");
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

  #keptTail(): Buffer {
    if (this.#tail === undefined) return Buffer.alloc(0);
    let start = Math.max(0, this.#tailEnd - this.#tailBytes);
    while (start < this.#tailEnd && ((this.#tail[start] ?? 0) & 0xc0) === 0x80) start++;
    return this.#tail.subarray(start, this.#tailEnd);
  }
}
