import type { Config } from "./config.ts";
import { McpServers } from "./tool/mcp/mcp-servers.ts";
import { addressPolicy } from "./tool/net/address-policy.ts";
import { guardedClient } from "./tool/net/guarded-client.ts";
import type { Sandbox } from "./tool/sandbox/sandbox.ts";
import { version } from "./version.ts";

/** This machine may be named in the configuration; all else that is not the public internet only by `net.allow`. */
const thisMachine = ["127.0.0.0/8", "[::1]"];

export interface ConfiguredMcpOptions {
  readonly sandbox: Sandbox;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The folder programs work in: the server's own workspace, without links. */
  readonly workspace: string;
  /** Begins to connect at once; else when somebody asks for the tools or the servers. */
  readonly connectsAtOnce: boolean;
  readonly now: () => number;
  readonly report: (level: "info" | "warn", message: string, facts?: Record<string, unknown>) => void;
}

/** The MCP servers of the configuration and those that were added. Its caller closes it. */
export function configuredMcpServers(config: Config, options: ConfiguredMcpOptions): Promise<McpServers> {
  const { now, ...rest } = options;
  return McpServers.start({
    ...rest,
    client: guardedClient(addressPolicy({ allow: [...thisMachine, ...config["net.allow"]] })),
    version,
    random: Math.random,
    clock: {
      now,
      after(ms, run) {
        const timer = setTimeout(run, ms);
        return () => clearTimeout(timer);
      },
    },
    configured: config.mcp,
    dataDir: config.data_dir,
  });
}
