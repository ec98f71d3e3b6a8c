import type { PlanStepChanged } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { Plan, PlanEvent, PlanFinished, PlanStep } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { planTree, type TreeLine, withStepsWithin } from "./plan-tree.ts";
import { createPage, oneLine, type Page, type Style, withoutSteering } from "./terminal.ts";
import { usageText } from "./turn-printer.ts";

/** Shows an execution as it goes. */
export interface PlanView {
  /** Takes the next event. */
  add(event: PlanEvent): void;
  /** Where a person is asked something; what goes on meanwhile is shown afterwards. */
  ask<Answer>(question: (page: Page) => Promise<Answer>): Promise<Answer>;
  /** Leaves what is to stay. */
  close(): void;
}

interface Instance {
  readonly stepId: string;
  readonly itemPath: readonly number[];
  state: string;
  lastOutput: string;
}

const marks: Readonly<Record<string, string>> = {
  pending: "·",
  running: "▸",
  waiting: "?",
  completed: "✓",
  failed: "✗",
  skipped: "–",
  cancelled: "■",
  compensating: "↺",
  compensated: "↺",
  compensation_failed: "✗",
};
const endedStates = ["completed", "failed", "skipped", "cancelled", "compensated", "compensation_failed"];
const outputCharacters = 400;
const barCells = 20;
const redrawMs = 80;

/** What the events of an execution add up to, for people. */
class Progress {
  readonly tree: readonly TreeLine[];
  readonly #steps: ReadonlyMap<string, PlanStep>;
  readonly #instances = new Map<string, Instance>();
  /** As the server counts them, where it has said so. */
  #counted: { readonly finished: number; readonly total: number } | undefined;
  #tokens = "";

  constructor({ steps }: Pick<Plan, "steps">) {
    this.tree = planTree(steps);
    this.#steps = new Map(steps.flatMap(withStepsWithin).map((step) => [step.id, step]));
  }

  add({ event }: PlanEvent): void {
    if (event.case === "stepChanged") {
      this.#instance(event.value).state = event.value.state;
    } else if (event.case === "stepOutput") {
      const line = event.value.text.trimEnd().split("\n").at(-1) ?? "";
      if (line.trim() !== "") this.#instance(event.value).lastOutput = oneLine(line, outputCharacters);
    } else if (event.case === "inputRequested") {
      this.#instance(event.value).state = "waiting";
    } else if (event.case === "progress") {
      const { finishedSteps, totalSteps, usage } = event.value;
      this.#counted = { finished: finishedSteps, total: totalSteps };
      this.#tokens = usage === undefined ? "" : ` · ${usageText(usage)}`;
    }
  }

