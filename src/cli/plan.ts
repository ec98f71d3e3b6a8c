import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { styleText } from "node:util";
import { toJson } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import type { PlanStepChanged } from "../../gen/codeagent/v1/code_agent_pb.ts";
import {
  type Plan,
  PlanEventSchema,
  type PlanFinished,
  type PlanInputRequested,
  PlanSchema,
} from "../../gen/codeagent/v1/plan_service_pb.ts";
import { planDraftFromProto, planDraftToProto } from "../convert/proto/plan.ts";
import { planFromYaml, planToYaml } from "../plan/plan-yaml.ts";
import { openEditor } from "../tool/open-editor.ts";
import { Approvals, type AskPerson, personAt } from "./approvals.ts";
import { executionEvents } from "./plan-events.ts";
import { askForm } from "./plan-form.ts";
import { planTree } from "./plan-tree.ts";
import { keyOf, lineView, liveView, type PlanView, printOutcome } from "./plan-watch.ts";
import { readStdin } from "./read-stdin.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { sentenceOf } from "./sentence.ts";
import { type ConnectionFlags, openService, type Service } from "./service.ts";
import { onStopSignal } from "./stop-signals.ts";
import { jsonLine, oneLine, type Page, pageOn, whenWritable } from "./terminal.ts";
import { usageText } from "./turn-printer.ts";

export interface CreatePlanFlags extends ConnectionFlags {
  readonly session?: string;
  /** A plan as YAML to take over. */
  readonly file?: string;
  readonly context?: string;
  readonly json?: boolean;
}
export interface ShowPlanFlags extends ConnectionFlags {
  readonly version?: string;
  readonly yaml?: boolean;
  readonly json?: boolean;
}
export interface RunPlanFlags extends ConnectionFlags {
  readonly version?: string;
  readonly session?: string;
  /** JSON text. */
  readonly input?: string;
  readonly inputFile?: string;
  /** An execution to follow. */
  readonly follow?: string;
  readonly json?: boolean;
  readonly yes?: boolean;
}
export interface EditPlanFlags extends ConnectionFlags {
  readonly file?: string;
}
export interface ListPlansFlags extends ConnectionFlags {
  readonly session?: string;
  readonly json?: boolean;
}

const goalCharacters = 60;
const pageSize = 200;
const wordsLimitBytes = 1024 * 1024;
const pendingAtMost = 1000;

/** Has a plan made, or takes one over from a file, and shows it. @returns the exit code: 1 when it can't run. */
export async function createPlan(
  given: string | undefined,
  flags: CreatePlanFlags,
  taken: TakenEnvironment,
): Promise<number> {
  const requirement = given === "-" ? await readStdin("the requirement", wordsLimitBytes) : (given ?? "");
  if (requirement.trim() === "" && flags.file === undefined)
    throw new Error("the requirement is empty; say what is wanted, or name a plan with --file");
  const draft = flags.file === undefined ? undefined : draftFrom(flags.file);
  await using service = await openService(flags, taken);
  const plan = await service.client.plans.createPlan({
    sessionId: flags.session ?? "",
    requirement,
    context: flags.context ?? "",
    model: service.own ? "" : (flags.model ?? ""),
    requestId: randomUUID(),
    ...(draft === undefined ? {} : { plan: draft }),
  });
  const page = pageOn(process.stdout);
  if (flags.json === true) page.write(jsonLine(toJson(PlanSchema, plan)));
  else printPlan(page, plan);
  return canRun(plan) ? 0 : 1;
}

/** Shows a plan. @returns the exit code: 1 when it can't run. */
export async function showPlan(planId: string, flags: ShowPlanFlags, taken: TakenEnvironment): Promise<number> {
  const version = versionFrom(flags.version);
  await using service = await openService(flags, taken);
  const plan = await service.client.plans.getPlan({ planId, ...version });
  const page = pageOn(process.stdout);
  if (flags.json === true) page.write(jsonLine(toJson(PlanSchema, plan)));
  else if (flags.yaml === true) page.write(yamlOf(plan));
  else printPlan(page, plan);
  return canRun(plan) ? 0 : 1;
}

/** Lists plans, newest first. @returns the exit code. */
export async function listPlans(flags: ListPlansFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  let count = 0;
  let pageToken = "";
  do {
    const found = await service.client.plans.listPlans({ sessionId: flags.session ?? "", pageSize, pageToken });
    for (const plan of found.plans) {
      count++;
      page.write(flags.json === true ? jsonLine(toJson(PlanSchema, plan)) : `${planLine(plan)}\n`);
    }
    await whenWritable(process.stdout);
    pageToken = found.nextPageToken;
  } while (pageToken !== "");
  if (count === 0 && flags.json !== true) page.write("there are no plans\n", "dim");
  return 0;
}

