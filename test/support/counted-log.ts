import assert from "node:assert/strict";
import type { GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { grammarCheck } from "./grammar.ts";

/** What a reader of one session has seen of its log, over any number of streams. */
export interface CountedLog {
  /** The last event seen, to go on after. */
  readonly lastSeq: bigint;
  /** Events that were left out, and events that came again. */
  readonly gaps: number;
  readonly duplicates: number;
  /** How often its streams ended before their turn did. */
  cuts: number;
  /** Turns that were seen to end. */
  readonly turns: number;
  /** @throws {AssertionError} for an event that breaks the grammar of the contract. */
  add(chunk: GenerateChunk): void;
}

/** Reads from the first event of a session; what is missing or repeated is counted and does not throw. */
export function countedLog(): CountedLog {
  const check = grammarCheck(1n);
  let lastSeq = 0n;
  let [gaps, duplicates, turns] = [0, 0, 0];
  return {
    get lastSeq() {
      return lastSeq;
    },
    get gaps() {
      return gaps;
    },
    get duplicates() {
      return duplicates;
    },
    get turns() {
      return turns;
    },
    cuts: 0,
    add(chunk) {
      const { seq, event } = chunk;
      if (seq === 0n) return check.add(chunk);
      if (seq <= lastSeq) {
        duplicates++;
        return;
      }
      gaps += Number(seq - lastSeq - 1n);
      lastSeq = seq;
      if (event.case === "turnFinished") turns++;
      if (gaps === 0) check.add(chunk); // what was left out makes the rest unreadable
    },
  };
}

/** What a loop of blows did and found. Durations are in milliseconds. */
export interface BlowReport {
  /** How often something was killed or frozen. */
  readonly times: number;
  readonly turns: number;
  readonly events: number;
  /** Streams that were cut, by the reader or by a blow. */
  readonly cuts: number;
  readonly gaps: number;
  readonly duplicates: number;
  /** Calls of the changing tool that began, and how often one began again. */
  readonly toolsBegun: number;
  readonly toolsTwice: number;
  /** From a blow to the first event added after it, as its reader saw it. */
  readonly takeoverMs: readonly number[];
}

/** @throws {AssertionError} where something was lost, repeated or done twice, or nothing was done at all. */
export function assertUnharmed(report: BlowReport): void {
  const { gaps, duplicates, toolsTwice } = report;
  assert.deepEqual({ gaps, duplicates, toolsTwice }, { gaps: 0, duplicates: 0, toolsTwice: 0 });
  assert.ok(report.toolsBegun > 0, "tools ran");
  assert.ok(report.turns > 0, "turns ended");
}

/** A report as a line of a table. */
export function tableRow({ takeoverMs, ...counts }: BlowReport) {
  const { p50, max } = spread(takeoverMs);
  const known = takeoverMs.length > 0;
  return { ...counts, "takeover p50 ms": known ? p50 : "-", "takeover max ms": known ? max : "-" };
}

/** The middle and the end of some times, for people. */
export function spread(values: readonly number[]): { readonly p50: number; readonly max: number } {
  const sorted = values.toSorted((left, right) => left - right);
  return { p50: Math.round(sorted[sorted.length >> 1] ?? 0), max: Math.round(sorted.at(-1) ?? 0) };
}
