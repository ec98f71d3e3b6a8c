import { ConnectError } from "@connectrpc/connect";
import {
  type CallToolResult,
  type InputRequiredResult,
  McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { type CodeAgentClient, CodeAgentError, type ResumeOptions } from "../../sdk/index.ts";
import type { Tool } from "../../sdk/proto.ts";
import type { Report } from "../app.ts";
import { parsedObject } from "../convert/parsed-object.ts";
import { boundedText } from "../tool/bounded-text.ts";
import { version } from "../version.ts";
import { runAgent, runAgentOutput, runAgentSchema } from "./run-agent.ts";
import { getSession, getSessionSchema, listSessions, listSessionsSchema } from "./session-tools.ts";
import { BadArguments, failure, unchecked } from "./tool-input.ts";

export interface AgentServerOptions {
  /** The service that is offered; asked for at each call. @throws one sentence, when there is none. */
  readonly client: () => Promise<CodeAgentClient>;
  /** Offers the functions of the service too, besides the agent. */
  readonly offerTools: boolean;
  /** How a lost connection to the service is got back. */
  readonly resume: ResumeOptions;
  /** Fires when the MCP server ends. */
  readonly stopping: AbortSignal;
  readonly report: Report;
}

/** More questions than a turn has model calls. */
const maxQuestions = 200;
/** Longer than a question waits for its answer. */
const questionTimeoutMs = 60 * 60_000;
const outputBytes = 256 * 1024;

const instructions = `codeagent is a coding agent that works in a folder of source code. run_agent gives it a task and answers when it is done, which may take minutes; pass the session_id of its answer to go on where it stopped.`;

/**
 * Makes the MCP server for one connection (or one request, where the protocol knows none): the agent as a tool, its
 * sessions to look at, and where that is wanted each of its functions. The library connects and closes it.
 */
export async function createAgentServer(options: AgentServerOptions): Promise<McpServer> {
  const { client, offerTools, resume, stopping, report } = options;
  const server = new McpServer(
    { name: "codeagent", title: "codeagent", version },
    { instructions, inputRequired: { maxRounds: maxQuestions, roundTimeoutMs: questionTimeoutMs } },
  );
  const guarded =
    (
      call: (
        client: CodeAgentClient,
        given: unknown,
        context: ServerContext,
      ) => Promise<CallToolResult | InputRequiredResult>,
    ) =>
    async (given: unknown, context: ServerContext) => {
      try {
        return await call(await client(), given, context);
      } catch (error) {
        return failure(sentenceFor(error, report));
      }
    };
  server.registerTool(
    "run_agent",
    {
      title: "Run the coding agent",
      description:
        "Gives a task to a coding agent, which reads, searches and, where that is allowed, changes files and runs commands in its workspace. Answers with what it says at the end.",
      inputSchema: unchecked(runAgentSchema),
      outputSchema: unchecked(runAgentOutput),
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
    },
    guarded((service, given, context) =>
      runAgent(given, context, {
        client: service,
        resume,
        stopping,
        capabilities: () => server.server.getClientCapabilities(),
      }),
    ),
  );
  const looks = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false };
  server.registerTool(
    "list_sessions",
    {
      title: "List the agent's sessions",
      description: "Lists sessions, newest first: a line of JSON for each.",
      inputSchema: unchecked(listSessionsSchema),
      annotations: looks,
    },
    guarded((service, given) => listSessions(service, given)),
  );
  server.registerTool(
    "get_session",
    {
      title: "Look at one of the agent's sessions",
      description: "Tells whether a session runs or waits, and shows its last messages.",
      inputSchema: unchecked(getSessionSchema),
      annotations: looks,
    },
    guarded((service, given) => getSession(service, given)),
  );
  if (offerTools) {
    const { tools } = await (await client()).tools.listTools({});
    for (const tool of tools)
      if (!ownNames.has(tool.name) && !ofTurns.has(tool.name)) registerFunction(server, tool, guarded);
  }
  return server;
}

const ownNames: ReadonlySet<string> = new Set(["run_agent", "list_sessions", "get_session"]);
/** Functions that do nothing outside a turn. */
const ofTurns: ReadonlySet<string> = new Set([
  "ask_user",
  "update_todos",
  "task",
  "create_plan",
  "update_plan",
  "run_plan",
]);

type Guarded = (
  call: (client: CodeAgentClient, given: unknown, context: ServerContext) => Promise<CallToolResult>,
) => (given: unknown, context: ServerContext) => Promise<CallToolResult | InputRequiredResult>;

function registerFunction(
  server: McpServer,
  { name, title, description, parameters, readOnly }: Tool,
  guarded: Guarded,
) {
  server.registerTool(
    name,
    {
      ...(title === "" ? {} : { title }),
      description,
      inputSchema: unchecked(parsedObject(parameters) ?? { type: "object" }),
      annotations: { readOnlyHint: readOnly, destructiveHint: !readOnly },
    },
    guarded(async (service, given, { mcpReq }) => {
      const { result } = await service.tools.executeTool(
        { name, arguments: JSON.stringify(given ?? {}) },
        { signal: mcpReq.signal },
      );
      const output = boundedText(result?.output ?? "", outputBytes).text;
      if (result?.success === true) return { content: [{ type: "text", text: output }] };
      // What a command wrote before it failed says why it did.
      return failure([output, result?.error ?? ""].filter((part) => part !== "").join("\n") || "failed");
    }),
  );
}

/** What a client may hear of what went wrong: our own sentences, and of everything else only that it happened. */
function sentenceFor(error: unknown, report: Report): string {
  if (error instanceof BadArguments || error instanceof CodeAgentError) return error.message;
  if (error instanceof ConnectError) return error.rawMessage;
  report("error", "a call over MCP failed", { error });
  return "the server failed in a way it has no name for; its log says more";
}
