import { execFile } from "node:child_process";
import { existsSync, readlinkSync, realpathSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { openPipes } from "../pipes.ts";
import { descendantsOf } from "../process-tree.ts";
import { type SupervisedProcess, spawnSupervised } from "../supervise.ts";
import type { SandboxOptions } from "./create-sandbox.ts";
import { programEnvironment } from "./environment.ts";
import { findProgram } from "./find-program.ts";
import { hiddenPlaces } from "./hidden-places.ts";
import { limitsOf, mostProcesses } from "./limits.ts";
import { protectedPlacesIn } from "./placeholders.ts";
import { type ProgramAccess, type ProgramStart, type SandboxState, SandboxUnavailableError } from "./sandbox.ts";

const run = promisify(execFile);
const gibibyte = 1024 ** 3;
const probeLimitMs = 5000;

/** What programs need of the system besides /usr: links there on most systems, folders on some. */
const besidesUsr = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];
/** What they read in /etc: how to find libraries, names, certificates, the time. No secrets. */
const inEtc = [
  ...["alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "nsswitch.conf", "localtime"],
  ...["timezone", "passwd", "group", "hosts", "resolv.conf", "host.conf", "gai.conf", "protocols", "services", "ssl"],
  ...["pki", "ca-certificates", "ca-certificates.conf", "crypto-policies", "mime.types", "magic", "os-release"],
  ...["debian_version", "lsb-release", "python3", "perl", "java", "terminfo", "fonts", "gitconfig", "locale.conf"],
].map((name) => `/etc/${name}`);

/** What a bubblewrap can do. */
export interface BubblewrapFeatures {
  readonly program: string;
  readonly prlimit: string;
  /** Size of memory file systems can be bounded. */
  readonly boundsSize: boolean;
  /** It can keep programs from making user namespaces, in which they would have rights to try the kernel with. */
  readonly endsNamespaces: boolean;
}

interface Mount {
  readonly path: string;
  readonly how: "hide" | "read" | "write";
}

/** Paths that are a program's own, in memory; they go with it. */
const ownPlaces = {
  few: { home: "/tmp/home", temporary: "/tmp" },
  everything: { home: "/run/home", temporary: "/run/tmp" },
} as const;

/** Our own walls, made by bubblewrap: a program sees what it may use and nothing else of this machine. */
export class BubblewrapSandbox {
  readonly kind = "bwrap";
  readonly #options: SandboxOptions;
  #ready: Promise<BubblewrapFeatures> | undefined;

  constructor(options: SandboxOptions) {
    this.#options = options;
  }

  async start(program: ProgramStart): Promise<SupervisedProcess> {
    const features = await this.#features();
    return startWalled(program, features, this.#options);
  }

  async describe(): Promise<SandboxState> {
    try {
      const { program } = await this.#features();
      const network = this.#options.network ? "with the network" : "without network";
      return { kind: this.kind, isReady: true, detail: `bubblewrap (${program}), ${network}` };
    } catch (error) {
      return { kind: this.kind, isReady: false, detail: error instanceof Error ? error.message : String(error) };
    }
  }

  async close(): Promise<void> {}

  /** What failed is tried again next time: somebody may have installed it. */
  #features(): Promise<BubblewrapFeatures> {
    this.#ready ??= probed(this.#options);
    this.#ready.catch(() => {
      this.#ready = undefined;
    });
    return this.#ready;
  }
}

/** By the path of the program; shared by all servers of this process. */
const knownToWork = new Map<string, BubblewrapFeatures>();

