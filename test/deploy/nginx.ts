import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { makeCertificate } from "../support/certificate.ts";

const program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"].find((path) => existsSync(path));

/** Why nginx can't be run here; `false` where it can. To be given to a test as `skip`. */
export const noNginx: string | false = (() => {
  if (program === undefined) return "nginx is not installed (on Debian: apt install nginx-light)";
  if (makeCertificate() === undefined) return "openssl is not installed, and nginx needs a certificate";
  return false;
})();

export interface NginxPorts {
  /** TLS, for every protocol. */
  readonly tls: number;
  /** gRPC in the clear. */
  readonly grpc: number;
  /** HTTP/1.1 in the clear. */
  readonly http: number;
}

/** The file as it is delivered, but for addresses, and with a folder of its own for what nginx writes. */
function configFor(folder: string, ports: NginxPorts, servers: readonly string[]): string {
  const certificate = makeCertificate() ?? assert.fail("openssl made no certificate");
  const [cert, key] = [join(folder, "tls.crt"), join(folder, "tls.key")];
  writeFileSync(cert, certificate.cert);
  writeFileSync(key, certificate.key, { mode: 0o600 });
  const own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${join(folder, name)};`,
  );
  const changes: readonly (readonly [string, string])[] = [
    ["\nhttp {", `\nhttp {\n    access_log off;\n    ${own.join("\n    ")}`],
    ["worker_processes auto;", "worker_processes 1;"],
    ["server codeagent-a:4088", `server ${servers[0]}`],
    ["server codeagent-b:4088", `server ${servers[1]}`],
    ["listen 443 ", `listen 127.0.0.1:${ports.tls} `],
    ["listen 4088 ", `listen 127.0.0.1:${ports.grpc} `],
    ["listen 4089;", `listen 127.0.0.1:${ports.http};`],
    ["/etc/nginx/tls/codeagent.crt", cert],
    ["/etc/nginx/tls/codeagent.key", key],
  ];
  let text = readFileSync(new URL("../../deploy/nginx.conf", import.meta.url), "utf8");
  for (const [from, to] of changes) {
    assert.ok(text.includes(from), `deploy/nginx.conf has no ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

function wordsFor(folder: string): string[] {
  const globals = `daemon off; pid ${join(folder, "pid")};`;
  return ["-p", folder, "-e", join(folder, "error.log"), "-c", join(folder, "nginx.conf"), "-g", globals];
}

function makeFolder(ports: NginxPorts, servers: readonly string[]): string {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-nginx-"));
  // Workers run under an account of their own when we are root.
  chmodSync(folder, 0o711);
  mkdirSync(join(folder, "logs"));
  writeFileSync(join(folder, "nginx.conf"), configFor(folder, ports, servers));
  return folder;
}

/** What nginx itself says of the file; throws its words when it would not start with it. */
export function checkNginxConfig(): string {
  const folder = makeFolder({ tls: 8443, grpc: 8088, http: 8089 }, ["127.0.0.1:1", "127.0.0.1:2"]);
  try {
    const { status, stderr } = spawnSync(program ?? "nginx", ["-t", ...wordsFor(folder)], { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    return stderr;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export interface RunningNginx extends NginxPorts {
  /** What it complained about so far. */
  errors(): string;
  stop(): Promise<void>;
}

/** Starts nginx with the rules of `deploy/nginx.conf` before two servers, given as `host:port`. */
export async function startNginx(servers: readonly [string, string]): Promise<RunningNginx> {
  const ports = { tls: await freePort(), grpc: await freePort(), http: await freePort() };
  const folder = makeFolder(ports, servers);
  const child = spawn(program ?? "nginx", wordsFor(folder), { stdio: ["ignore", "ignore", "inherit"] });
  const stop = async () => {
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await answers(ports.http, child);
  } catch (error) {
    await stop();
    throw error;
  }
  const log = join(folder, "error.log");
  return { ...ports, stop, errors: () => (existsSync(log) ? readFileSync(log, "utf8") : "") };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  await exited;
}

/** Waits until somebody listens at the port. */
async function answers(port: number, child: ChildProcess): Promise<void> {
  for (const limit = AbortSignal.timeout(10_000); ; await wait(20)) {
    assert.equal(child.exitCode, null, "nginx ended at its start");
    const socket = connect(port, "127.0.0.1");
    const open = await Promise.race([once(socket, "connect").then(() => true), once(socket, "close").then(() => false)])
      .catch(() => false)
      .finally(() => socket.destroy());
    if (open) return;
    assert.ok(!limit.aborted, "nginx does not listen");
  }
}

/** A port nobody listens at. Where two programs have to agree on one before either runs there is no better way. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const address = probe.address();
  probe.close();
  await once(probe, "close");
  return address === null || typeof address === "string" ? assert.fail("no port") : address.port;
}
