import { randomUUID } from "node:crypto";
import { toJson } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { type Message, MessageSchema, type Session, SessionSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { CodeAgentClient } from "../../sdk/index.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openService } from "./service.ts";
import { jsonLine, oneLine, type Page, pageOn, whenWritable } from "./terminal.ts";
import { printBlock, usageText } from "./turn-printer.ts";

export interface ListFlags extends ConnectionFlags {
  readonly limit?: string;
  readonly json?: boolean;
}
export interface ShowFlags extends ConnectionFlags {
  readonly json?: boolean;
}
export interface ForkFlags extends ConnectionFlags {
  readonly throughSeq?: string;
  readonly title?: string;
}

const titleCharacters = 60;
const pageSize = 500;

/** Lists sessions, newest first. @returns the exit code. */
export async function listSessions(flags: ListFlags, taken: TakenEnvironment): Promise<number> {
  const limit = wholeNumber("--limit", flags.limit ?? "50");
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  let left = limit;
  for await (const session of sessionsOf(service.client, limit)) {
    if (left-- <= 0) break;
    page.write(flags.json === true ? jsonLine(toJson(SessionSchema, session)) : `${sessionLine(session)}\n`);
  }
  if (left === limit && flags.json !== true) page.write("there are no sessions\n", "dim");
  return 0;
}

/** Shows the history of a session. @returns the exit code. */
export async function showSession(id: string, flags: ShowFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  const session = await service.client.getSession({ sessionId: id });
  if (flags.json !== true) {
    page.write(`${session.title || session.sessionId}\n`, "bold");
    page.write(`${sessionLine(session)}\n${usageText(session.usage)} · workspace ${session.workspace}\n`, "dim");
  }
  for await (const message of messagesOf(service.client, id)) {
    if (flags.json === true) page.write(jsonLine(toJson(MessageSchema, message)));
    else printMessage(page, message);
    await whenWritable(process.stdout);
  }
  return 0;
}

/** Begins a new session like another one, and says its id. @returns the exit code. */
export async function forkSession(id: string, flags: ForkFlags, taken: TakenEnvironment): Promise<number> {
  const throughSeq = flags.throughSeq === undefined ? undefined : wholeNumber("--through-seq", flags.throughSeq);
  await using service = await openService(flags, taken);
  const fork = await service.client.forkSession({
    sessionId: id,
    title: flags.title ?? "",
    requestId: randomUUID(),
    ...(throughSeq === undefined ? {} : { throughSeq: BigInt(throughSeq) }),
  });
  pageOn(process.stdout).write(`${fork.sessionId}\n`);
  return 0;
}

/** Removes sessions; the first that can't be ends it. @returns the exit code. */
export async function removeSessions(
  ids: readonly string[],
  flags: ConnectionFlags,
  taken: TakenEnvironment,
): Promise<number> {
  await using service = await openService(flags, taken);
  for (const sessionId of ids) await service.client.deleteSession({ sessionId, requestId: randomUUID() });
  return 0;
}

async function* sessionsOf(client: CodeAgentClient, limit: number): AsyncGenerator<Session> {
  let pageToken = "";
  do {
    const found = await client.listSessions({ pageSize: Math.min(limit + 1, pageSize), pageToken });
    yield* found.sessions;
    pageToken = found.nextPageToken;
  } while (pageToken !== "");
}

async function* messagesOf(client: CodeAgentClient, sessionId: string): AsyncGenerator<Message> {
  let pageToken = "";
  do {
    const found = await client.listMessages({ sessionId, pageSize, pageToken });
    yield* found.messages;
    pageToken = found.nextPageToken;
  } while (pageToken !== "");
}

function sessionLine(session: Session): string {
  const updated = session.updateTime === undefined ? "" : timestampDate(session.updateTime).toISOString();
  const messages = `${session.messageCount} message${session.messageCount === 1 ? "" : "s"}`;
  return `${session.sessionId}  ${session.state}  ${messages}  ${updated}  ${oneLine(session.title, titleCharacters)}`;
}

function printMessage(page: Page, message: Message): void {
  page.endLine();
  if (message.role !== "tool") page.write(`\n${message.role}\n`, "bold");
  for (const block of message.blocks) printBlock(page, block);
}

function wholeNumber(flag: string, given: string): number {
  const value = Number(given);
  if (/^\d+$/.test(given) && Number.isSafeInteger(value)) return value;
  throw new Error(`${flag} is ${JSON.stringify(given)}: a whole number is wanted`);
}
