import assert from "node:assert/strict";

/** Writes a field by its number: texts and messages with their length before them, numbers and truth values as varints. */
export function field(no: number, value: string | number | bigint | boolean | Uint8Array): Buffer {
  if (typeof value === "string" || value instanceof Uint8Array) {
    const bytes = Buffer.from(value);
    return Buffer.concat([varint((no << 3) | 2), varint(bytes.length), bytes]);
  }
  return Buffer.concat([varint(no << 3), varint(value)]);
}

/** A message, or part of one, from its fields. */
export function message(...fields: readonly Buffer[]): Buffer {
  return Buffer.concat(fields);
}

/** A field that is a message. */
export function inner(no: number, ...fields: readonly Buffer[]): Buffer {
  return field(no, message(...fields));
}

/** An entry of a map of texts. */
export function entry(no: number, key: string, value: string): Buffer {
  return inner(no, field(1, key), field(2, value));
}

/** A field of 32 bits. */
export function float(no: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return Buffer.concat([varint((no << 3) | 5), bytes]);
}

/** A field of 64 bits. */
export function double(no: number, value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(value);
  return Buffer.concat([varint((no << 3) | 1), bytes]);
}

function varint(value: number | bigint | boolean): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
}

/** A field as it is on the wire. */
export interface WireField {
  readonly no: number;
  readonly wireType: number;
  /** Of varints the number, of all others the bytes without their length. */
  readonly value: bigint | Buffer;
}

export function readFields(bytes: Uint8Array): readonly WireField[] {
  const buffer = Buffer.from(bytes);
  let position = 0;
  const readVarint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[position++] ?? assert.fail("the message ends within a varint");
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  const readBytes = (length: number): Buffer => {
    assert.ok(position + length <= buffer.length, "the message ends within a field");
    position += length;
    return buffer.subarray(position - length, position);
  };
  const fields: WireField[] = [];
  while (position < buffer.length) {
    const tag = Number(readVarint());
    const wireType = tag & 7;
    const values = {
      0: readVarint,
      1: () => readBytes(8),
      2: () => readBytes(Number(readVarint())),
      5: () => readBytes(4),
    };
    const read = Object.entries(values).find(([type]) => Number(type) === wireType)?.[1];
    fields.push({ no: tag >>> 3, wireType, value: read?.() ?? assert.fail(`wire type ${wireType}`) });
  }
  return fields;
}

/** All values of a field. */
export function valuesAt(bytes: Uint8Array, no: number): readonly (bigint | Buffer)[] {
  return readFields(bytes).flatMap((each) => (each.no === no ? [each.value] : []));
}

/** The bytes of a field that is there once, by the numbers of the fields it is in. */
export function bytesAt(bytes: Uint8Array, ...path: readonly number[]): Buffer {
  return path.reduce<Buffer>((within, no) => {
    const [value] = valuesAt(within, no);
    return Buffer.isBuffer(value) ? value : assert.fail(`no bytes in field ${no}`);
  }, Buffer.from(bytes));
}

/** As `bytesAt`, of a text. */
export function textAt(bytes: Uint8Array, ...path: readonly number[]): string {
  return bytesAt(bytes, ...path).toString();
}

/** The value of a key in a map of texts. */
export function mapAt(bytes: Uint8Array, no: number, key: string): string {
  const entries = valuesAt(bytes, no).map((each) => (Buffer.isBuffer(each) ? each : assert.fail("no entry")));
  const found = entries.find((each) => textAt(each, 1) === key) ?? assert.fail(`no key ${key}`);
  return textAt(found, 2);
}

/** Looks at all values of a field. */
type Look = (values: readonly WireField[], path: string) => void;
/** What is to be in a field: one value, or a list of them; functions look at whatever is there. */
export type Want = string | number | boolean | RegExp | Look | WantFields | readonly Want[];
/** What is to be in a message, by numbers of fields, and nothing else. */
export interface WantFields {
  readonly [no: number]: Want;
}

/** @throws {AssertionError} that names the field. */
export function checkMessage(bytes: Uint8Array, want: WantFields, path: string): void {
  const found = Map.groupBy(readFields(bytes), ({ no }) => no);
  const numbers = (all: Iterable<number>) => [...all].toSorted((left, right) => left - right);
  assert.deepEqual(numbers(found.keys()), numbers(Object.keys(want).map(Number)), `the fields of ${path}`);
  for (const [no, wanted] of Object.entries(want)) checkValues(found.get(Number(no)) ?? [], wanted, `${path}.${no}`);
}

function isList(want: Want): want is readonly Want[] {
  return Array.isArray(want);
}

function checkValues(values: readonly WireField[], want: Want, path: string): void {
  if (typeof want === "function") {
    want(values, path);
    return;
  }
  const wanted = isList(want) ? want : [want];
  assert.equal(values.length, wanted.length, `how often ${path} is there`);
  for (const [index, value] of values.entries()) checkValue(value, wanted[index] ?? "", `${path}[${index}]`);
}

