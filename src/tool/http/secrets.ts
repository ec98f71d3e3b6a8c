/** Anything shorter occurs in texts by chance. */
const leastCharacters = 4;

/** Replaces secrets in a text: as they are, as in JSON, as in URLs and as in forms. */
export function secretBlanker(secrets: readonly string[]): (text: string) => string {
  const forms = new Set(
    secrets
      .map((secret) => secret.trim().toWellFormed())
      .filter((secret) => secret.length >= leastCharacters)
      .flatMap((secret) => [
        secret,
        JSON.stringify(secret).slice(1, -1),
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
