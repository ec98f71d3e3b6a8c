import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { objectOf, parseJson, textOf } from "../dialect/json.ts";
import { isLoopback, isSafeForSecrets } from "./ask-github.ts";

/** A login at GitHub, as it is kept in the data directory. */
export interface CopilotLogin {
  /** Where the login was made: `https://github.com`, or that of an enterprise. Nothing but its origin counts. */
  readonly host: URL;
  readonly githubToken: string;
}

/** Path of the file with the login. */
export function copilotLoginFile(dataDir: string): string {
  return join(dataDir, "logins", "copilot.json");
}

/** Where tokens of a host are traded: enterprises with their data at `<name>.ghe.com` have an API of their own. */
export function tokenUrlOf(host: URL): URL {
  const url = new URL("/copilot_internal/v2/token", host);
  if (!isLoopback(url.hostname)) url.hostname = `api.${url.hostname}`;
  return url;
}

/** Whether a token can be sent in a header. */
export function isToken(text: string): boolean {
  return text.length <= 8192 && /^[\x21-\x7e]+$/.test(text);
}

/** The login of a file; undefined where there is none or it holds something else. */
export function readCopilotLogin(file: string): CopilotLogin | undefined {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
  const login = objectOf(parseJson(text));
  const host = URL.parse(textOf(login["host"]));
  const githubToken = textOf(login["github_token"]);
  if (host === null || !isSafeForSecrets(host) || !isToken(githubToken)) return undefined;
  return { host: new URL(host.origin), githubToken };
}

/** Changes whenever the file does; empty where it cannot be seen. */
export function stampOf(file: string): string {
  try {
    const { ino, size, mtimeNs } = statSync(file, { bigint: true });
    return `${ino} ${size} ${mtimeNs}`;
  } catch {
    return "";
  }
}

/**
 * Keeps a login, for the owner's eyes only. A reader sees the one before or this one, never a part. The folder of the
 * file has to be there.
 */
export function writeCopilotLogin(file: string, { host, githubToken }: CopilotLogin): void {
  const draft = `${file}.${process.pid}.new`;
  try {
    // One left behind would keep its mode.
    rmSync(draft, { force: true });
    const descriptor = openSync(draft, "wx", 0o600);
    try {
      writeFileSync(descriptor, `${JSON.stringify({ host: host.origin, github_token: githubToken })}\n`);
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    renameSync(draft, file);
  } finally {
    rmSync(draft, { force: true });
  }
}