  /** `3/8`, as a bar too. */
  total(): string {
    const all = [...this.#instances.values()];
    const own = { finished: all.filter(hasEnded).length, total: Math.max(this.#steps.size, all.length) };
    const { finished, total } = this.#counted ?? own;
    return `${bar(finished, total)} ${finished}/${total} steps${this.#tokens}`;
  }

  /** The state of a step; of one within a loop how many of its runs have which. */
  stateOf(stepId: string): { readonly mark: string; readonly note: string; readonly state: string } {
    const found = [...this.#instances.values()].filter((instance) => instance.stepId === stepId);
    const states = new Set(found.map(({ state }) => state));
    const order = ["running", "waiting", "compensating", "failed", "completed"];
    const state = order.find((one) => states.has(one)) ?? found[0]?.state ?? "pending";
    const ended = found.filter(hasEnded).length;
    const note = found.length > 1 || (found[0]?.itemPath.length ?? 0) > 0 ? ` (${ended}/${found.length} ended)` : "";
    return { mark: marks[state] ?? "·", note, state };
  }

  /** A line for each step that runs or waits: a bar of what is within it, else the last it said. */
  running(): readonly string[] {
    const active = [...this.#instances.values()].filter(({ state }) =>
      ["running", "waiting", "compensating"].includes(state),
    );
    return active.map((instance) => {
      const within = this.#within(instance);
      const known = Math.max(within.length, this.#stepsWithin(instance.stepId));
      const how =
        known > 0
          ? `${bar(within.filter(hasEnded).length, known)} ${within.filter(hasEnded).length}/${known}`
          : instance.lastOutput;
      return `${marks[instance.state] ?? "·"} ${keyOf(instance)}${how === "" ? "" : `  ${how}`}`;
    });
  }

  #stepsWithin(stepId: string): number {
    const step = this.#steps.get(stepId);
    return step === undefined ? 0 : withStepsWithin(step).length - 1;
  }

  #within({ stepId, itemPath }: Instance): Instance[] {
    const step = this.#steps.get(stepId);
    if (step === undefined) return [];
    const ids = new Set(withStepsWithin(step).map(({ id }) => id));
    return [...this.#instances.values()].filter(
      (other) =>
        other.stepId !== stepId &&
        ids.has(other.stepId) &&
        itemPath.every((index, depth) => other.itemPath[depth] === index),
    );
  }

  #instance(place: Pick<PlanStepChanged, "stepId" | "itemPath">): Instance {
    const key = keyOf(place);
    const found = this.#instances.get(key);
    if (found !== undefined) return found;
    const added = { stepId: place.stepId, itemPath: place.itemPath, state: "pending", lastOutput: "" };
    this.#instances.set(key, added);
    return added;
  }
}

/** A run of a step, as `build` or within loops `build[0,2]`. */
export function keyOf({ stepId, itemPath }: { readonly stepId: string; readonly itemPath: readonly number[] }): string {
  return itemPath.length === 0 ? stepId : `${stepId}[${itemPath.join(",")}]`;
}

/** A bar of fixed width. */
export function bar(finished: number, total: number): string {
  const full = total === 0 ? 0 : Math.min(barCells, Math.floor((finished / total) * barCells));
  return `[${"█".repeat(full)}${"░".repeat(barCells - full)}]`;
}

/** A line for each thing that happens. */
export function lineView(page: Page): PlanView {
  return {
    add: (event) => {
      for (const { text, style } of tellings(event)) line(page, text, style);
    },
    ask: (question) => question(page),
    close: () => page.endLine(),
  };
}

/**
 * The tree of the steps, a bar for the whole and a line for each step that runs, drawn in place on a terminal; what is to
 * stay stands above. Where the tree is higher than the terminal it is left out.
 * @param screen takes text and says how large it is
 */
export function liveView(
  plan: Pick<Plan, "steps">,
  screen: Pick<NodeJS.WriteStream, "write" | "columns" | "rows">,
  styled: (text: string, style: Style) => string,
): PlanView {
  const progress = new Progress(plan);
  const page = createPage((text) => void screen.write(text), styled);
  let drawn = 0;
  let timer: NodeJS.Timeout | undefined;
  let isAsking = false;
  const above: { readonly text: string; readonly style: Style | undefined }[] = [];

  function lines(): readonly string[] {
    const most = Math.max(1, (screen.rows || 24) - 1);
    const running = progress.running();
    const tree = progress.tree.map(({ lead, stepId, text }) => {
      const { mark, note } = stepId === "" ? { mark: "", note: "" } : progress.stateOf(stepId);
      return `${lead}${mark === "" ? "" : `${mark} `}${text}${note}`;
    });
    const whole = [...tree, progress.total(), ...running];
    return whole.length <= most ? whole : [progress.total(), ...running].slice(0, most);
  }

  /** All in one write, line over line, so that nothing blinks. */
  function draw(isLast = false): void {
    clearTimeout(timer);
    timer = undefined;
    if (isAsking) return;
    const width = Math.max(20, (screen.columns || 80) - 1);
    let text = drawn === 0 ? "" : `\u001b[${drawn}A\r`;
    for (const { text: said, style } of above.splice(0)) {
      const plain = withoutSteering(said);
      text += `${style === undefined ? plain : styled(plain, style)}\u001b[K\n`;
    }
    const shown = lines();
    for (const each of shown) text += `${cut(withoutSteering(each), width)}\u001b[K\n`;
    screen.write(`\u001b[?2026h${text}\u001b[J\u001b[?2026l`);
    drawn = isLast ? 0 : shown.length;
  }

  return {
    add(event) {
      progress.add(event);
      // The tree says what the steps do; above it stands what it does not say.
      above.push(...tellings(event).filter(({ isNews }) => isNews));
      timer ??= setTimeout(draw, redrawMs);
    },
    async ask(question) {
      draw();
      isAsking = true;
      drawn = 0;
      try {
        return await question(page);
      } finally {
        isAsking = false;
        page.endLine();
        draw();
      }
    },
    close: () => draw(true),
  };
}

function cut(text: string, most: number): string {
  const characters = [...text];
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}

/** How an execution ended, for a person. */
export function printOutcome(page: Page, finished: PlanFinished): void {
  const { state, goalChecks, output, error, failedStepId, usage, durationMs, stepCounts } = finished;
  if (error !== undefined) line(page, `${failedStepId === "" ? "" : `${failedStepId}: `}${error.message}`, "red");
  for (const check of goalChecks) {
    const mark = check.state === "met" ? "✓" : check.state === "not_met" ? "✗" : "?";
    const evidence = check.evidence === "" ? "" : `: ${oneLine(check.evidence, outputCharacters)}`;
    line(page, `${mark} ${check.criterion}${evidence}`, check.state === "not_met" ? "red" : undefined);
  }
  if (output !== "" && output !== "null") line(page, outputText(output), undefined);
  const counts = Object.entries(stepCounts).map(([name, count]) => `${count} ${name}`);
  const seconds = (Number(durationMs) / 1000).toFixed(1);
  line(page, [state, ...counts, usageText(usage), `${seconds} s`].join(" · "), state === "failed" ? "red" : "dim");
}

/** A text as it is, all else as JSON text. */
function outputText(output: string): string {
  try {
    const value: unknown = JSON.parse(output);
    return typeof value === "string" ? value : JSON.stringify(value, undefined, 2);
  } catch {
    return output;
  }
}

function line(page: Page, text: string, style: Style | undefined): void {
  page.endLine();
  page.write(text, style);
  page.endLine();
}

interface Telling {
  readonly text: string;
  readonly style: Style | undefined;
  /** The tree of steps does not show it. */
  readonly isNews: boolean;
}

function tellings({ event, executionId }: PlanEvent): readonly Telling[] {
  switch (event.case) {
    case "started":
      return [{ text: `execution ${executionId} of version ${event.value.version}`, style: "dim", isNews: true }];
    case "stepChanged":
      return [changeLine(event.value)];
    case "stepOutput": {
      const text = event.value.text.trimEnd();
      return text === ""
        ? []
        : text.split("\n").map((each) => ({ text: `  ${keyOf(event.value)}| ${each}`, style: "dim", isNews: false }));
    }
    case "inputRequested": {
      const asked = oneLine(event.value.prompt, outputCharacters);
      return [{ text: `? ${keyOf(event.value)} waits for input: ${asked}`, style: "bold", isNews: false }];
    }
    case "notice": {
      const { level, message } = event.value;
      return [{ text: message, style: level === "warning" ? "red" : "dim", isNews: true }];
    }
    case "resync":
      return [{ text: "older events of this execution are no longer there", style: "dim", isNews: true }];
    default:
      return [];
  }
}

function changeLine(change: PlanStepChanged): Telling {
  const { state, attempt, reason, error, durationMs } = change;
  const why = reason || error?.message || "";
  const parts = [
    `${marks[state] ?? "·"} ${keyOf(change)} ${state}`,
    attempt > 1 ? `, attempt ${attempt}` : "",
    durationMs === undefined ? "" : ` (${durationMs} ms)`,
    why === "" ? "" : `: ${oneLine(why, outputCharacters)}`,
  ];
  const isBad = state === "failed" || state === "compensation_failed";
  return { text: parts.join(""), style: isBad ? "red" : state === "waiting" ? "bold" : "dim", isNews: isBad };
}

function hasEnded({ state }: Instance): boolean {
  return endedStates.includes(state);
}
