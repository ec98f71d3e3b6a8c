import { rmSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { makeDataDir } from "../data-dir.ts";
import { isSafeForSecrets } from "../provider/ask-github.ts";
import { copilotLoginFile, writeCopilotLogin } from "../provider/copilot-login.ts";
import { configFrom } from "./config-flags.ts";
import { deviceLogin } from "./device-login.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { onStopSignal } from "./stop-signals.ts";
import { pageOn } from "./terminal.ts";

export interface LogoutFlags {
  readonly config?: string;
  readonly dataDir?: string;
}

export interface LoginFlags extends LogoutFlags {
  /** Name or URL of a GitHub Enterprise server. */
  readonly host?: string;
  readonly clientId?: string;
}

/** GitHub's own app for editors, as CopilotChat.nvim and LiteLLM name it; tokens of few other apps can be traded. */
const editorsClientId = "Iv1.b507a08c87ecfe98";

/**
 * Logs in to Copilot with a browser and keeps the login in the data directory, where a server that runs finds it.
 * Ctrl-C gives up.
 * @returns the exit code.
 * @throws {Error} one sentence, when the login did not come about.
 */
export async function login(flags: LoginFlags, { env, redactor }: TakenEnvironment): Promise<number> {
  const host = hostFrom(flags.host ?? "github.com");
  const file = fileFrom(flags, env);
  // What can't be kept is not asked for.
  makeDataDir(dirname(file));
  const page = pageOn(process.stdout);
  const giveUp = new AbortController();
  const restore = onStopSignal(() => giveUp.abort(new Error("the login was given up; nothing has changed")), "stop");
  try {
    const githubToken = await deviceLogin({
      host,
      clientId: flags.clientId ?? editorsClientId,
      signal: giveUp.signal,
      delay: async (delayMs, signal) => wait(delayMs, undefined, { signal }),
      now: () => performance.now(),
      show({ userCode, url, expiresInMs }) {
        page.write(`Open ${url} in a browser and enter the code `);
        page.write(userCode, "bold");
        page.write("\n");
        page.write(`Waiting for that; the code is good for ${Math.round(expiresInMs / 60_000)} minutes.\n`, "dim");
      },
    });
    redactor.hide(githubToken);
    writeCopilotLogin(file, { host, githubToken });
  } catch (error) {
    // A wait that was cut short names itself, not who cut it.
    if (giveUp.signal.aborted) throw giveUp.signal.reason;
    throw error;
  } finally {
    restore();
  }
  page.write(`Logged in at ${host.host}; the login is kept in ${file}, for you alone to read.\n`);
  page.write('Use its models as copilot/<model>: codeagent run --model copilot/gpt-4.1 "hello"\n');
  sayWhatWins(page, env);
  return 0;
}

/** Removes the login; a server that runs notices. */
export async function logout(flags: LogoutFlags, { env }: TakenEnvironment): Promise<number> {
  const file = fileFrom(flags, env);
  const page = pageOn(process.stdout);
  try {
    rmSync(file);
    page.write("Logged out here. GitHub lets the app in until you revoke that in your settings there.\n");
  } catch (error) {
    if (!(error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR")))
      throw error;
    page.write("There was no login.\n");
  }
  sayWhatWins(page, env);
  return 0;
}

function sayWhatWins(page: ReturnType<typeof pageOn>, env: TakenEnvironment["env"]): void {
  if (!env["COPILOT_GITHUB_TOKEN"]?.trim()) return;
  page.write("COPILOT_GITHUB_TOKEN is set and wins over a login; unset it to use one.\n");
}

function fileFrom({ config, dataDir }: LogoutFlags, env: TakenEnvironment["env"]): string {
  const flags = { ...(config === undefined ? {} : { config }), ...(dataDir === undefined ? {} : { dataDir }) };
  return copilotLoginFile(configFrom(flags, env).data_dir);
}

function hostFrom(given: string): URL {
  const url = URL.parse(given.includes("://") ? given : `https://${given}`);
  if (url !== null && isSafeForSecrets(url) && url.username === "" && url.password === "") return new URL(url.origin);
  throw new Error(`--host is ${JSON.stringify(given)}: a name like company.ghe.com is wanted, or its https: URL`);
}
