import type { Dialect } from "./dialect.ts";
import { decodeStream, decodeWhole } from "./openai-responses-decode.ts";
import { encode, unreadable } from "./openai-responses-encode.ts";
import { withholdsForeign } from "./origin.ts";
import { faultFromText } from "./upstream-error.ts";

/** OpenAI's Responses API, as OpenAI and the endpoints that follow it speak it. */
export const openaiResponses = {
  id: "openai-responses",
  path: "/responses",
  encode,
  unreadable,
  withholds: (message, reader) => withholdsForeign(message, reader, "openai-responses"),
  decodeStream,
  decodeWhole,
  decodeError: faultFromText,
} as const satisfies Dialect;
