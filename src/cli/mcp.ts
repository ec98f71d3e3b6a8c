import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import type { CodeAgentClient } from "../../sdk/index.ts";
import { createAgentServer } from "../mcp-server/agent-server.ts";
import { mcpPath } from "../mcp-server/mcp-path.ts";
import { configFrom } from "./config-flags.ts";
import { createLog } from "./log.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { sentenceOf } from "./sentence.ts";
import { serve } from "./serve.ts";
import { type ConnectionFlags, openService, type Service } from "./service.ts";
import { onStopSignal } from "./stop-signals.ts";

export interface McpFlags extends ConnectionFlags {
  /** Serves over HTTP instead. */
  readonly http?: boolean;
}

const messageBytes = 4 * 1024 * 1024;
const answerTimeoutMs = 5000;
const closingLimitMs = 15_000;

/**
 * Serves the agent to an MCP client over stdin and stdout until stdin ends or a signal comes; with `--http` it is
 * `codeagent serve`. Nothing but MCP is written to stdout. Turns that run when it ends go on: at the server that has them,
 * or at the next start.
 * @returns the exit code: 0, or 1 when what came on stdin could not be read.
 * @throws {Error} one sentence, when there is no service and none can be started.
 */
export async function serveMcp(flags: McpFlags, taken: TakenEnvironment): Promise<number> {
  if (flags.http === true) return serveOverHttp(flags, taken);
  if (flags.host !== undefined || flags.port !== undefined)
    throw new Error("--host and --port go with --http; over stdin and stdout there is nothing to listen on");
  const config = configFrom(flags, taken.env);
  const report = createLog(config.log_level, taken.redactor);
  const stopping = new AbortController();
  const ended = Promise.withResolvers<number>();
  const restore = onStopSignal((again) => (again ? process.exit(1) : ended.resolve(0)), "stop");
  const services = new Services(() => openService(flags, taken), flags.server !== undefined);
  let handle: ReturnType<typeof serveStdio> | undefined;
  try {
    // Whoever starts us is to hear at once that there is nothing to serve.
    await services.client();
    const transport = new EndingTransport(() => ended.resolve(0));
    const offerTools = config["mcp_server.tools"];
    const factory = () =>
      createAgentServer({ client: () => services.client(), offerTools, resume: {}, stopping: stopping.signal, report });
    handle = serveStdio(factory, {
      transport,
      onerror: (error) => report("debug", "an MCP message was not served", { error }),
    });
    return await ended.promise;
  } finally {
    stopping.abort();
    setTimeout(() => process.exit(1), closingLimitMs).unref();
    await handle?.close();
    await services.leave();
    restore();
  }
}

function serveOverHttp(flags: McpFlags, taken: TakenEnvironment): Promise<number> {
  if (flags.server !== undefined)
    throw new Error(`--http starts a server; ${flags.server} has MCP already, under ${mcpPath}`);
  return serve(flags, taken, (url) => `codeagent listening on ${url}, MCP on ${url}${mcpPath}`);
}

/** The client's side of the pipes; tells when it ended. */
class EndingTransport extends StdioServerTransport {
  readonly #onEnd: () => void;

  constructor(onEnd: () => void) {
    super(process.stdin, process.stdout, { maxBufferSize: messageBytes });
    this.#onEnd = onEnd;
  }

  override async close(): Promise<void> {
    await super.close();
    this.#onEnd();
  }
}

/** The service that is offered. One that another process ran, and that is gone, is replaced at the next call. */
class Services {
  readonly #open: () => Promise<Service>;
  readonly #isNamed: boolean;
  #service: Promise<Service> | undefined;

  /** @param isNamed whether it is this one and no other */
  constructor(open: () => Promise<Service>, isNamed: boolean) {
    this.#open = open;
    this.#isNamed = isNamed;
  }

  async client(): Promise<CodeAgentClient> {
    const service = await this.#current();
    if (service.own || this.#isNamed) return service.client;
    try {
      await service.client.getCapabilities({}, { timeoutMs: answerTimeoutMs });
      return service.client;
    } catch {
      this.#service = undefined;
      await service.leave();
      return (await this.#current()).client;
    }
  }

  async leave(): Promise<void> {
    await this.#service?.then((service) => service.leave()).catch(() => undefined);
  }

  async #current(): Promise<Service> {
    this.#service ??= this.#open();
    try {
      return await this.#service;
    } catch (error) {
      this.#service = undefined;
      throw new Error(sentenceOf(error), { cause: error });
    }
  }
}
