/** Anything shorter occurs in texts by chance. */
const leastCharacters = 4;

/** Replaces secrets in a text: as they are, as in JSON and in JSON within JSON, as in URLs as in forms and in Base64. */
export function secretBlanker(secrets: readonly string[]): (text: string) => string {
  const forms = new Set(
    secrets
      .map((secret) => secret.trim().toWellFormed())
      .filter((secret) => secret.length >= leastCharacters)
      .flatMap((secret) => [
        secret,
        inJson(secret),
        inJson(inJson(secret)),
        encodeURIComponent(secret),
        new URLSearchParams([["", secret]]).toString().slice(1),
        Buffer.from(secret).toString("base64").replace(/=+$/, ""),
      ]),
  );
  // The longest first, so that none leaves the end of another behind.
  const ordered = [...forms].sort((left, right) => right.length - left.length);
  return (text) => {
    let blank = text;
    for (const form of ordered) blank = blank.replaceAll(form, "[hidden]");
    return blank;
  };
}

function inJson(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