/**
 * Makes the next version of a plan from what a person makes of its YAML, in `$VISUAL` or `$EDITOR`, or from a file. A text
 * that is not taken is kept, and where is said.
 * @returns the exit code: 1 when the new version can't run.
 */
export async function editPlan(planId: string, flags: EditPlanFlags, taken: TakenEnvironment): Promise<number> {
  const given = flags.file === undefined ? undefined : draftFrom(flags.file);
  await using service = await openService(flags, taken);
  const { plans } = service.client;
  const page = pageOn(process.stdout);
  const before = await plans.getPlan({ planId });
  const refine = (plan: Plan) => plans.refinePlan({ planId, version: before.version, plan, requestId: randomUUID() });
  if (given !== undefined) {
    const after = await refine(given);
    printPlan(page, after);
    return canRun(after) ? 0 : 1;
  }
  const folder = mkdtempSync(join(tmpdir(), "codeagent-plan-"));
  const file = join(folder, `${planId}.yaml`);
  const text = yamlOf(before);
  writeFileSync(file, text, { mode: 0o600 });
  let isKept = false;
  try {
    await openEditor(process.env["VISUAL"] || process.env["EDITOR"] || "vi", file);
    if (readFileSync(file, "utf8") === text) {
      page.write("nothing was changed\n", "dim");
      return 0;
    }
    isKept = true;
    const after = await refine(draftFrom(file));
    printPlan(page, after);
    isKept = !canRun(after);
    if (isKept) page.write(`the text is kept in ${file}\n`, "dim");
    return canRun(after) ? 0 : 1;
  } catch (error) {
    throw isKept ? new Error(`${sentenceOf(error)}; the text is kept: ${file}`) : error;
  } finally {
    if (!isKept) rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Runs a plan, or one from a file, and shows it as it goes: in place on a terminal, else a line for each thing that
 * happens. Steps that ask are answered by the person at the terminal. Ctrl-C cancels the execution; a second one leaves it.
 * @param given id of a plan, or the name of a YAML file
 * @returns the exit code: 0 when it completed, 2 when it did but a success criterion is not met, else 1.
 */
export async function runPlan(given: string, flags: RunPlanFlags, taken: TakenEnvironment): Promise<number> {
  const input = inputFrom(flags);
  const version = versionFrom(flags.version);
  const isFile = /\.ya?ml$/.test(given);
  if (isFile && flags.follow !== undefined) throw new Error("--follow needs the id of a plan, not a file");
  const draft = isFile ? draftFrom(given) : undefined;
  await using service = await openService(flags, taken);
  const { client } = service;
  const plan =
    draft === undefined
      ? await client.plans.getPlan({ planId: given, ...version })
      : await client.plans.createPlan({ sessionId: flags.session ?? "", plan: draft, requestId: randomUUID() });
  const page = pageOn(process.stdout);
  if (!canRun(plan) && flags.follow === undefined) {
    if (flags.json === true) page.write(jsonLine(toJson(PlanSchema, plan)));
    else printPlan(page, plan);
    return 1;
  }
  const asked =
    flags.follow === undefined
      ? {
          planId: plan.id,
          version: plan.version,
          input,
          model: service.own ? "" : (flags.model ?? ""),
          requestId: randomUUID(),
        }
      : { planId: plan.id, executionId: flags.follow };
  const watching = new Watching(service, plan, flags, taken);
  return await watching.run(asked);
}

/** One execution, while it is shown. */
class Watching {
  readonly #service: Service;
  readonly #plan: Plan;
  readonly #isJson: boolean;
  readonly #view: PlanView;
  readonly #page: Page;
  readonly #person: AskPerson | undefined;
  readonly #approvals: Approvals;
  readonly #complain: (message: string) => void;
  /** Approvals and inputs that wait, by the step. */
  readonly #asked = new Map<string, { readonly stop: AbortController; requestId: string }>();
  readonly #end = new AbortController();
  #executionId = "";
  #questions: Promise<void> = Promise.resolve();
  #wantsCancel = false;
  #wasCancelled = false;
  /** Why it is left before its end. */
  #leaving: string | undefined;

  constructor(service: Service, plan: Plan, flags: RunPlanFlags, taken: TakenEnvironment) {
    this.#service = service;
    this.#plan = plan;
    this.#isJson = flags.json === true;
    this.#page = pageOn(process.stdout);
    this.#complain = (message) => void process.stderr.write(`codeagent: ${taken.redactor.redact(message)}\n`);
    const isLive = process.stdout.isTTY && !this.#isJson;
    this.#view = isLive
      ? liveView(plan, process.stdout, (text, style) => styleText(style, text, { stream: process.stdout }))
      : lineView(this.#page);
    this.#person = this.#isJson ? undefined : personAt(process.stdin, process.stdout, () => this.#cancel());
    this.#approvals = new Approvals({
      client: service.client,
      page: this.#isJson ? undefined : this.#page,
      askPerson: this.#person,
      yes: flags.yes === true,
      complain: this.#complain,
    });
  }

  async run(request: Parameters<typeof executionEvents>[1]): Promise<number> {
    const restore = onStopSignal((again) => {
      if (again) void this.#service.leave().finally(() => process.exit(1));
      else this.#cancel();
    }, "stop");
    process.stdout.on("error", () => this.#cancel());
    let finished: PlanFinished | undefined;
    try {
      for await (const event of executionEvents(this.#service.client, request, this.#end.signal)) {
        if (event.executionId !== "") this.#executionIs(event.executionId);
        if (!this.#isJson) this.#view.add(event);
        else if (event.seq > 0n) this.#page.write(jsonLine(toJson(PlanEventSchema, event)));
        await whenWritable(process.stdout);
        if (event.event.case === "stepChanged") this.#stepChanged(event.event.value);
        else if (event.event.case === "inputRequested") this.#inputRequested(event.event.value);
        else if (event.event.case === "finished") finished = event.event.value;
      }
    } catch (error) {
      if (this.#leaving === undefined) throw error;
      this.#complain(this.#leaving);
      return 1;
    } finally {
      for (const { stop } of this.#asked.values()) stop.abort();
      await this.#approvals.close();
      await this.#questions;
      if (!this.#isJson) this.#view.close();
      restore();
    }
    if (finished === undefined) return 1;
    if (!this.#isJson) printOutcome(this.#page, finished);
    if (finished.state !== "completed") return 1;
    return finished.goalMet === false ? 2 : 0;
  }

  #executionIs(executionId: string): void {
    this.#executionId = executionId;
    if (this.#wantsCancel) this.#cancel();
  }

  #cancel(): void {
    this.#wantsCancel = true;
    if (this.#wasCancelled || this.#executionId === "") return;
    this.#wasCancelled = true;
    const { plans } = this.#service.client;
    // If it fails, the execution goes on in sight; a second Ctrl-C still ends the process.
    plans
      .cancelPlan({ planId: this.#plan.id, executionId: this.#executionId, requestId: randomUUID() })
      .catch(() => undefined);
  }

  /** A step that waits for neither a time nor an input waits for an approval; one that goes on has what it waited for. */
  #stepChanged(change: PlanStepChanged): void {
    const key = keyOf(change);
    const before = this.#asked.get(key);
    if (before !== undefined) {
      this.#asked.delete(key);
      before.stop.abort();
      if (before.requestId !== "") this.#approvals.resolved(before.requestId);
    }
    if (change.state === "waiting" && change.dueTime === undefined && !this.#isJson)
      this.#ask(key, (signal, asked) => this.#approve(key, signal, asked));
  }

  #inputRequested(form: PlanInputRequested): void {
    const key = keyOf(form);
    this.#asked.get(key)?.stop.abort();
    const { own, url } = this.#service;
    if (this.#person === undefined) {
      if (this.#isJson) return;
      // Another client of a server can answer; this process is the only one that talks to its own.
      const again = `codeagent plan run ${this.#plan.id} --follow ${this.#executionId}`;
      this.#complain(`step ${key} waits for input, and there is no terminal to ask at; answer with: ${again}`);
      if (own || url === "") this.#leave(`the execution ${this.#executionId} is left as it is`);
      return;
    }
    const person = this.#person;
    this.#ask(key, (signal) =>
      this.#view.ask(async (page) => {
        for (;;) {
          const values = await askForm(form, person, page, signal);
          const { stepId, itemPath } = form;
          const place = { planId: this.#plan.id, executionId: this.#executionId, stepId, itemPath };
          try {
            await this.#service.client.plans.submitPlanInput({ ...place, values, requestId: randomUUID() });
            return;
          } catch (error) {
            if (!(error instanceof ConnectError) || error.code !== Code.InvalidArgument) throw error;
            page.write(`${sentenceOf(error)}\n`, "red");
          }
        }
      }),
    );
  }

  async #approve(key: string, signal: AbortSignal, asked: { requestId: string }): Promise<void> {
    const { requests } = await this.#service.client.listPendingRequests({
      sessionId: this.#executionId,
      pageSize: pendingAtMost,
    });
    const request = requests.find(({ kind, toolCallId }) => kind === "approval" && toolCallId === key);
    if (request === undefined || signal.aborted) return;
    asked.requestId = request.requestId;
    await this.#view.ask(async () => {
      this.#approvals.opened(request);
      await this.#approvals.settled();
    });
  }

  /** One question after the other. */
  #ask(key: string, question: (signal: AbortSignal, asked: { requestId: string }) => Promise<void>): void {
    const asked = { stop: new AbortController(), requestId: "" };
    this.#asked.set(key, asked);
    const { signal } = asked.stop;
    this.#questions = this.#questions
      .then(() => (signal.aborted ? undefined : question(signal, asked)))
      .catch((error: unknown) => {
        if (!signal.aborted) this.#complain(sentenceOf(error));
      });
  }

  #leave(why: string): void {
    this.#leaving = why;
    this.#end.abort(new Error(why));
  }
}

function printPlan(page: Page, plan: Plan): void {
  const { id, version, state, complexity, goal, requirement, successCriteria, steps, usage, model } = plan;
  const by = model === "" ? "" : ` · by ${model}, ${usageText(usage)}`;
  page.write(`${id} version ${version}`, "bold");
  page.write(` · ${[state, complexity].filter((word) => word !== "").join(" · ")}${by}\n`, "dim");
  if (goal !== "") page.write(`${goal}\n`);
  if (requirement !== "" && requirement !== goal) page.write(`wanted: ${oneLine(requirement, 400)}\n`, "dim");
  for (const criterion of successCriteria) page.write(`has to hold: ${criterion}\n`);
  if (plan.inputSchema !== "") page.write(`input: ${oneLine(plan.inputSchema, 400)}\n`);
  for (const { lead, text, description } of planTree(steps)) {
    page.write(`${lead}${text}`);
    if (description !== "") page.write(`  ${description}`, "dim");
    page.endLine();
  }
  for (const { name, description, stepIds } of plan.missingFunctions) {
    const callers = stepIds.length === 0 ? "" : ` (called by ${stepIds.join(", ")})`;
    page.write(`missing function ${name}${callers}${description === "" ? "" : `: ${description}`}\n`, "red");
  }
  for (const { severity, stepId, field, message, code } of plan.problems) {
    const where = [stepId === "" ? "" : `step ${stepId}`, field].filter((part) => part !== "").join(", ");
    const style = severity === "error" ? "red" : "dim";
    page.write(`${severity}${where === "" ? "" : ` in ${where}`}: ${message} [${code}]\n`, style);
  }
  if (plan.executionId !== "") page.write(`newest execution: ${plan.executionId}\n`, "dim");
}

function planLine(plan: Plan): string {
  const updated = plan.updateTime === undefined ? "" : timestampDate(plan.updateTime).toISOString();
  return `${plan.id}  version ${plan.version}  ${plan.state}  ${updated}  ${oneLine(plan.goal, goalCharacters)}`;
}

function canRun({ missingFunctions, problems }: Plan): boolean {
  return missingFunctions.length === 0 && problems.every(({ severity }) => severity !== "error");
}

function yamlOf(plan: Plan): string {
  return planToYaml(planDraftFromProto(plan, "", "server"));
}

/** @throws {Error} one sentence, for a file that can't be read as a plan. */
function draftFrom(file: string): Plan {
  if (!existsSync(file)) throw new Error(`${file} does not exist`);
  return planDraftToProto(planFromYaml(readFileSync(file, "utf8")));
}

function inputFrom({ input, inputFile }: RunPlanFlags): string {
  if (input !== undefined && inputFile !== undefined) throw new Error("give --input or --input-file, not both");
  if (inputFile === undefined) return input ?? "";
  if (!existsSync(inputFile)) throw new Error(`${inputFile} does not exist`);
  return readFileSync(inputFile, "utf8");
}

function versionFrom(given: string | undefined): { readonly version?: number } {
  if (given === undefined) return {};
  if (!/^[1-9]\d{0,8}$/.test(given))
    throw new Error(`--version is ${JSON.stringify(given)}: a whole number from 1 is wanted`);
  return { version: Number(given) };
}
