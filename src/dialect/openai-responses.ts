import type { Dialect } from "./dialect.ts";
import { decodeStream, decodeWhole } from "./openai-responses-decode.ts";
import { encode } from "./openai-responses-encode.ts";
import { faultFromText } from "./upstream-error.ts";

/** OpenAI's Responses API, as OpenAI and the endpoints that follow it speak it. */
export const openaiResponses = {
  id: "openai-responses",
  path: "/responses",
  encode,
  decodeStream,
  decodeWhole,
  decodeError: faultFromText,
} as const satisfies Dialect;
