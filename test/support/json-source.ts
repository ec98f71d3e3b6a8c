/** A value of a JSON text, and the text it was written in. */
export interface JsonSource {
  readonly source: string;
  /** The members of an object, in the order they were written. */
  readonly members: ReadonlyMap<string, JsonSource>;
  readonly elements: readonly JsonSource[];
}

/**
 * Reads a JSON text by its tokens, so that tests can compare what was written and not only what it means.
 * @throws {Error} where a token is missing; otherwise it believes what it is given.
 */
export function readJsonSource(text: string): JsonSource {
  const tokens = [...text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g)];
  let next = 0;
  const take = () => {
    const token = tokens[next++];
    if (token === undefined) throw new Error(`the JSON ends too early: ${text.slice(-100)}`);
    return { word: token[0], start: token.index, end: token.index + token[0].length };
  };
  const readValue = (): JsonSource => {
    const members = new Map<string, JsonSource>();
    const elements: JsonSource[] = [];
    const first = take();
    let { word, end } = first;
    while (first.word === "{" ? word !== "}" : first.word === "[" && word !== "]") {
      const closes = tokens[next]?.[0] === "}" || tokens[next]?.[0] === "]";
      if (!closes && first.word === "{") {
        const key = take().word;
        take();
        members.set(String(JSON.parse(key)), readValue());
      } else if (!closes) elements.push(readValue());
      ({ word, end } = take());
    }
    return { source: text.slice(first.start, end), members, elements };
  };
  return readValue();
}
