/** One fault and what came of it. */
export interface FaultRow {
  readonly dialect: string;
  readonly fault: string;
  /** The kind of the error, or `whole` for an answer without one. */
  readonly outcome: string;
  readonly retryable: boolean | undefined;
  /** Something of the answer was handed on before. */
  readonly begun: boolean;
  /** Requests that reached the upstream. */
  readonly requests: number;
  /** Between tries, in milliseconds. */
  readonly waits: readonly number[];
}

/** The rows as a table in Markdown; rows that differ in nothing but the dialect are one. */
export function faultTable(rows: readonly FaultRow[]): string {
  const dialects = new Map<string, string[]>();
  for (const { dialect, fault, outcome, retryable, begun, requests, waits } of rows) {
    const retry = retryable === undefined ? "" : retryable ? "yes" : "no";
    const cells = [fault, outcome, retry, begun ? "yes" : "no", requests, waits.join(", ")].join(" | ");
    const known = dialects.get(cells) ?? [];
    if (!known.includes(dialect)) known.push(dialect);
    dialects.set(cells, known);
  }
  const lines = [...dialects].map(([cells, names]) => `| ${cells} | ${names.join(", ")} |`);
  return [
    "| fault | outcome | retryable | begun | requests | waits (ms) | dialects |",
    "| --- | --- | --- | --- | --- | --- | --- |",
    ...lines,
    "",
  ].join("\n");
}
