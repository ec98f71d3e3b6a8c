// Serves the page, on port 8080 or that of PAGE_PORT.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { build } from "esbuild";

const here = import.meta.dirname;
const { outputFiles } = await build({ entryPoints: [`${here}/page.ts`], bundle: true, write: false, format: "iife" });
const script = outputFiles[0]?.text ?? "";
const site = createServer(async (request, response) => {
  const isScript = request.url === "/page.js";
  response.setHeader("content-type", `${isScript ? "text/javascript" : "text/html"}; charset=utf-8`);
  response.end(isScript ? script : await readFile(`${here}/index.html`));
});
site.listen(Number(process.env["PAGE_PORT"] ?? 8080), "127.0.0.1", () => {
  const address = site.address();
  const port = typeof address === "object" ? address?.port : address;
  console.log(`open http://127.0.0.1:${port} in a browser`);
});
