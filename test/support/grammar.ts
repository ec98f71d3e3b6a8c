import assert from "node:assert/strict";
import type { ContentBlock, GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";

interface OpenTurn {
  readonly turnId: string;
  step: number;
  attempt: number;
  inStep: boolean;
  blockIndex: number;
  block: { readonly index: number; readonly type: string; text: string } | undefined;
  calls: Map<string, "named" | "asked" | "answered" | "started" | "done">;
  /** The calls of the requests that wait for an answer, by the id of the request. */
  requests: Map<string, string>;
  /** In a turn that executes a plan: the last state of each run of a step, by its key. */
  planSteps: Map<string, string> | undefined;
}

/** What the states of a step may be followed by. */
const planStepsAfter: Readonly<Record<string, readonly string[]>> = {
  pending: ["running", "completed", "failed", "skipped", "cancelled", "waiting"],
  waiting: ["running", "completed", "failed", "cancelled"],
  running: ["completed", "failed", "cancelled", "waiting"],
  completed: ["compensating", "compensation_failed"],
  compensating: ["compensated", "compensation_failed"],
};

/**
 * The automaton of the contract's grammar: `turn_started (step_started block* step_finished tool*)* turn_finished`,
 * blocks never interleave, one terminal event, `seq` without a gap, and each `block_stop` is what its deltas add up to. What
 * is asked about a call is asked before it starts, once, and answered before it starts or its turn goes on. A turn that
 * executes a plan has no such steps: its `plan_step` events lead each step from one state to the next.
 * Feed it every chunk of a stream in order, then ask for the end.
 *
 * @param firstSeq the `seq` the first event has to have; by default whatever it has
 */
export function grammarCheck(firstSeq?: bigint) {
  let seq = firstSeq === undefined ? undefined : firstSeq - 1n;
  let turn: OpenTurn | undefined;
  const finished = new Set<string>();

  function inTurn(chunk: GenerateChunk): OpenTurn {
    assert.ok(turn !== undefined, `${chunk.event.case} (seq ${chunk.seq}) outside a turn`);
    assert.equal(chunk.turnId, turn.turnId, `seq ${chunk.seq} belongs to another turn than the one that runs`);
    return turn;
  }

  return {
    add(chunk: GenerateChunk): void {
      const { event } = chunk;
      if (event.case === "streamReady" || event.case === "keepAlive" || event.case === "resync") {
        assert.equal(chunk.seq, 0n, "a control frame has no seq");
        return;
      }
      if (seq !== undefined) assert.equal(chunk.seq, seq + 1n, "seq is contiguous");
      seq = chunk.seq;
      const at = `${event.case} (seq ${chunk.seq})`;
      switch (event.case) {
        case "turnStarted":
          assert.equal(turn, undefined, `${at} inside a turn`);
          assert.ok(!finished.has(chunk.turnId), `${at} of a turn that has finished`);
          turn = {
            turnId: chunk.turnId,
            step: 0,
            attempt: 0,
            inStep: false,
            blockIndex: 0,
            block: undefined,
            calls: new Map(),
            requests: new Map(),
            planSteps: event.value.plan === undefined ? undefined : new Map(),
          };
          return;
        case "stepStarted": {
          const open = inTurn(chunk);
          assert.equal(open.planSteps, undefined, `${at} in a turn that executes a plan`);
          const again = open.inStep && event.value.step === open.step && event.value.attempt === open.attempt + 1;
          const next = !open.inStep && event.value.step === open.step + 1 && event.value.attempt === 1;
          assert.ok(again || next, `${at}: step ${event.value.step} attempt ${event.value.attempt} out of order`);
          for (const [id, state] of open.calls) assert.notEqual(state, "started", `${at} while call ${id} runs`);
          assert.deepEqual([...open.requests.keys()], [], `${at} while requests wait`);
          open.step = event.value.step;
          open.attempt = event.value.attempt;
          open.inStep = true;
          open.block = undefined;
          open.blockIndex = 0;
          open.calls = new Map();
          return;
        }
        case "blockStart": {
          const open = inTurn(chunk);
          assert.ok(open.inStep, `${at} outside a step`);
          assert.equal(open.block, undefined, `${at} while a block is open`);
          assert.equal(event.value.index, open.blockIndex, `${at}: index`);
          open.block = { index: event.value.index, type: event.value.type, text: "" };
          if (event.value.type === "tool_use") {
            assert.ok(!open.calls.has(event.value.id), `${at}: call id ${event.value.id} twice in one answer`);
            open.calls.set(event.value.id, "named");
          }
          return;
        }
        case "blockDelta": {
          const open = inTurn(chunk);
          assert.equal(event.value.index, open.block?.index, `${at}: not the open block`);
          assert.ok(event.value.delta.value?.isWellFormed(), `${at}: half a surrogate pair`);
          if (open.block !== undefined && event.value.delta.case !== "signature")
            open.block.text += event.value.delta.value;
          return;
        }
        case "blockStop": {
          const open = inTurn(chunk);
          assert.equal(event.value.index, open.block?.index, `${at}: not the open block`);
          const { type, text } = wholeBlock(event.value.block);
          assert.equal(type, open.block?.type, `${at}: type`);
          if (text !== undefined) assert.equal(text, open.block?.text, `${at}: not what its deltas add up to`);
          open.block = undefined;
          open.blockIndex++;
          return;
        }
        case "stepFinished": {
          const open = inTurn(chunk);
          assert.ok(open.inStep && open.block === undefined, `${at} outside a step or inside a block`);
          open.inStep = false;
          return;
        }
        case "toolStarted": {
          const open = inTurn(chunk);
          assert.ok(!open.inStep, `${at} inside a step`);
          const state = open.calls.get(event.value.toolCallId);
          assert.ok(
            state === "named" || state === "answered",
            `${at}: not a call of this answer, or begun twice, or not yet approved`,
          );
          open.calls.set(event.value.toolCallId, "started");
          return;
        }
        case "toolOutput": {
          const { planSteps } = inTurn(chunk);
          if (planSteps !== undefined) {
            const state = planSteps.get(event.value.toolCallId.replace(/^undo:/, ""));
            assert.ok(state === "running" || state === "compensating", `${at}: the step does not run`);
            return;
          }
          assert.equal(inTurn(chunk).calls.get(event.value.toolCallId), "started", `${at}: the tool does not run`);
          return;
        }
        case "toolFinished": {
          const open = inTurn(chunk);
          assert.equal(open.calls.get(event.value.toolCallId), "started", `${at}: the tool was not started`);
          open.calls.set(event.value.toolCallId, "done");
          return;
        }
        case "turnFinished": {
          const open = inTurn(chunk);
          assert.ok(!open.inStep, `${at} inside a step`);
          for (const [id, state] of open.calls) assert.notEqual(state, "started", `${at} while call ${id} runs`);
          assert.deepEqual([...open.requests.keys()], [], `${at} while requests wait`);
          for (const [key, state] of open.planSteps ?? [])
            assert.ok(!["running", "waiting", "compensating"].includes(state), `${at} while step ${key} is ${state}`);
          assert.equal(
            open.planSteps === undefined,
            event.value.plan === undefined,
            `${at}: an outcome of no plan, or none`,
          );
          finished.add(open.turnId);
          turn = undefined;
          return;
        }
        case "requestOpened": {
          const open = inTurn(chunk);
          const { requestId = "", toolCallId = "", kind, sessionId, turnId } = event.value.request ?? {};
          assert.ok(!open.inStep, `${at} inside a step`);
          assert.deepEqual([sessionId, turnId], [chunk.sessionId, chunk.turnId], `${at}: of another place`);
          assert.ok(["approval", "question", "client_tool"].includes(kind ?? ""), `${at}: kind ${kind}`);
          assert.ok(requestId !== "" && !open.requests.has(requestId), `${at}: no id, or one that waits`);
          if (open.planSteps !== undefined) {
            assert.ok(![...open.requests.values()].includes(toolCallId), `${at}: asked twice`);
            open.requests.set(requestId, toolCallId);
            return;
          }
          // What was allowed is asked for again when what it would run has changed meanwhile.
          assert.ok(
            ["named", "answered"].includes(open.calls.get(toolCallId) ?? ""),
            `${at}: not a call of this answer, or asked twice, or begun`,
          );
          open.calls.set(toolCallId, "asked");
          open.requests.set(requestId, toolCallId);
          return;
        }
        case "requestResolved": {
          const open = inTurn(chunk);
          const toolCallId = open.requests.get(event.value.requestId);
          assert.ok(toolCallId !== undefined, `${at}: no request ${event.value.requestId} waits`);
          open.calls.set(toolCallId, "answered");
          open.requests.delete(event.value.requestId);
          return;
        }
        case "planStep": {
          const { planSteps } = inTurn(chunk);
          assert.ok(planSteps !== undefined, `${at} in a turn that executes no plan`);
          const { stepId, itemPath, state } = event.value;
          const key = itemPath.length === 0 ? stepId : `${stepId}[${itemPath.join()}]`;
          const before = planSteps.get(key) ?? "pending";
          assert.ok(planStepsAfter[before]?.includes(state), `${at}: step ${key} from ${before} to ${state}`);
          planSteps.set(key, state);
          return;
        }
        case "historyCompacted":
        case "toolsChanged":
        case "notice":
          return;
        case undefined:
          assert.fail(`seq ${chunk.seq} has no event`);
          return;
        default:
          event satisfies never;
      }
    },
    /** The stream has ended: every turn that began has finished. */
    end(): void {
      assert.equal(turn, undefined, "the stream ended inside a turn");
    },
    /** The turns that finished, in order. */
    get turns(): readonly string[] {
      return [...finished];
    },
  };
}

function wholeBlock(block: ContentBlock | undefined): { type: string; text: string | undefined } {
  const inner = block?.block;
  switch (inner?.case) {
    case "text":
      return { type: "text", text: inner.value.text };
    case "thinking":
      return { type: "thinking", text: inner.value.thinking };
    case "toolUse":
      return { type: "tool_use", text: inner.value.input };
    case "reasoning":
      return { type: "reasoning", text: undefined };
    case "redactedThinking":
      return { type: "redacted_thinking", text: undefined };
    case "toolResult":
      return { type: "tool_result", text: undefined };
    default:
      return { type: inner?.case ?? "none", text: undefined };
  }
}

/** Reads a stream to its end through the automaton and returns its events. */
export async function collect(chunks: AsyncIterable<GenerateChunk>, firstSeq?: bigint): Promise<GenerateChunk[]> {
  const check = grammarCheck(firstSeq);
  const all: GenerateChunk[] = [];
  for await (const chunk of chunks) {
    check.add(chunk);
    all.push(chunk);
  }
  check.end();
  return all;
}