async function probed(options: SandboxOptions): Promise<BubblewrapFeatures> {
  const program = findProgram("bwrap", options.env["PATH"]);
  if (program === undefined) {
    throw unavailable("bubblewrap is not installed; install it (apt install bubblewrap, dnf install bubblewrap)");
  }
  const known = knownToWork.get(program);
  if (known !== undefined) return known;
  const prlimit = findProgram("prlimit", "/usr/bin:/bin");
  if (prlimit === undefined) throw unavailable("prlimit is missing; install util-linux");
  const help = await run(program, ["--help"], { timeout: probeLimitMs, env: {} }).catch(() => undefined);
  if (help === undefined) throw unavailable(`${program} does not run`);
  const features = {
    program,
    prlimit,
    boundsSize: help.stdout.includes("--size"),
    endsNamespaces: help.stdout.includes("--disable-userns"),
  };
  const trial: ProgramStart = {
    program: "true",
    args: [],
    cwd: "/",
    env: {},
    access: { writable: [], readable: [], network: false },
  };
  const { access, ...rest } = trial;
  const args = bubblewrapArguments({ ...rest, access }, features, { ...options, readable: [], writable: [] }, []);
  const env = programEnvironment({}, options.env, ownPlaces.few.home, ownPlaces.few.temporary);
  try {
    await run(program, args, { timeout: probeLimitMs, killSignal: "SIGKILL", env });
  } catch (error) {
    const said = error instanceof Error && "stderr" in error ? String(error.stderr).trim().split("\n").at(-1) : "";
    throw unavailable(
      `bubblewrap can't make its namespaces here${said ? ` (${said})` : ""}; allow unprivileged user namespaces`,
    );
  }
  knownToWork.set(program, features);
  return features;
}

function unavailable(why: string): SandboxUnavailableError {
  return new SandboxUnavailableError(
    `programs can't be run within a sandbox: ${why}, or set "sandbox: none" to run them without`,
  );
}

async function startWalled(
  program: ProgramStart,
  features: BubblewrapFeatures,
  options: SandboxOptions,
): Promise<SupervisedProcess> {
  const { home, temporary } = ownPlaces[program.access.readsEverything ? "everything" : "few"];
  const env = programEnvironment(program.env, options.env, home, temporary);
  const { paths, release } = await protectedPlacesIn(program.access.writable.filter((path) => isFolder(path)));
  try {
    const args = bubblewrapArguments(program, features, options, paths);
    const pipes = await openPipes(program.stdin === "pipe");
    // The variables go by the environment, not by arguments, which everybody on the machine can read.
    const started = spawnSupervised(features.program, args, {
      cwd: "/",
      env,
      makesNamespace: true,
      ...(program.stdin === undefined ? {} : { stdin: program.stdin }),
      ...(pipes === undefined ? {} : { pipes }),
    });
    const stopCounting = process.getuid?.() === 0 ? watchNumber(started) : () => undefined;
    const ended = started.ended.finally(() => {
      stopCounting();
      return release();
    });
    // Who started it may look at its end later.
    ended.catch(() => undefined);
    return { ...started, ended };
  } catch (error) {
    await release();
    throw error;
  }
}

/**
 * The command line. What lies deeper is mounted later, so the innermost word on a path is the one that holds.
 * @param guarded paths that no program may change.
 */
export function bubblewrapArguments(
  { program, args, cwd, access }: ProgramStart,
  { boundsSize, endsNamespaces, prlimit }: BubblewrapFeatures,
  options: SandboxOptions,
  guarded: readonly string[],
): string[] {
  const network = access.network || options.network;
  const memory = (path: string, bytes: number, mode = "0700") => [
    ...["--perms", mode],
    ...(boundsSize ? ["--size", String(bytes)] : []),
    ...["--tmpfs", path],
  ];
  const everything = access.readsEverything === true;
  const own = ownPlaces[everything ? "everything" : "few"];
  const mounts = mountsOf(access, options, guarded);
  return [
    ...["--unshare-all", "--die-with-parent", "--new-session"],
    // Root would have every right within, also that to unmount what protects a file.
    ...["--cap-drop", "ALL"],
    ...(endsNamespaces ? ["--unshare-user", "--disable-userns"] : []),
    ...(network ? ["--share-net"] : []),
    ...(everything ? ["--ro-bind", "/", "/"] : systemMounts()),
    // The kernel lets root, also one without rights, set what holds for the whole machine in /proc/sys: what it runs when a
    // program crashes, for example.
    ...["--proc", "/proc", "--remount-ro", "/proc"],
    ...["--dev", "/dev", ...memory("/dev/shm", gibibyte, "1777"), "--remount-ro", "/dev"],
    ...(everything
      ? [...memory("/run", 1024 ** 2, "0755"), ...memory(own.temporary, gibibyte), ...memory(own.home, gibibyte)]
      : [...memory("/tmp", gibibyte, "1777"), "--perms", "0700", "--dir", own.home]),
    ...(everything && network ? nameServers() : []),
    ...mounts.flatMap(({ path, how }) => {
      if (how === "write") return ["--bind", path, path];
      if (how === "read") return ["--ro-bind", path, path];
      return isFolder(path) ? memory(path, 1024 ** 2) : ["--ro-bind", "/dev/null", path];
    }),
    // What is hidden is to look empty, not to be a place to write to; the same goes for what lies between the mounts.
    ...mounts.flatMap(({ path, how }) => (how === "hide" && isFolder(path) ? ["--remount-ro", path] : [])),
    ...(everything ? ["--remount-ro", "/run"] : ["--remount-ro", "/"]),
    ...["--chdir", cwd, "--", prlimit, ...limitsOf({ countsProcesses: true }), "--", program, ...args],
  ];
}

