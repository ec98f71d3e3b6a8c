import { decodeError, decodeStream, decodeWhole } from "./anthropic-messages-decode.ts";
import { encode, unreadable } from "./anthropic-messages-encode.ts";
import type { Dialect } from "./dialect.ts";
import { withholdsForeign } from "./origin.ts";

/** Anthropic's Messages. */
export const anthropicMessages = {
  id: "anthropic-messages",
  path: "/v1/messages",
  encode,
  unreadable,
  withholds: (message, reader) => withholdsForeign(message, reader, "anthropic-messages"),
  decodeStream,
  decodeWhole,
  decodeError,
} as const satisfies Dialect;
