import { readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { isRecord } from "../check-value.ts";
import { writePrivateFile } from "../private-file.ts";
import type { McpServerConfig } from "./mcp-server-config.ts";
import { readMcpServer } from "./read-mcp-server.ts";

const fileName = "mcp-servers.json";

/** Servers as the file has them, and what was wrong with it. */
export interface SavedMcpServers {
  readonly servers: readonly McpServerConfig[];
  /** For the operator, a sentence each. */
  readonly faults: readonly string[];
}

/**
 * Reads the servers that were added while the service ran. What can't be read is passed over and told; a file that can't be
 * read at all is set aside, so that the next change does not write over it.
 */
export async function readSavedMcpServers(dataDir: string): Promise<SavedMcpServers> {
  const file = join(dataDir, fileName);
  let content: unknown;
  try {
    content = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (isMissing(error)) return { servers: [], faults: [] };
    const aside = `${file}.damaged`;
    await rename(file, aside).catch(() => undefined);
    return { servers: [], faults: [`${file} can't be read; it is set aside as ${aside}`] };
  }
  const servers: McpServerConfig[] = [];
  const faults: string[] = [];
  const entries = isRecord(content) ? Object.entries(content) : [];
  for (const [name, value] of entries) {
    try {
      servers.push(readMcpServer(name, value, dataDir, `${file}: ${name}`));
    } catch (error) {
      faults.push(error instanceof Error ? error.message : `${file}: ${name} can't be read`);
    }
  }
  return { servers, faults };
}

/** Writes the servers: the file is the old or the new one, and only we may read it. */
export async function saveMcpServers(dataDir: string, servers: readonly McpServerConfig[]): Promise<void> {
  const content = Object.fromEntries(servers.map((server) => [server.name, written(server)]));
  await writePrivateFile(join(dataDir, fileName), `${JSON.stringify(content, undefined, 2)}\n`);
}

/** As `readMcpServer` reads it. */
function written({ transport, timeoutMs, connectTimeoutMs, allowedTools }: McpServerConfig): Record<string, unknown> {
  const { type: _, ...fields } = transport;
  return { ...fields, timeout_ms: timeoutMs, connect_timeout_ms: connectTimeoutMs, allowed_tools: allowedTools };
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
