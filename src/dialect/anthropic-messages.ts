import { decodeError, decodeStream, decodeWhole } from "./anthropic-messages-decode.ts";
import { encode } from "./anthropic-messages-encode.ts";
import type { Dialect } from "./dialect.ts";

/** Anthropic's Messages. */
export const anthropicMessages = {
  id: "anthropic-messages",
  path: "/v1/messages",
  encode,
  decodeStream,
  decodeWhole,
  decodeError,
} as const satisfies Dialect;
