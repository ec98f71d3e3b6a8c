const prefix = "resp_";

/**
 * The id of a turn's answer: opaque to clients, of letters, digits and `_` only, and holding the ids of its session and
 * turn, so that nothing has to be kept to find them again. It grants nothing: whoever looks for the turn has to be allowed
 * to see its session.
 */
export function responseId(sessionId: string, turnId: string): string {
  const text = Buffer.from(JSON.stringify([sessionId, turnId]), "utf8").toString("base64url");
  return `${prefix}${text.replaceAll("_", "__").replaceAll("-", "_1")}`;
}

/** The turn a response's id names; undefined for a text that `responseId` never gives. */
export function partsOfResponseId(id: string): { readonly sessionId: string; readonly turnId: string } | undefined {
  if (!/^resp_\w+$/.test(id)) return undefined;
  const text = id.slice(prefix.length).replace(/__|_1/g, (escaped) => (escaped === "__" ? "_" : "-"));
  const [sessionId, turnId] = parsedList(Buffer.from(text, "base64url").toString("utf8"));
  if (typeof sessionId !== "string" || typeof turnId !== "string") return undefined;
  return responseId(sessionId, turnId) === id ? { sessionId, turnId } : undefined;
}

function parsedList(json: string): readonly unknown[] {
  try {
    const value: unknown = JSON.parse(json);
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}
