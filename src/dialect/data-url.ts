export interface DataUrl {
  /** In lower case and without parameters, for example `image/png`. */
  readonly mediaType: string;
  readonly base64: string;
}

/** What a `data:` URL holds; undefined for any other text, or where its escapes do not decode. */
export function parseDataUrl(url: string): DataUrl | undefined {
  if (!/^data:/i.test(url)) return undefined;
  const comma = url.indexOf(",");
  if (comma === -1) return undefined;
  const [mediaType, ...parameters] = url.slice("data:".length, comma).toLowerCase().split(";");
  const content = url.slice(comma + 1);
  try {
    return {
      mediaType: mediaType?.trim() || "text/plain",
      base64: parameters.some((parameter) => parameter.trim() === "base64")
        ? content
        : Buffer.from(decodeURIComponent(content), "utf8").toString("base64"),
    };
  } catch {
    return undefined;
  }
}
