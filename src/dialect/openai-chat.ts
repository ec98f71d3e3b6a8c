import type { Dialect } from "./dialect.ts";
import { decodeStream, decodeWhole } from "./openai-chat-decode.ts";
import { encode } from "./openai-chat-encode.ts";
import { withholdsForeign } from "./origin.ts";
import { faultFromText } from "./upstream-error.ts";

/** OpenAI's Chat Completions, as OpenAI and the many endpoints that follow it speak it. */
export const openaiChat = {
  id: "openai-chat",
  path: "/chat/completions",
  encode,
  unreadable: () => undefined,
  withholds: (message, reader) => withholdsForeign(message, reader, "openai-chat"),
  decodeStream,
  decodeWhole,
  decodeError: faultFromText,
} as const satisfies Dialect;
