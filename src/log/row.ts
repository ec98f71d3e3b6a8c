import { AgentError } from "../chat/error.ts";

/** A row as a database's driver gives it. */
export type Row = Readonly<Record<string, unknown>>;

export function numberOf(row: Row | undefined, column: string): number {
  const value = row?.[column];
  if (typeof value !== "number") throw new AgentError("internal", `column ${column} is no number`);
  return value;
}

export function textOf(row: Row | undefined, column: string): string {
  const value = row?.[column];
  if (typeof value !== "string") throw new AgentError("internal", `column ${column} is no text`);
  return value;
}

export function bytesOf(row: Row | undefined, column: string): Uint8Array {
  const value = row?.[column];
  if (!(value instanceof Uint8Array)) throw new AgentError("internal", `column ${column} is no bytes`);
  return value;
}
