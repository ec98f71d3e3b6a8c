import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { skipWithout } from "./program.ts";

const browser = "chromium-headless-shell";
const limitMs = 30_000;

export const skipWithoutChromium = skipWithout(browser, ["--version"]);

/**
 * Runs scripts in pages of a real browser; each calls `tell(text)` when it is done. `origin` is the pages' own, to be allowed by
 * the servers they call.
 */
export async function inChromium() {
  const told = new Map<string, (text: string) => void>();
  const pages = new Map<string, string>();
  const site = createServer(async (request, response) => {
    const path = request.url ?? "";
    if (request.method === "POST") {
      told.get(path)?.(Buffer.concat(await request.toArray()).toString());
      response.end();
      return;
    }
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end(pages.get(path) ?? "");
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  const address = site.address();
  if (address === null || typeof address === "string") throw new Error("the site has no port");
  const origin = `http://127.0.0.1:${address.port}`;
  const profile = mkdtempSync(join(tmpdir(), "codeagent-chromium-"));
  let child: ChildProcess | undefined;
  return {
    origin,
    /**
     * @param names what the script finds as global variables.
     * @param body HTML that the page shows before the script runs.
     * @param query of the page's address, with its question mark.
     */
    async run(script: string, names: Readonly<Record<string, string>>, body = "", query = ""): Promise<unknown> {
      const path = `/${pages.size + 1}${query}`;
      const globals = Object.entries(names).map(([name, text]) => `globalThis.${name} = ${JSON.stringify(text)};`);
      const tell = `globalThis.tell = (text) => fetch(${JSON.stringify(path)}, { method: "POST", body: text });`;
      const code = `${globals.join("")}${tell}${script}`.replaceAll("</script", "<\\/script");
      pages.set(path, `<!doctype html><meta charset="utf-8"><body>${body}<script>${code}</script>`);
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      told.set(path, resolve);
      const timer = setTimeout(() => reject(new Error(`the page told nothing within ${limitMs} ms`)), limitMs);
      const words = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"];
      child = spawn(browser, [...words, `--user-data-dir=${profile}`, `${origin}${path}`], {
        stdio: "ignore",
        detached: true,
      });
      child.once("error", reject);
      try {
        return JSON.parse(await promise);
      } finally {
        clearTimeout(timer);
        await ended(child);
      }
    },
    async [Symbol.asyncDispose]() {
      if (child !== undefined) await ended(child);
      site.close();
      site.closeAllConnections();
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  // The program on the path is a script that starts the browser, which starts others: they are one group.
  if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  await once(child, "exit");
}
