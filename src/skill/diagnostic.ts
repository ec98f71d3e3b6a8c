/** Something a skill's files have wrong, or that its author should know. */
export interface SkillDiagnostic {
  /** A sentence for people, without a full stop: what, where and what to do. */
  readonly message: string;
  /** `error`: the skill or the tool is not loaded. `warning`: it is. */
  readonly severity: "error" | "warning";
  /** A word for programs. */
  readonly code: string;
  /** Relative to the skill's folder; empty where it is about the folder. */
  readonly file: string;
  /** From 1; absent where it is about the whole file. */
  readonly line?: number;
  /** From 1, in characters; absent where it is about the whole line. */
  readonly column?: number;
}

/** A place in a file, both counted from 1; `column` in characters. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

/** The name of the file that makes a folder a skill. */
export const skillFile = "SKILL.md";

export function errorIn(file: string, code: string, message: string, place?: Place): SkillDiagnostic {
  return { message, severity: "error", code, file, ...place };
}

export function warningIn(file: string, code: string, message: string, place?: Place): SkillDiagnostic {
  return { message, severity: "warning", code, file, ...place };
}

/** Errors first, each kind in the order of the file. */
export function inOrder(diagnostics: readonly SkillDiagnostic[]): readonly SkillDiagnostic[] {
  const rank = ({ severity }: SkillDiagnostic) => (severity === "error" ? 0 : 1);
  return diagnostics.toSorted(
    (left, right) =>
      rank(left) - rank(right) || (left.line ?? 0) - (right.line ?? 0) || (left.column ?? 0) - (right.column ?? 0),
  );
}
