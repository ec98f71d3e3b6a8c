import {
  type Diagnostic,
  DiagnosticSeverity,
  type Hover,
  Location,
  LocationLink,
  MarkupContent,
  type Range,
  SymbolKind,
} from "vscode-languageserver-protocol";
import { isRecord } from "../check-value.ts";

/** A place in a file, counted from 0; columns in UTF-16 units. */
export interface FilePosition {
  readonly line: number;
  readonly character: number;
}

export interface FileRange {
  readonly start: FilePosition;
  readonly end: FilePosition;
}

export interface FileLocation {
  readonly uri: string;
  /** Absent where only the file is known. */
  readonly range?: FileRange;
}

export interface FoundHover {
  readonly content: string;
  readonly range?: FileRange;
}

export interface FoundSymbol {
  readonly name: string;
  /** A word in small letters, such as `class` or `enum_member`. */
  readonly kind: string;
  readonly location: FileLocation;
  readonly containerName?: string;
}

export const severities = ["error", "warning", "information", "hint"] as const;
export type Severity = (typeof severities)[number];

export interface FoundDiagnostic {
  readonly uri: string;
  readonly range: FileRange;
  readonly severity: Severity;
  readonly message: string;
  readonly code?: string;
  readonly source?: string;
}

const symbolWords = new Map<number, string>(
  Object.entries(SymbolKind).map(([name, kind]) => [
    kind,
    name.replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toLowerCase(),
  ]),
);

/** The word for a kind of symbol; `unknown` for one nobody has named. */
export function symbolWord(kind: number): string {
  return symbolWords.get(kind) ?? "unknown";
}

/** The word for how bad it is; what is not told counts as an error, as most clients take it. */
export function severityWord(severity: number | undefined): Severity {
  switch (severity) {
    case DiagnosticSeverity.Warning:
      return "warning";
    case DiagnosticSeverity.Information:
      return "information";
    case DiagnosticSeverity.Hint:
      return "hint";
    default:
      return "error";
  }
}

/** The text of a hover in any of the forms that servers of different age write. */
export function hoverFrom(hover: Hover): FoundHover | undefined {
  const { contents, range } = hover;
  const parts = (Array.isArray(contents) ? contents : [contents]).map((part) => {
    if (typeof part === "string") return part;
    if (MarkupContent.is(part)) return part.value;
    return `\`\`\`${part.language}\n${part.value}\n\`\`\``;
  });
  const content = parts.filter((part) => part.trim() !== "").join("\n\n");
  if (content === "") return undefined;
  return { content, ...(range === undefined ? {} : { range: rangeFrom(range) }) };
}

/** Places as servers tell them: one, a list, or links of which the part with the name counts. */
export function locationsFrom(value: unknown): FileLocation[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : value === null ? [] : [value];
  return all.flatMap((one): FileLocation[] => {
    if (LocationLink.is(one)) return [{ uri: one.targetUri, range: rangeFrom(one.targetSelectionRange) }];
    return Location.is(one) ? [{ uri: one.uri, range: rangeFrom(one.range) }] : [];
  });
}

/** Symbols in both forms there are. */
export function symbolsFrom(value: unknown): FoundSymbol[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : [];
  return all.flatMap((one): FoundSymbol[] => {
    if (!isRecord(one) || typeof one["name"] !== "string" || typeof one["kind"] !== "number") return [];
    const { name, kind, location, containerName } = one;
    const uri = isRecord(location) ? location["uri"] : undefined;
    if (typeof uri !== "string") return [];
    const [place] = locationsFrom(location);
    const container = typeof containerName === "string" && containerName !== "" ? { containerName } : {};
    return [{ name, kind: symbolWord(kind), location: place ?? { uri }, ...container }];
  });
}

export function diagnosticFrom(uri: string, { range, severity, message, code, source }: Diagnostic): FoundDiagnostic {
  return {
    uri,
    range: rangeFrom(range),
    severity: severityWord(severity),
    message: typeof message === "string" ? message : message.value,
    ...(code === undefined ? {} : { code: String(code) }),
    ...(source === undefined ? {} : { source }),
  };
}

/** What the TypeScript compiler says of a file; it counts from 1. */
export function diagnosticsFromTsserver(uri: string, value: unknown): FoundDiagnostic[] {
  const body: readonly unknown[] = isRecord(value) && Array.isArray(value["body"]) ? value["body"] : [];
  return body.flatMap((one): FoundDiagnostic[] => {
    if (!isRecord(one) || typeof one["text"] !== "string") return [];
    const start = positionFromTsserver(one["start"]);
    const end = positionFromTsserver(one["end"]);
    if (start === undefined || end === undefined) return [];
    const { text, code, category } = one;
    const severity = category === "suggestion" ? "hint" : category === "message" ? "information" : category;
    const known = severities.find((word) => word === severity) ?? "error";
    const numbered = typeof code === "number" ? { code: String(code) } : {};
    return [{ uri, range: { start, end }, severity: known, message: text, ...numbered, source: "typescript" }];
  });
}

function positionFromTsserver(value: unknown): FilePosition | undefined {
  if (!isRecord(value) || typeof value["line"] !== "number" || typeof value["offset"] !== "number") return undefined;
  return { line: Math.max(0, value["line"] - 1), character: Math.max(0, value["offset"] - 1) };
}

function rangeFrom({ start, end }: Range): FileRange {
  return {
    start: { line: start.line, character: start.character },
    end: { line: end.line, character: end.character },
  };
}
