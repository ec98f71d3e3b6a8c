/** What a tool run came to. What the model can act on is a value; it is never thrown. */
export interface ToolResult {
  readonly success: boolean;
  /** What the model reads. */
  readonly output: string;
  /** One sentence on what went wrong; absent on success. */
  readonly error?: string;
  readonly durationMs?: number;
  /** Part of the output was cut; the output then says how much. */
  readonly truncated?: boolean;
  /** Facts for people and programs, not shown to the model. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** What the model reads of a run that succeeded and wrote nothing. */
export const noOutput = "[no output]";

/** A result that tells the model what went wrong. */
export function toolFailure(error: string): ToolResult {
  return { success: false, output: "", error };
}

/** The text of a result as the model reads it. */
export function toolResultText(result: ToolResult): string {
  if (result.success) return result.output;
  const error = `error: ${result.error ?? "the tool failed"}`;
  return result.output === "" ? error : `${result.output}\n${error}`;
}