function systemMounts(): string[] {
  const beside = besidesUsr.flatMap((path) => {
    const target = linkTarget(path);
    if (target !== undefined) return ["--symlink", target, path];
    return existsSync(path) ? ["--ro-bind", path, path] : [];
  });
  return ["--ro-bind", "/usr", "/usr", ...beside, ...inEtc.flatMap((path) => ["--ro-bind-try", path, path])];
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

/** Where names are looked up is often a link into /run, of which nothing else is shown. */
function nameServers(): string[] {
  try {
    const file = realpathSync("/etc/resolv.conf");
    return file.startsWith("/run/") ? ["--ro-bind", file, file] : [];
  } catch {
    return [];
  }
}

/** On the same path the later one of a list and the later list hold. */
function mountsOf(access: ProgramAccess, options: SandboxOptions, guarded: readonly string[]): Mount[] {
  const node = dirname(process.execPath);
  const shown = [
    ...[node, ...options.readable, ...access.readable].map((path): Mount => ({ path, how: "read" })),
    ...access.writable.map((path): Mount => ({ path, how: "write" })),
    ...guarded.map((path): Mount => ({ path, how: "read" })),
    ...options.writable.map((path): Mount => ({ path, how: "write" })),
  ];
  const isShown = (path: string) =>
    access.readsEverything === true || shown.some((mount) => path.startsWith(`${mount.path}/`));
  const hidden = hiddenPlaces(options.dataDir, options.env).filter(isShown);
  const byPath = new Map<string, Mount>();
  const hide = (path: string): Mount => ({ path, how: "hide" });
  // What holds this server's secrets is hidden also where all around it is shown.
  for (const mount of [...hidden.map(hide), ...shown, ...(options.hidden ?? []).filter(isShown).map(hide)])
    byPath.set(mount.path, mount);
  return [...byPath.values()]
    .filter(({ path }) => existsSync(path))
    .sort((left, right) => depthOf(left.path) - depthOf(right.path));
}

function depthOf(path: string): number {
  return path === "/" ? 0 : path.split("/").length;
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

const countEveryMs = 250;

/**
 * Linux never refuses root another process, so as root we count. One look at how many there are on the whole machine is
 * enough, as long as they are not so many more than at first.
 * @returns what ends it.
 */
function watchNumber(started: SupervisedProcess): () => void {
  let atFirst: number | undefined;
  let isBusy = false;
  const look = async (): Promise<void> => {
    const all = Number(/\/(\d+) /.exec(await readFile("/proc/loadavg", "utf8").catch(() => ""))?.[1] ?? 0);
    atFirst ??= all;
    if (all < atFirst + mostProcesses || started.pid === undefined) return;
    if ((await descendantsOf(started.pid)).length > mostProcesses) await started.stop();
  };
  const timer = setInterval(() => {
    if (isBusy) return;
    isBusy = true;
    void look().finally(() => {
      isBusy = false;
    });
  }, countEveryMs);
  timer.unref();
  return () => clearInterval(timer);
}
