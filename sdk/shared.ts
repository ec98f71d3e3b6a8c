// What both the package for Node and the one for browsers export.
export { Code, ConnectError } from "@connectrpc/connect";
export type { AbortableStream } from "./abortable-stream.ts";
export {
  type ChatCompletion,
  type ChatCompletionChunk,
  type ChatCompletionMessageParam,
  type ChatCompletionParams,
  chatCompletion,
  streamChatCompletion,
} from "./chat-completion.ts";
export type { CodeAgentClient, TransportName } from "./client.ts";
export {
  type AgentErrorDetail,
  CodeAgentError,
  type CodeAgentErrorOptions,
  codeAgentErrorFrom,
  type FieldViolation,
  type TurnPosition,
} from "./error.ts";
export {
  type AnyMessage,
  type AnyResponse,
  type EnumRoleMessage,
  hasToolCalls,
  messageFromResponse,
  messagesFrom,
  responseText,
  responseThinking,
} from "./messages.ts";
export {
  type FollowSessionOptions,
  type FollowSessionRequest,
  followSession,
  type ResumeOptions,
  type StreamTurnOptions,
  streamTurn,
  type TurnClient,
} from "./turn-stream.ts";
