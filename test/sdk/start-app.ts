import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type App, startApp } from "../../src/app.ts";
import { readConfig } from "../../src/config.ts";

export interface TestServer {
  readonly url: string;
  readonly port: number;
  /** Ends the server without grace and starts it again on the same port and data. */
  restart(): Promise<void>;
  /** Ends it; `start` brings it back. */
  stop(): Promise<void>;
  start(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A real server in this process, whose model is a script (YAML). */
export async function startTestServer(script: string, flags: Record<string, string> = {}): Promise<TestServer> {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-sdk-"));
  writeFileSync(join(folder, "script.yaml"), script);
  let port = 0;
  let app: App | undefined;
  const start = async () => {
    const config = readConfig({
      env: {},
      workingDirectory: folder,
      flags: {
        port: String(port),
        data_dir: join(folder, "data"),
        "scripted.file": join(folder, "script.yaml"),
        model: "scripted/demo",
        ...flags,
      },
    });
    app = await startApp({ config, env: {}, report: () => undefined });
    port = Number(new URL(app.url).port);
  };
  const stop = async () => {
    await app?.close(0);
    app = undefined;
  };
  await start();
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    start,
    stop,
    async restart() {
      await stop();
      await start();
    },
    async [Symbol.asyncDispose]() {
      await stop();
      rmSync(folder, { recursive: true });
    },
  };
}