function checkValue(found: WireField, want: Want, path: string): void {
  if (typeof want === "function") {
    want([found], path);
    return;
  }
  const { value, wireType } = found;
  if (typeof want === "number" || typeof want === "boolean") {
    assert.deepEqual([wireType, value], [0, BigInt(want)], path);
    return;
  }
  assert.equal(wireType, 2, path);
  const bytes = Buffer.isBuffer(value) ? value : assert.fail(path);
  if (typeof want === "string") assert.equal(bytes.toString(), want, path);
  else if (want instanceof RegExp) assert.match(bytes.toString(), want, path);
  else if (isList(want)) assert.fail(`${path} is one value`);
  else checkMessage(bytes, want, path);
}

/** A time in milliseconds, not of long ago. */
export const aTime: Look = (values, path) => {
  const [{ wireType, value } = assert.fail(path)] = values;
  assert.deepEqual([values.length, wireType], [1, 0], path);
  assert.ok(typeof value === "bigint" && value > 1_700_000_000_000n && value < 4_000_000_000_000n, `${path}: ${value}`);
};

/** A number above 0. */
export const aCount: Look = (values, path) => {
  const [{ wireType, value } = assert.fail(path)] = values;
  assert.deepEqual([values.length, wireType], [1, 0], path);
  assert.ok(typeof value === "bigint" && value > 0n && value < 2n ** 63n, `${path}: ${value}`);
};

/** Numbers of 32 bits. */
export function aFloat(...want: readonly number[]): Look {
  return (values, path) => {
    const floats = values.map(({ wireType, value }) => {
      assert.ok(wireType === 5 && Buffer.isBuffer(value), path);
      return value.readFloatLE();
    });
    assert.deepEqual(floats, want.map(Math.fround), path);
  };
}

/** A number of 64 bits. */
export function aDouble(want: number): Look {
  return ([{ wireType, value } = assert.fail("no double")], path) => {
    assert.ok(wireType === 1 && Buffer.isBuffer(value), path);
    assert.equal(value.readDoubleLE(), want, path);
  };
}

/** Whatever is there. */
export const anything: Look = () => undefined;

/** One value at least is so. */
export function some(want: Want): Look {
  return (values, path) => {
    const faults = values.map((value) => {
      try {
        checkValue(value, want, path);
        return "";
      } catch (error) {
        return String(error);
      }
    });
    assert.ok(faults.includes(""), `none of ${path} is so: ${faults.slice(0, 2).join("; ")}`);
  };
}

/** A map of texts in which these keys are, whatever else. */
export function mapWith(want: Readonly<Record<string, string | RegExp>>): Look {
  return (values, path) => {
    for (const [key, value] of Object.entries(want)) some({ 1: key, 2: value })(values, `${path}.${key}`);
  };
}

/** Fields in an order of their own, those of `within` too: two messages with the same are the same to every reader. */
export function canonical(bytes: Uint8Array, ...within: readonly number[]): readonly string[] {
  return readFields(bytes)
    .map(({ no, wireType, value }) => {
      const isWithin = within.includes(no) && Buffer.isBuffer(value);
      const shown = isWithin ? canonical(value).join(" ") : Buffer.isBuffer(value) ? value.toString("hex") : value;
      return `${no}:${wireType}=${shown}`;
    })
    .toSorted();
}

const hello = "120568656c6c6f";
const session = "0a0477697265";
const entryOfK = "060a016b120176";
const tokens =
  "32120a0d70726f6d70745f746f6b656e73120133" +
  "32160a11636f6d706c6574696f6e5f746f6b656e73120131" +
  "32110a0c746f74616c5f746f6b656e73120134";
const chunkHello = "1204776972651a0568656c6c6f";

/**
 * What clients of each era sent and read, byte by byte: in the session `wire` a user says hello and gets hello back, for 3
 * tokens and 1. The earliest are the enum era's, with the metadata of messages in field 4.
 */
export const eraBytes = {
  L0: {
    request: `${session}1209${"0801"}${hello}`,
    withMetadata: `${session}1211${"0801"}${hello}22${entryOfK}`,
    response: `${session}1209${"0802"}${hello}22060803100118042801`,
    content: `0801${chunkHello}`,
    done: `0805${chunkHello}${tokens}`,
  },
  L1: {
    request: `${session}1209${"0801"}${hello}`,
    withMetadata: `${session}1211${"0801"}${hello}1a${entryOfK}`,
    response: `${session}1209${"0802"}${hello}22060803100118042801`,
    content: `0801${chunkHello}`,
    done: `0805${chunkHello}${tokens}`,
  },
  L2: {
    request: `${session}120d${"0a0475736572"}${hello}`,
    withMetadata: `${session}1215${"0a0475736572"}${hello}1a${entryOfK}`,
    response: `${session}1212${"0a09617373697374616e74"}${hello}22060803100118042a0473746f70`,
    content: `0a07636f6e74656e74${chunkHello}`,
    done: `0a04646f6e65${chunkHello}${tokens}3a0473746f70`,
  },
} as const;
