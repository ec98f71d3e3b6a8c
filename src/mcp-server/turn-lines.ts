import type { GenerateChunk } from "../../sdk/proto.ts";
import { oneLine, shownWhole } from "../cli/terminal.ts";
import { harmlessText } from "../tool/bounded-text.ts";

const lineCharacters = 160;
const textEveryMs = 300;
const silenceMs = 15_000;

/**
 * Tells of a turn as it goes, in short lines: which model is asked, which tools run and how they end, who is waited for,
 * and the line of the answer that is being written, a few times a second at the most. After 15 s of silence the last line
 * is said again, so that whoever waits knows that the turn goes on. Close it.
 */
export class TurnLines {
  readonly #say: (line: string) => void;
  readonly #now: () => number;
  readonly #timer: NodeJS.Timeout;
  #text = "";
  #textSaidMs = Number.NEGATIVE_INFINITY;
  #last = "the turn begins";

  /** @param now milliseconds of any clock that goes evenly */
  constructor(say: (line: string) => void, now: () => number = () => performance.now()) {
    this.#say = say;
    this.#now = now;
    this.#timer = setInterval(() => say(this.#last), silenceMs).unref();
  }

  add({ event }: GenerateChunk): void {
    switch (event.case) {
      case "stepStarted":
        this.#text = "";
        this.#line(`asking ${event.value.provider}/${event.value.model}`);
        return;
      case "blockDelta":
        if (event.value.delta.case === "text") this.#write(event.value.delta.value);
        return;
      case "blockStop": {
        const block = event.value.block?.block;
        this.#text = "";
        if (block?.case === "text") this.#line(block.value.text);
        else if (block?.case === "toolUse") this.#line(`→ ${block.value.name} ${block.value.input}`);
        return;
      }
      case "toolFinished": {
        const { name, result } = event.value;
        const took = `${result?.durationMs ?? 0n} ms`;
        this.#line(result?.success === true ? `← ${name}, ${took}` : `← ${name}: ${result?.error || "failed"}`);
        return;
      }
      case "requestOpened":
        this.#line(`waits for an answer: ${event.value.request?.title ?? ""}`);
        return;
      case "requestResolved":
        this.#line(event.value.decision);
        return;
      case "historyCompacted":
        this.#line(`${event.value.droppedMessages} old messages were replaced by a summary`);
        return;
      case "notice":
        this.#line(event.value.message);
        return;
      default:
        return;
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #write(piece: string): void {
    this.#text = (this.#text + piece).split("\n").at(-1) ?? "";
    if (this.#text.length > 2 * lineCharacters) this.#text = this.#text.slice(-lineCharacters);
    if (this.#now() - this.#textSaidMs < textEveryMs || this.#text.trim() === "") return;
    this.#textSaidMs = this.#now();
    this.#line(this.#text.slice(-lineCharacters));
  }

  #line(text: string): void {
    const line = oneLine(
      shownWhole(harmlessText(text.slice(0, 8 * lineCharacters))).replaceAll("\\u000a", " "),
      lineCharacters,
    );
    if (line === "") return;
    this.#last = line;
    this.#timer.refresh();
    this.#say(line);
  }
}
