import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { TestContext } from "node:test";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { type App, type AppOptions, startApp } from "../../src/app.ts";
import { readConfig, type SettingKey } from "../../src/config.ts";

export interface TestAppOptions {
  /** YAML of the scripted provider. */
  readonly script?: string;
  readonly flags?: { readonly [Key in SettingKey]?: unknown };
  /** YAML of settings that only a file can have. */
  readonly settings?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly functions?: AppOptions["functions"];
  /** Where sessions are kept; by default a new folder that goes with the test. */
  readonly dataDir?: string;
  readonly now?: AppOptions["now"];
  readonly grpcFastPath?: boolean;
  readonly requestStop?: AppOptions["requestStop"];
  /** Files of the workspace, by path. */
  readonly files?: Readonly<Record<string, string>>;
}

/** The service on a free port over folders of its own; closed and removed at the end of the test. */
export async function startTestApp(context: Pick<TestContext, "after">, options: TestAppOptions = {}) {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-test-"));
  let started: App | undefined;
  context.after(async () => {
    try {
      await started?.close(0);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
  const workspace = join(folder, "workspace");
  for (const [path, content] of Object.entries({ "README.md": "# a sample\n", ...options.files })) {
    const file = join(workspace, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, content);
  }
  const script = join(folder, "script.yaml");
  await writeFile(script, options.script ?? "- text: hello\n");
  if (options.settings !== undefined) await writeFile(join(folder, "codeagent.yaml"), options.settings);
  const reports: unknown[][] = [];
  const config = readConfig({
    env: {},
    workingDirectory: folder,
    flags: {
      port: 0,
      workspace,
      data_dir: options.dataDir ?? join(folder, "data"),
      "scripted.file": script,
      model: "scripted/test",
      // A test that is about them asks for them.
      bundled_skills: false,
      ...options.flags,
    },
  });
  const app: App = await startApp({
    config,
    env: options.env ?? {},
    report: (...report) => reports.push(report),
    ...(options.functions === undefined ? {} : { functions: options.functions }),
    ...(options.now === undefined ? {} : { now: options.now }),
    ...(options.grpcFastPath === undefined ? {} : { grpcFastPath: options.grpcFastPath }),
    ...(options.requestStop === undefined ? {} : { requestStop: options.requestStop }),
  });
  started = app;
  const transport = createGrpcTransport({ baseUrl: app.url });
  return {
    app,
    folder,
    workspace,
    dataDir: config.data_dir,
    /** What the operator was told. */
    reports,
    /** CodeAgentService over gRPC. */
    client: createClient(CodeAgentService, transport),
    transport,
  };
}

/** A user message in the contract's shape. */
export function user(text: string) {
  return { role: "user", contentType: { case: "content" as const, value: text } };
}
