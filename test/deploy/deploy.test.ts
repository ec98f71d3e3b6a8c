import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { parse } from "yaml";
import { contractFiles } from "../../src/app.ts";
import { environmentName, settings } from "../../src/config.ts";
import { defaultServerLimits } from "../../src/server/limits.ts";
import { startTestApp } from "../support/test-app.ts";
import { checkNginxConfig, noNginx } from "./nginx.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const read = (path: string) => readFileSync(join(root, path), "utf8");
const files = [...readdirSync(join(root, "deploy")).map((name) => `deploy/${name}`), "docs/scaling.md"].filter((path) =>
  /\.(?:service|js|yaml|conf|md|dockerignore)$|Dockerfile$/.test(path),
);

const service = read("deploy/codeagent.service");
const dockerfile = read("deploy/Dockerfile");
const nginx = read("deploy/nginx.conf");

/** Follows a path of keys and positions into parsed YAML. */
function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let found = value;
  for (const step of path) {
    assert.ok(typeof found === "object" && found !== null, `nothing at ${path.join(".")}`);
    found = Object.entries(found).find(([key]) => key === String(step))?.[1];
  }
  return found;
}

/** A setting of the unit; of one that is repeated all values. */
function unitValues(key: string): string[] {
  const joined = service.replaceAll("\\\n", " ");
  return [...joined.matchAll(new RegExp(`^${key}=(.*)$`, "gm"))].map(([, value = ""]) => value.trim());
}

const seconds = (text: unknown) => {
  const [, number, unit] = /^(\d+)(s|ms)$/.exec(String(text)) ?? assert.fail(`${text} is no time`);
  return Number(number) / (unit === "ms" ? 1000 : 1);
};

describe("what deployment files name exists", () => {
  const known = new Set([
    ...Object.keys(settings).map(environmentName),
    "DATABASE_URL",
    ...[...read("README.md").matchAll(/`([A-Z]+_(?:API_KEY|BASE_URL))`/g)].map(([, name = ""]) => name),
  ]);
  const prefixes = new Set(Object.keys(settings).flatMap((key) => (key.includes(".") ? [key.split(".")[0]] : [])));

  for (const path of files) {
    test(path, () => {
      const text = read(path);
      const variables = text.match(/\b(?:CODEAGENT_[A-Z_]+|[A-Z]+_(?:API_KEY|BASE_URL)|DATABASE_URL)\b/g) ?? [];
      for (const name of variables) assert.ok(known.has(name), `${path}: there is no variable ${name}`);
      for (const [key] of text.matchAll(/(?<![\w/.-])[a-z]+\.[a-z_]+(?![\w/.])/g)) {
        if (!prefixes.has(key.split(".")[0])) continue;
        if (/\.(?:service|conf|js|yaml)$/.test(key)) continue;
        assert.ok(Object.hasOwn(settings, key), `${path}: there is no setting ${key}`);
      }
    });
  }
});

