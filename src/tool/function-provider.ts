import type { ToolDefinition } from "../chat/request.ts";
import type { ToolResult } from "../chat/tool-result.ts";
import type { PlanCall } from "./plan-functions.ts";
import type { Task } from "./task.ts";

/** A function this server can run for a model. */
export interface FunctionDefinition extends ToolDefinition {
  /** Where it comes from: `local`, `skill:<name>`, `mcp:<server>`, `http:<name>`. */
  readonly source: string;
  /** Its name for people. */
  readonly title?: string;
  /** Running it changes nothing, so it needs no approval and may run beside others. */
  readonly readOnly: boolean;
  /** It changes files of the workspace and nothing else, which the mode `accept-edits` allows. */
  readonly edits?: boolean;
  /** It talks to what is outside the workspace and this machine. */
  readonly openWorld?: boolean;
  /** It starts a process, so it runs within the sandbox, and without one it is asked for each time. */
  readonly runsProgram?: boolean;
  /** It comes with the workspace, so that nobody who wrote a rule can have known what it runs: rules do not allow it. */
  readonly ofWorkspace?: boolean;
  /** Running it again with the same `toolCallId` goes on with what the first run began; so after a crash it runs again. */
  readonly repeatable?: boolean;
  /** A call of it is a question to people: it never runs, what they answer is its result. */
  readonly asks?: boolean;
  /** All it does is done by calls of another turn, each judged there; so it needs no approval of its own. */
  readonly delegates?: boolean;
  /** SHA-256, in hexadecimal, over what decides what it does: the files of a script, the definition a server gave. */
  readonly digest?: string;
  /** The longest one run may take. */
  readonly timeoutMs: number;
  /** What the output looks like, in words for the model. */
  readonly returns?: string;
}

/** Where and for whom a function runs. */
export interface FunctionContext {
  readonly sessionId: string;
  readonly turnId: string;
  readonly toolCallId: string;
  /** Absolute path of the directory the function works in. */
  readonly workspace: string;
  /**
   * Files that rules keep from being read, by their paths from the workspace with all links followed. A function that looks
   * into many files leaves them out; which file a call names is judged before it runs.
   */
  readonly isHidden?: (path: string) => boolean;
  /** Aborts the run. */
  readonly signal: AbortSignal;
  /** Takes output for people while the function runs; the result does not depend on it. */
  onOutput?(stream: "stdout" | "stderr" | "progress", text: string): void;
  /**
   * Has a task done in a session of its own and waits for its end; called again for the same call it goes on waiting for
   * the same task. Absent where no turn is under way.
   * @throws the reason of the signal.
   */
  runTask?(task: Task, own: Pick<FunctionContext, "signal" | "onOutput">): Promise<ToolResult>;
  /**
   * Makes, changes or runs a plan, as the session; called again for the same call it goes on with what that began. Absent
   * where no turn of a session is under way, and in the steps of a plan.
   * @throws the reason of the signal.
   */
  callPlan?(call: PlanCall, own: Pick<FunctionContext, "signal" | "onOutput">): Promise<ToolResult>;
}

/** One call, its arguments already parsed and checked against the definition's schema. */
export interface FunctionCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** A source of functions. Its caller closes it. */
export interface FunctionProvider {
  readonly source: string;
  /** The functions there are now. Quick: a source that has to ask somebody answers with what it knows. */
  list(): Promise<readonly FunctionDefinition[]>;
  /**
   * Runs a function. What the model can act on comes back as a failed result.
   * @throws the reason of `context.signal` when that aborts the run; anything else thrown is a fault of the function.
   */
  call(call: FunctionCall, context: FunctionContext): Promise<ToolResult>;
  /**
   * SHA-256, in hexadecimal, over the files that this very call would run; empty where it runs none. What somebody
   * approves holds for these bytes only.
   */
  fingerprint?(call: FunctionCall, context: Pick<FunctionContext, "workspace">): Promise<string>;
  /** Calls `onChange` after each change of what `list` gives, soon and at least once; until the returned function is called. */
  watch?(onChange: () => void): () => void;
  /** Stops what the provider started. Calling it twice is harmless. */
  close(): Promise<void>;
}
