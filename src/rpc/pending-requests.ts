import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../chat/error.ts";
import { present } from "../convert/present.ts";
import { pendingRequestToProto, requestAnswerToProto } from "../convert/proto/event.ts";
import { toolResultFromProto } from "../convert/proto/tool-result.ts";
import type { GivenAnswer, RequestPosition } from "../session/pending-requests.ts";
import type { Sessions } from "../session/sessions.ts";
import { theCaller } from "./caller.ts";
import {
  checkLength,
  optionalSessionIdFrom,
  pageSizeFrom,
  pageTokenFor,
  pageTokenFrom,
  sessionIdFrom,
} from "./request-fields.ts";

const maxPage = 1000;
const maxAnswers = 1000;
const maxIdLength = 256;
const maxTextLength = 64 * 1024;

/** What waits for a person or a client, and the answers to it. */
export function pendingRequestHandlers(sessions: Sessions) {
  return {
    async listPendingRequests(request) {
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const limit = pageSizeFrom(request.pageSize, 100, maxPage);
      const { requests, next } = await sessions.pendingRequests(
        theCaller,
        sessionId,
        positionFrom(request.pageToken),
        limit,
      );
      return {
        requests: requests.map((waiting) => pendingRequestToProto(waiting.request, waiting.sessionId, waiting.turnId)),
        nextPageToken: next === undefined ? "" : pageTokenFor([next.waitingSinceMs, next.sessionId, next.requestId]),
      };
    },
    async respondToRequest(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      if (request.responses.length === 0) throw invalidField("responses", "is empty; send at least one");
      if (request.responses.length > maxAnswers)
        throw invalidField("responses", `has ${request.responses.length} answers; ${maxAnswers} is the most`);
      const ids = new Set<string>();
      const answers = request.responses.map(({ requestId, decision, text, toolResult }, index): GivenAnswer => {
        const path = `responses[${index}]`;
        if (requestId === "") throw invalidField(`${path}.request_id`, "is empty; name a pending request");
        checkLength(requestId, maxIdLength, `${path}.request_id`);
        if (ids.has(requestId)) throw invalidField(`${path}.request_id`, "is answered twice; answer it once");
        ids.add(requestId);
        checkLength(text, maxTextLength, `${path}.text`);
        if (!text.isWellFormed()) throw invalidField(`${path}.text`, "has half a surrogate pair");
        return present({
          requestId,
          decision,
          text,
          toolResult: toolResult && toolResultFromProto(toolResult, `${path}.tool_result`),
        });
      });
      const resolved = await sessions.respond(theCaller, sessionId, answers);
      return { resolved: resolved.map(requestAnswerToProto) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function positionFrom(token: string): RequestPosition | undefined {
  const position = pageTokenFrom(token);
  if (position === undefined) return undefined;
  const [waitingSinceMs, sessionId, requestId] = position;
  if (typeof waitingSinceMs === "number" && typeof sessionId === "string" && typeof requestId === "string")
    return { waitingSinceMs, sessionId, requestId };
  throw invalidField("page_token", "is not a token of this list; leave it out to begin anew");
}