describe("the systemd unit", () => {
  test("leaves a stopping server more time than it takes", () => {
    const stopMs = 1000 * seconds(unitValues("TimeoutStopSec")[0]);
    assert.ok(stopMs > settings["limits.drain_ms"].byDefault + 1000 + defaultServerLimits.lastWordsTimeoutMs);
    assert.deepEqual(unitValues("KillMode"), ["mixed"]);
  });

  test("starts what the package installs, with the flags the launcher gives", () => {
    const [start = ""] = unitValues("ExecStart");
    assert.match(
      start,
      /^\/usr\/bin\/node .* \/opt\/codeagent\/lib\/node_modules\/codeagent\/bin\/codeagent\.js serve$/,
    );
    assert.deepEqual(
      start.match(/ (--\S+)/g)?.map((word) => word.trim()),
      launcherFlags(),
    );
  });

  test("hands the token over as a file", () => {
    assert.deepEqual(unitValues("LoadCredential"), ["token:/etc/codeagent/token"]);
    assert.ok(unitValues("Environment").includes("CODEAGENT_TOKEN_FILE=%d/token"));
  });

  const analyze = "/usr/bin/systemd-analyze";
  const missing = existsSync(analyze) ? false : "systemd is not installed here";
  test("systemd finds nothing wrong with it", { skip: missing }, () => {
    const folder = mkdtempSync(join(tmpdir(), "codeagent-unit-"));
    try {
      const file = join(folder, "codeagent.service");
      // Only the programs are others here than where it is installed.
      writeFileSync(file, service.replaceAll("/usr/bin/node", process.execPath));
      const { status, stderr } = spawnSync(analyze, ["verify", "--man=no", file], { encoding: "utf8" });
      // Other units of this machine may be wrong too.
      assert.doesNotMatch(stderr, /codeagent/);
      assert.equal(status, 0, stderr);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

function launcherFlags(): string[] {
  return [...read("bin/codeagent.js").matchAll(/^ {2}"(--[^"]+)",$/gm)].map(([, flag = ""]) => flag);
}

describe("the image", () => {
  const instruction = (name: string) =>
    [...dockerfile.replaceAll("\\\n", " ").matchAll(new RegExp(`^${name} (.*)$`, "gm"))].map(([, rest = ""]) => rest);

  test("runs on a pinned Node the package works with", () => {
    const [, major = ""] = /^ARG NODE_IMAGE=node:(\d+)\.\d+\.\d+-bookworm-slim$/m.exec(dockerfile) ?? [];
    const needed: unknown = at(JSON.parse(read("package.json")), "engines", "node");
    assert.ok(Number(major) >= Number(/\d+/.exec(String(needed))?.[0]));
    assert.equal(major, process.versions.node.split(".")[0], "the Node that the tests run on");
  });

  test("starts without a shell, as an account of its own", () => {
    const entry: unknown = JSON.parse(instruction("ENTRYPOINT")[0] ?? "");
    assert.deepEqual(entry, ["node", ...launcherFlags(), "/opt/codeagent/bin/codeagent.js"]);
    assert.deepEqual(JSON.parse(instruction("CMD")[0] ?? ""), ["serve"]);
    assert.deepEqual(instruction("USER"), ["node"]);
    assert.match(instruction("HEALTHCHECK")[0] ?? "", / CMD \["node", "\/opt\/codeagent\/deploy\/healthcheck.js"\]$/);
  });

  test("copies only what there is", () => {
    for (const words of instruction("COPY")) {
      if (words.startsWith("--from=")) continue;
      const sources = words.split(" ").slice(0, -1);
      for (const source of sources) assert.ok(existsSync(join(root, source)), `there is no ${source}`);
    }
  });
});

describe("the compose file", () => {
  const compose: unknown = parse(read("deploy/docker-compose.yaml"));
  const servers = ["codeagent-a", "codeagent-b"].map((name) => at(compose, "services", name));

  test("has two servers over one database, with one volume of workspaces", () => {
    for (const server of servers) {
      assert.match(String(at(server, "environment", "DATABASE_URL")), /@postgres:5432\//);
      assert.deepEqual(at(server, "volumes"), ["workspaces:/workspaces"]);
      assert.equal(at(server, "depends_on", "postgres", "condition"), "service_healthy");
      assert.ok(1000 * seconds(at(server, "stop_grace_period")) > settings["limits.drain_ms"].byDefault + 2000);
    }
    assert.ok(Array.isArray(at(compose, "services", "postgres", "healthcheck", "test")));
  });

  test("gives no more in the clear than to this machine", () => {
    assert.deepEqual(at(compose, "services", "nginx", "ports"), [
      "443:443",
      "127.0.0.1:4088:4088",
      "127.0.0.1:4089:4089",
    ]);
  });

  test("has in every place a server, volume or secret that it defines", () => {
    for (const server of servers) assert.deepEqual(at(server, "secrets"), ["token"]);
    assert.deepEqual(Object.keys(Object(at(compose, "volumes"))), ["postgres", "workspaces"]);
    for (const [, name = ""] of nginx.matchAll(/^\s+server (\S+):4088 /gm)) {
      assert.ok(servers.length > 0 && at(compose, "services", name) !== undefined, `there is no service ${name}`);
    }
  });
});

/** The regular expression by which a balancer knows calls that only read. */
const readRules: readonly { readonly name: string; readonly rule: () => RegExp }[] = [
  { name: "nginx.conf", rule: () => new RegExp(/location ~ (\S+) \{/.exec(nginx)?.[1] ?? assert.fail()) },
  {
    name: "envoy.yaml",
    rule: () => {
      const [route] = [at(envoyManager(), "route_config", "virtual_hosts", 0, "routes", 0)];
      return new RegExp(`^${at(route, "match", "safe_regex", "regex")}$`);
    },
  },
];

function envoyManager(): unknown {
  const envoy: unknown = parse(read("deploy/envoy.yaml"));
  return at(envoy, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config");
}

describe("balancers repeat only what can be repeated", () => {
  const methods = contractFiles.flatMap((file) => file.services.flatMap((found) => found.methods));

  for (const { name, rule } of readRules) {
    test(name, () => {
      const repeated = rule();
      for (const method of methods) {
        const path = `/${method.parent.typeName}/${method.name}`;
        const changes = method.input.fields.some((field) => field.name === "request_id");
        // It changes something too; what it answers, it answers once.
        const isRead = !changes && method.name !== "RespondToRequest";
        assert.equal(repeated.test(path), isRead, path);
      }
      assert.ok(repeated.test("/grpc.health.v1.Health/Check"));
    });
  }
});

describe("balancers wait as long as servers work", () => {
  const { callTimeoutMs, keepAliveTimeoutMs } = defaultServerLimits;

  test("nginx.conf", () => {
    const times = (name: string) =>
      [...nginx.matchAll(new RegExp(`^\\s+${name} (\\d+s);`, "gm"))].map(([, s]) => seconds(s));
    for (const name of ["grpc_read_timeout", "proxy_read_timeout"])
      assert.ok((times(name)[0] ?? 0) * 1000 > callTimeoutMs);
    assert.deepEqual(
      times("keepalive_timeout").map((time) => time * 1000 < keepAliveTimeoutMs),
      [true, true],
    );
    const [, megabytes] = /client_max_body_size (\d+)m;/.exec(nginx) ?? [];
    assert.ok(Number(megabytes) * 1024 * 1024 > settings["limits.max_message_bytes"].byDefault);
    assert.match(nginx, /proxy_buffering off;/);
  });

  test("envoy.yaml", () => {
    const manager = envoyManager();
    assert.ok(1000 * seconds(at(manager, "stream_idle_timeout")) > callTimeoutMs);
    const routes = at(manager, "route_config", "virtual_hosts", 0, "routes");
    assert.ok(Array.isArray(routes) && routes.length === 2);
    for (const route of routes) {
      assert.equal(at(route, "route", "timeout"), "0s", "Envoy's own fifteen seconds would cut turns");
      assert.equal(at(route, "route", "cluster"), "codeagent");
    }
    const cluster = at(parse(read("deploy/envoy.yaml")), "static_resources", "clusters", 0);
    const upstream = at(
      cluster,
      "typed_extension_protocol_options",
      "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    );
    assert.ok(1000 * seconds(at(upstream, "common_http_protocol_options", "idle_timeout")) < keepAliveTimeoutMs);
  });
});

test("nginx takes nginx.conf", { skip: noNginx }, () => {
  assert.match(checkNginxConfig(), /test is successful/);
});

test("the health check says whether a server serves", async (context) => {
  const token = "a-token-of-more-than-sixteen";
  const { app } = await startTestApp(context, { flags: { token } });
  const ask = async (env: Record<string, string>) => {
    const asked = promisify(execFile)(process.execPath, [join(root, "deploy/healthcheck.js")], {
      env,
      timeout: 20_000,
    });
    return asked.then(
      () => "serves",
      (error: { stderr: string }) => error.stderr.trim(),
    );
  };
  const port = new URL(app.url).port;
  const folder = mkdtempSync(join(tmpdir(), "codeagent-token-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "token");
  writeFileSync(file, `${token}\n`);
  assert.equal(await ask({ CODEAGENT_PORT: port, CODEAGENT_TOKEN: token }), "serves");
  assert.equal(await ask({ CODEAGENT_PORT: port, CODEAGENT_TOKEN_FILE: file }), "serves");
  assert.match(await ask({ CODEAGENT_PORT: port }), /does not serve: a valid bearer token is required/);
  await app.close(0);
  assert.match(await ask({ CODEAGENT_PORT: port, CODEAGENT_TOKEN: token }), /can't be asked: .*ECONNREFUSED/);
});
