/**
 * The members of an object as they stand in its JSON text, keys read and values byte for byte; of a key that comes
 * twice the last one, as `JSON.parse` has it.
 * @param text JSON that parses; for anything but an object there are no members.
 */
export function memberSlices(text: string): Map<string, string> {
  const members = new Map<string, string>();
  let position = skipSpace(text, 0);
  if (text[position] !== "{") return members;
  position = skipSpace(text, position + 1);
  while (position < text.length && text[position] !== "}") {
    const keyEnd = skipValue(text, position);
    const key: unknown = JSON.parse(text.slice(position, keyEnd));
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = skipValue(text, start);
    members.set(String(key), text.slice(start, end));
    position = skipComma(text, end);
  }
  return members;
}

/**
 * The elements of an array as they stand in its JSON text, byte for byte.
 * @param text JSON that parses; for anything but an array there are no elements.
 */
export function elementSlices(text: string): string[] {
  const elements: string[] = [];
  let position = skipSpace(text, 0);
  if (text[position] !== "[") return elements;
  position = skipSpace(text, position + 1);
  while (position < text.length && text[position] !== "]") {
    const end = skipValue(text, position);
    elements.push(text.slice(position, end));
    position = skipComma(text, end);
  }
  return elements;
}

function skipSpace(text: string, from: number): number {
  let position = from;
  while (position < text.length && " \t\n\r".includes(text.charAt(position))) position++;
  return position;
}

function skipComma(text: string, from: number): number {
  const position = skipSpace(text, from);
  return text[position] === "," ? skipSpace(text, position + 1) : position;
}

/** Where the value that begins at `from` ends. */
function skipValue(text: string, from: number): number {
  let position = from;
  let depth = 0;
  do {
    const first = text[position];
    if (first === '"') position = skipString(text, position);
    else if (first === "{" || first === "[") {
      depth++;
      position++;
    } else if (first === "}" || first === "]") {
      depth--;
      position++;
    } else if (depth > 0) position++;
    else position = skipScalar(text, position);
  } while (depth > 0 && position < text.length);
  return position;
}

function skipString(text: string, from: number): number {
  for (let position = from + 1; position < text.length; position++) {
    if (text[position] === "\\") position++;
    else if (text[position] === '"') return position + 1;
  }
  return text.length;
}

function skipScalar(text: string, from: number): number {
  let position = from;
  while (position < text.length && !",]} \t\n\r".includes(text.charAt(position))) position++;
  return position === from ? from + 1 : position;
}
