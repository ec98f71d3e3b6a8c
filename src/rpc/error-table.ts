import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { AgentErrorDetailSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import type { AgentError } from "../chat/error.ts";
import { errorCodes, errorDetailToProto } from "../convert/proto/error.ts";

/** Longest text of an error, in UTF-16 units. */
const maxMessageLength = 2000;

/** Says an error of ours in gRPC: a code, a sentence, and the details the contract names. */
export function connectErrorFrom(error: AgentError): ConnectError {
  const details = [
    detail(ErrorInfoSchema, { reason: error.reason, domain: "codeagent", metadata: { ...error.metadata } }),
  ];
  if (error.fieldViolations.length > 0) {
    details.push(
      detail(BadRequestSchema, {
        fieldViolations: error.fieldViolations.map(({ field, description }) => ({ field, description })),
      }),
    );
  }
  if (error.retryAfterMs !== undefined) {
    const nanos = Math.round((error.retryAfterMs % 1000) * 1_000_000);
    details.push(
      detail(RetryInfoSchema, { retryDelay: { seconds: BigInt(Math.floor(error.retryAfterMs / 1000)), nanos } }),
    );
  }
  details.push(detail(AgentErrorDetailSchema, errorDetailToProto(error.detail)));
  return new ConnectError(bounded(error.message), codeOf(error), undefined, details, error.cause);
}

function detail<Schema extends DescMessage>(
  desc: Schema,
  value: MessageInitShape<Schema>,
): { desc: DescMessage; value: Message } {
  return { desc, value: create(desc, value) };
}

function bounded(message: string): string {
  return message.length <= maxMessageLength ? message : `${message.slice(0, maxMessageLength).toWellFormed()} …`;
}

/** The numbers of gRPC and Connect's codes are the same. */
function codeOf(error: AgentError): Code {
  const number: number = errorCodes[error.kind];
  for (const code of Object.values(Code)) if (code === number) return Number(code);
  return Code.Unknown;
}
