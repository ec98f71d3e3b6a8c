import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { CallToolResult } from "@modelcontextprotocol/server";
import type { CodeAgentClient } from "../../sdk/index.ts";
import type { Message, Session } from "../../sdk/proto.ts";
import { oneLine } from "../cli/terminal.ts";
import { boundedText } from "../tool/bounded-text.ts";
import { argumentsOf, countIn, textIn } from "./tool-input.ts";

export const listSessionsSchema = {
  type: "object",
  properties: { limit: { type: "integer", minimum: 1, maximum: 200, description: "How many, newest first (20)." } },
  additionalProperties: false,
} as const;

export const getSessionSchema = {
  type: "object",
  properties: {
    session_id: { type: "string", minLength: 1, description: "The session." },
    messages: { type: "integer", minimum: 0, maximum: 200, description: "How many of its last messages (20)." },
  },
  required: ["session_id"],
  additionalProperties: false,
} as const;

const pageSize = 500;
const messageBytes = 16 * 1024;
const textBytes = 256 * 1024;
const callCharacters = 160;

/** Sessions, newest first. */
export async function listSessions(client: CodeAgentClient, given: unknown): Promise<CallToolResult> {
  const limit = countIn(argumentsOf("list_sessions", listSessionsSchema, given), "limit", 20);
  const { sessions } = await client.listSessions({ pageSize: limit });
  const lines = sessions.map((session) => JSON.stringify(factsOf(session)));
  return { content: [{ type: "text", text: lines.length === 0 ? "there are no sessions" : lines.join("\n") }] };
}

/** One session: what it does, what it waits for, and its last messages. */
export async function getSession(client: CodeAgentClient, given: unknown): Promise<CallToolResult> {
  const checked = argumentsOf("get_session", getSessionSchema, given);
  const sessionId = textIn(checked, "session_id");
  const session = await client.getSession({ sessionId });
  const { requests } = await client.listPendingRequests({ sessionId });
  const waits = requests.map(({ title }) => `waits for an answer: ${title}`);
  const last = await lastMessages(client, sessionId, countIn(checked, "messages", 20));
  const text = [JSON.stringify(factsOf(session)), ...waits, ...last.map(textOf)].join("\n\n");
  return { content: [{ type: "text", text: boundedText(text, textBytes).text }] };
}

function factsOf({ sessionId, title, state, workspace, messageCount, updateTime }: Session) {
  return {
    session_id: sessionId,
    title,
    state,
    workspace,
    messages: messageCount,
    ...(updateTime === undefined ? {} : { updated: timestampDate(updateTime).toISOString() }),
  };
}

async function lastMessages(client: CodeAgentClient, sessionId: string, most: number): Promise<readonly Message[]> {
  let last: Message[] = [];
  let pageToken = "";
  do {
    const page = await client.listMessages({ sessionId, pageSize, pageToken });
    last = most === 0 ? [] : [...last, ...page.messages].slice(-most);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return last;
}

function textOf({ role, blocks }: Message): string {
  const parts = blocks.map(({ block }) => {
    switch (block.case) {
      case "text":
        return block.value.text;
      case "toolUse":
        return `→ ${oneLine(`${block.value.name} ${block.value.input}`, callCharacters)}`;
      case "toolResult":
        return `← ${oneLine(block.value.content, callCharacters)}`;
      case "thinking":
      case "reasoning":
      case "redactedThinking":
        return "";
      default:
        return block.case === undefined ? "" : `[${block.case}]`;
    }
  });
  return `${role}:\n${boundedText(parts.filter((part) => part !== "").join("\n"), messageBytes).text}`;
}
