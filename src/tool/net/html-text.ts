import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import type { convert as Convert } from "html-to-text";

/** The readable part of a page. */
export interface PageText {
  /** Headings as `#`, lists with `-`, links as `text [address]` with whole addresses; without scripts, styles and images. */
  readonly text: string;
  /** Empty where the page has none. */
  readonly title: string;
}

/** Pages read at the same time; each takes a thread. */
const maxReaders = 2;
const limitMs = 5000;
const maxDepth = 200;
const marker = "codeagent-html-text";

let readers = 0;
const waiting: (() => void)[] = [];

/**
 * Reads a page in a thread of its own, since a hostile one can keep the parser busy for as long as it likes.
 * @throws {Error} when that takes more than 5 s, and the reason of the signal.
 */
export async function htmlText(html: string, baseUrl: string, signal: AbortSignal): Promise<PageText> {
  if (readers >= maxReaders) await new Promise<void>((resolve) => waiting.push(resolve));
  else readers++;
  try {
    signal.throwIfAborted();
    return await readInThread(html, baseUrl, signal);
  } finally {
    const next = waiting.shift();
    if (next === undefined) readers--;
    else next();
  }
}

async function readInThread(html: string, baseUrl: string, signal: AbortSignal): Promise<PageText> {
  const { promise, resolve, reject } = Promise.withResolvers<PageText>();
  const worker = new Worker(new URL(import.meta.url), {
    workerData: { marker, html, baseUrl },
    env: {},
    resourceLimits: { maxOldGenerationSizeMb: 256, stackSizeMb: 4 },
  });
  const timer = setTimeout(() => reject(new Error(`the page could not be read within ${limitMs} ms`)), limitMs);
  const onAbort = () => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  worker.once("message", (answer: unknown) => {
    if (isPageText(answer)) resolve(answer);
    else reject(new Error("the page cannot be read"));
  });
  worker.once("error", (cause) => reject(new Error("the page cannot be read", { cause })));
  worker.once("exit", () => reject(new Error("the page cannot be read")));
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
    await worker.terminate();
  }
}

function isPageText(value: unknown): value is PageText {
  return (
    typeof value === "object" &&
    value !== null &&
    "text" in value &&
    typeof value.text === "string" &&
    "title" in value &&
    typeof value.title === "string"
  );
}

function pageText(convert: typeof Convert, html: string, baseUrl: string): PageText {
  const ignored = ["img", "svg", "nav", "noscript", "template", "iframe", "button"];
  const headings = ["h1", "h2", "h3", "h4", "h5", "h6"];
  const text = convert(html, {
    wordwrap: false,
    limits: { maxDepth },
    baseElements: { selectors: ["main", "article", "body"], returnDomByDefault: true, orderBy: "selectors" },
    formatters: {
      markedHeading: (element, walk, builder, options) => {
        builder.openBlock({ leadingLineBreaks: 2 });
        builder.addInline(`${"#".repeat(Number(element.name?.slice(1) ?? 1))} `);
        walk(element.children, builder);
        builder.closeBlock({ trailingLineBreaks: options["trailingLineBreaks"] ?? 2 });
      },
    },
    selectors: [
      ...ignored.map((selector) => ({ selector, format: "skip" })),
      ...headings.map((selector) => ({ selector, format: "markedHeading" })),
      { selector: "table", format: "dataTable", options: { uppercaseHeaderCells: false } },
      { selector: "ul", options: { itemPrefix: "- " } },
      {
        selector: "a",
        options: { ignoreHref: false, noAnchorUrl: true, hideLinkHrefIfSameAsText: true, pathRewrite: absolute },
      },
    ],
  });
  return { text, title: titleOf(convert, html) };

  function absolute(path: string): string {
    return URL.parse(path, baseUrl)?.href ?? path;
  }
}

function titleOf(convert: typeof Convert, html: string): string {
  const head = html.slice(0, 64 * 1024);
  const start = head.search(/<title[\s>]/i);
  if (start === -1) return "";
  const open = head.indexOf(">", start);
  const end = head.slice(open).search(/<\/title/i);
  if (open === -1 || end === -1) return "";
  return convert(head.slice(open + 1, open + end).slice(0, 1000), { wordwrap: false })
    .replace(/\s+/g, " ")
    .trim();
}

const given: unknown = workerData;
// Only the threads that read pages need the library.
if (!isMainThread && isTask(given)) {
  const { convert } = await import("html-to-text");
  parentPort?.postMessage(pageText(convert, given.html, given.baseUrl));
}

function isTask(value: unknown): value is { html: string; baseUrl: string } {
  return typeof value === "object" && value !== null && "marker" in value && value.marker === marker;
}
