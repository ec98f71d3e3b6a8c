import type { ChatRequest, ToolDefinition, TurnRequest } from "../chat/request.ts";
import { countedRequestFromAnthropic } from "../convert/anthropic/request.ts";
import type { ResolvedModel } from "../provider/registry.ts";
import { withoutUnseen } from "../session/admission.ts";
import { estimateTokens } from "../session/compact-history.ts";
import { modelOptions } from "../session/model-options.ts";
import { checkProfile, type Profiles, profileOf, turnTerms, withinProfile } from "../session/profile.ts";
import { validHistory } from "../session/valid-history.ts";
import type { RestRoute } from "./rest-api.ts";

export interface CountTokensMeans {
  /** See `ProviderRegistry.resolveAll`. */
  resolveAll(models: string): readonly [ResolvedModel, ...ResolvedModel[]];
  /** See `ProviderRegistry.countTokens`. */
  countTokens(resolved: ResolvedModel, request: ChatRequest, signal: AbortSignal): Promise<number | undefined>;
  /** The server's own functions, as a turn without a session would be offered them. */
  functions(): Promise<readonly ToolDefinition[]>;
  readonly profiles: Profiles;
  /** Of requests that have none of their own. */
  readonly systemPrompt: string;
  readonly defaultModel: string;
}

/** An estimate is made larger by this, so that what fits by it also fits where it is counted. */
const margin = 1.25;

/**
 * Anthropic's `POST /v1/messages/count_tokens`: how many tokens the first model call of the turn would read, the server's
 * system prompt and its own functions included. What a session holds already is not counted, since requests come with
 * the whole conversation.
 *
 * A provider that speaks Anthropic's format is asked. For others the answer is an estimate of the same request by the
 * lengths of its texts (`estimateTokens`) and a quarter more, the same for the same request, and it says so in the header
 * `x-codeagent-estimate: true`.
 */
export function countTokensRoute(means: CountTokensMeans): RestRoute {
  return {
    method: "POST",
    path: "/v1/messages/count_tokens",
    async handle({ body, signal }) {
      const request = countedRequestFromAnthropic(await body());
      const { model, options } = turnTerms(means.profiles, request, "", means.defaultModel);
      checkProfile(means.profiles, options);
      const [resolved] = means.resolveAll(model);
      const asked = await askedRequest({ ...request, options }, resolved, means);
      const counted = await means.countTokens(resolved, asked, signal);
      if (counted !== undefined) return { body: { input_tokens: counted } };
      return { body: { input_tokens: estimateOf(asked) }, headers: { "x-codeagent-estimate": "true" } };
    },
  };
}

/** What the model would be asked, as `session/call-model` puts it together. */
async function askedRequest(
  { messages, tools, options }: TurnRequest,
  { model, features }: ResolvedModel,
  means: CountTokensMeans,
): Promise<ChatRequest> {
  const functions = await means.functions();
  const profile = profileOf(means.profiles, options);
  const names = functions.map(({ name }) => name);
  const { allowedTools } = withinProfile(profile, options, names);
  const clients = new Set(tools.map(({ name }) => name));
  const ours = functions.filter(({ name }) => !clients.has(name) && (allowedTools?.includes(name) ?? true));
  const hasOwn = messages.some(({ role }) => role === "system");
  const prompt = profile?.systemPrompt || (hasOwn ? "" : means.systemPrompt);
  const history = withoutUnseen(validHistory(messages), features);
  return {
    model,
    messages: prompt === "" ? history : [{ role: "system", blocks: [{ type: "text", text: prompt }] }, ...history],
    tools: features.includes("tools") ? [...tools, ...ours] : [],
    options: modelOptions(options, 1, "", true),
  };
}

function estimateOf({ messages, tools }: ChatRequest): number {
  const offered = tools.map(({ name, description, parameters }) => ({ name, description, parameters }));
  const text = offered.length === 0 ? "" : JSON.stringify(offered);
  return Math.ceil(margin * estimateTokens([...messages, { role: "system", blocks: [{ type: "text", text }] }]));
}
