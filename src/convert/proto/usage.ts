import { create } from "@bufbuild/protobuf";
import type { Usage as ProtoUsage } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { UsageSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { Usage } from "../../chat/usage.ts";
import { present, presentText } from "../present.ts";
import { countFromProto, integerToProto } from "./field.ts";

/** Reads usage: an absent count stays absent, 0 stays 0. */
export function usageFromProto(usage: ProtoUsage, path = "usage"): Usage {
  return present({
    inputTokens: countFromProto(usage.inputTokens, `${path}.input_tokens`),
    outputTokens: countFromProto(usage.outputTokens, `${path}.output_tokens`),
    totalTokens: countFromProto(usage.totalTokens, `${path}.total_tokens`),
    cacheReadTokens: countFromProto(usage.cacheReadTokens, `${path}.cache_read_tokens`),
    cacheCreationTokens: countFromProto(usage.cacheCreationTokens, `${path}.cache_creation_tokens`),
    reasoningTokens: countFromProto(usage.reasoningTokens, `${path}.reasoning_tokens`),
    costNanoUsd: countFromProto(usage.costNanoUsd, `${path}.cost_nano_usd`),
    priceSource: presentText(usage.priceSource),
    partial: usage.partial || undefined,
  });
}

/** Writes usage; a count that is no whole number is rounded. */
export function usageToProto(usage: Usage): ProtoUsage {
  return create(UsageSchema, {
    inputTokens: integerToProto(usage.inputTokens),
    outputTokens: integerToProto(usage.outputTokens),
    totalTokens: integerToProto(usage.totalTokens),
    cacheReadTokens: integerToProto(usage.cacheReadTokens),
    cacheCreationTokens: integerToProto(usage.cacheCreationTokens),
    reasoningTokens: integerToProto(usage.reasoningTokens),
    costNanoUsd: integerToProto(usage.costNanoUsd),
    priceSource: usage.priceSource ?? "",
    partial: usage.partial ?? false,
  });
}
