import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { ReflectMessage } from "@bufbuild/protobuf/reflect";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { invalidField } from "../../chat/error.ts";

/**
 * Who wrote what is read. What a `client` sends is checked; what a `server` wrote (a stored event, an answer) is taken as
 * it is, and only what has no place in our words is refused: a log must stay readable whatever was once written to it.
 */
export type Source = "client" | "server";

/** A whole number from 0; absent stays absent. */
export function countFromProto(value: bigint | undefined, path: string): number | undefined {
  if (value !== undefined && value < 0n) throw invalidField(path, `is ${value}; must not be negative`);
  return integerFromProto(value, path);
}

/** A whole number that a double holds exactly; absent stays absent. */
export function integerFromProto(value: bigint | undefined, path: string): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!Number.isSafeInteger(number))
    throw invalidField(path, `is ${value}; must lie within ±${Number.MAX_SAFE_INTEGER}`);
  return number;
}

/** Rounds to a whole number: times are measured in fractions of a millisecond. Absent stays absent. */
export function integerToProto(value: number | undefined): bigint | undefined {
  return value === undefined ? undefined : BigInt(Math.round(value));
}

/** Milliseconds since 1970; absent stays absent. */
export function timeFromProto(time: Timestamp | undefined, path: string): number | undefined {
  if (time === undefined) return undefined;
  const timeMs = timestampMs(time);
  if (!Number.isSafeInteger(timeMs)) throw invalidField(path, `is ${time.seconds} seconds from 1970; that is no date`);
  return timeMs;
}

/** One of a list of words. */
export function wordFromProto<const Word extends string>(value: string, words: readonly Word[], path: string): Word {
  const word = words.find((known) => known === value);
  if (word !== undefined) return word;
  const problem = value === "" ? "is empty" : `is ${JSON.stringify(value.slice(0, 64))}`;
  throw invalidField(path, `${problem}; use one of ${words.join(", ")}`);
}

/**
 * Refuses halves of surrogate pairs in any string of a message: UTF-8 cannot hold them.
 * The path in the error names the string, as in `messages[0].blocks[1].text.text`.
 */
export function checkStrings<Schema extends DescMessage>(
  schema: Schema,
  message: MessageShape<Schema>,
  path: string,
): void {
  // Reflection knows the names of fields and takes its time: only a message that is at fault goes through it.
  if (!isWellFormed(message)) checkReflected(reflect(schema, message, false), path);
}

/** Whether all strings and keys in a value are well formed. */
function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return true;
  for (const [key, item] of Object.entries(value)) if (!key.isWellFormed() || !isWellFormed(item)) return false;
  return true;
}

function checkReflected(message: ReflectMessage, path: string): void {
  for (const field of message.fields) {
    if (!message.isSet(field)) continue;
    const fieldPath = path === "" ? field.name : `${path}.${field.name}`;
    switch (field.fieldKind) {
      case "scalar":
        checkText(message.get(field), fieldPath);
        break;
      case "message":
        checkReflected(message.get(field), fieldPath);
        break;
      case "list": {
        let index = 0;
        for (const item of message.get(field)) checkValue(item, `${fieldPath}[${index++}]`);
        break;
      }
      case "map":
        for (const [key, value] of message.get(field)) {
          checkText(key, fieldPath);
          checkValue(value, `${fieldPath}[${JSON.stringify(key)}]`);
        }
        break;
      default:
        break;
    }
  }
}

function checkValue(value: unknown, path: string): void {
  if (isReflected(value)) checkReflected(value, path);
  else checkText(value, path);
}

function isReflected(value: unknown): value is ReflectMessage {
  return typeof value === "object" && value !== null && "fields" in value && "desc" in value;
}

function checkText(value: unknown, path: string): void {
  if (typeof value === "string" && !value.isWellFormed())
    throw invalidField(path, "holds half a surrogate pair, which no UTF-8 can hold");
}
