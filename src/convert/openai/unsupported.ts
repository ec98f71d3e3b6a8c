import { invalidField } from "../../chat/error.ts";
import {
  isAbsent,
  type JsonObject,
  readOptionalInteger,
  readOptionalNumber,
  readOptionalObject,
  readOptionalText,
} from "../json-field.ts";

/**
 * Refuses options of Chat Completions, beside those `turnRequestFromOpenAI` refuses, that would change the answer and that
 * no model is asked for here: `frequency_penalty`, `presence_penalty`, `logit_bias`, `verbosity`, `top_logprobs`,
 * `web_search_options`. Values that say what holds anyway (0, none, `medium`) do. What only labels a call or makes it
 * cheaper or faster stays unread: `user`, `safety_identifier`, `service_tier`, `prediction`, `moderation`, `prompt_cache_*`.
 * @throws {AgentError} `invalid_request` that names the field.
 */
export function refuseUnsupported(fields: JsonObject): void {
  for (const field of ["frequency_penalty", "presence_penalty"]) {
    const penalty = readOptionalNumber(fields[field], -2, 2, field) ?? 0;
    if (penalty !== 0) throw invalidField(field, `is ${penalty}; penalties are not passed on, leave it out`);
  }
  const bias = readOptionalObject(fields["logit_bias"], "logit_bias") ?? {};
  if (Object.keys(bias).length > 0) throw invalidField("logit_bias", "is not passed on; leave it out");
  const verbosity = readOptionalText(fields["verbosity"], "verbosity") ?? "medium";
  if (verbosity !== "medium")
    throw invalidField("verbosity", "is not passed on; leave it out and say in a message how long the answer is to be");
  const probabilities = readOptionalInteger(fields["top_logprobs"], 0, "top_logprobs") ?? 0;
  if (probabilities !== 0)
    throw invalidField("top_logprobs", `is ${probabilities}; probabilities of tokens are not given`);
  if (!isAbsent(fields["web_search_options"]))
    throw invalidField(
      "web_search_options",
      "asks for the provider's own search, which is not passed on; leave it out",
    );
}
