import { AgentError, invalidField } from "../chat/error.ts";
import type { Feature } from "../chat/feature.ts";
import type { Message } from "../chat/message.ts";
import type { Budget, TurnRequest } from "../chat/request.ts";
import { quoted } from "../convert/content-check.ts";
import { schemaFault } from "../tool/check-value.ts";
import { fullName, type Model } from "./models.ts";

/**
 * Refuses what the models of a turn cannot do, before anything is sent or kept.
 * @param ofSession the bounds of the turn's session
 * @throws {AgentError} `invalid_request` that names the field and the model.
 */
export async function checkTurn(
  request: TurnRequest,
  models: readonly Model[],
  ofSession: Budget | undefined,
): Promise<void> {
  const { strategy = "direct", responseFormat: format } = request.options;
  if (strategy !== "direct" && request.sessionId === "")
    throw invalidField("options.strategy", `is ${strategy}, which needs a session; create one, or leave it out`);
  if (format?.type === "json_schema") {
    const fault = schemaFault(format.schema);
    if (fault !== undefined)
      throw invalidField("options.response_format.json_schema.schema", `can't be used: ${fault}`);
  }
  for (const model of models) {
    for (const { field, anyOf, what } of needs(request)) {
      if (anyOf.some((feature) => model.features.includes(feature))) continue;
      throw invalidField(field, `${what}, which ${fullName(model)} can't do; leave it out or ask another model`);
    }
    model.check(request);
    const inTurn = request.options.budget?.maxCostNanoUsd !== undefined;
    if ((inTurn || ofSession?.maxCostNanoUsd !== undefined) && !(await model.hasPrice())) {
      const bound = inTurn ? "options.budget.max_cost_nano_usd" : "the session's budget.max_cost_nano_usd";
      throw new AgentError(
        "failed_precondition",
        `${bound} can't be held: the price of ${fullName(model)} is unknown; give it in the file of prices, or bound tokens or time`,
        { reason: "PRICE_UNKNOWN" },
      );
    }
  }
}

/**
 * Refuses the choice of a function that nobody has.
 * @param names of the server's functions; undefined where they can't be told now, and the client is believed
 * @throws {AgentError} `invalid_request` that names the field.
 */
export function checkToolChoice({ tools, options }: TurnRequest, names: readonly string[] | undefined): void {
  const { toolChoice } = options;
  if (namedTool(toolChoice) === undefined || names === undefined) return;
  if (tools.some(({ name }) => name === toolChoice) || names.some((name) => name === toolChoice)) return;
  throw invalidField(
    "options.tool_choice",
    `there is no function ${quoted(toolChoice ?? "")}; choose one of tools or of the server's own, or write auto, none or required`,
  );
}

/** The function that a choice names. */
export function namedTool(choice: string | undefined): string | undefined {
  return choice === undefined || ["", "auto", "none", "required"].includes(choice) ? undefined : choice;
}

interface Need {
  readonly field: string;
  /** One of them is enough. */
  readonly anyOf: readonly Feature[];
  /** What is asked for, as the beginning of a sentence after the field. */
  readonly what: string;
}

function needs({ messages, tools, options }: TurnRequest): Need[] {
  const found: Need[] = messages.flatMap((message, index) =>
    contentOf(message).map(({ feature, noun }) => ({
      field: `messages[${index}]`,
      anyOf: [feature],
      what: `holds ${noun}`,
    })),
  );
  if (tools.length > 0) found.push({ field: "tools", anyOf: ["tools"], what: "ask for calls of functions" });
  if ((options.strategy ?? "direct") !== "direct")
    found.push({ field: "options.strategy", anyOf: ["tools"], what: "asks for calls of functions" });
  const { thinking, stateful } = options;
  const wantsThought =
    thinking?.enabled ?? (thinking?.budgetTokens !== undefined || (thinking?.effort ?? "none") !== "none");
  if (wantsThought)
    found.push({ field: "options.thinking", anyOf: ["thinking", "reasoning"], what: "asks for thinking" });
  if (stateful?.store === true || stateful?.previousResponseId !== undefined)
    found.push({ field: "options.stateful", anyOf: ["stateful"], what: "asks the provider to keep the answer" });
  return found;
}

const contentFeatures = {
  image: { feature: "vision", noun: "an image" },
  audio: { feature: "audio", noun: "audio" },
  file: { feature: "files", noun: "a file" },
} as const satisfies Record<string, { feature: Feature; noun: string }>;

type Content = (typeof contentFeatures)[keyof typeof contentFeatures];

function contentOf(message: Message): Content[] {
  const found = new Set<Content>();
  for (const block of message.blocks) {
    const parts = block.type === "tool_result" ? (block.parts ?? []) : [block];
    for (const { type } of parts) {
      if (type === "image" || type === "audio" || type === "file") found.add(contentFeatures[type]);
    }
  }
  return [...found];
}

/**
 * The history as a model can take it: what it cannot see or hear, as after a change of the model, is left out and said
 * to be, so that the conversation can go on.
 */
export function withoutUnseen(messages: readonly Message[], features: readonly Feature[]): readonly Message[] {
  return messages.map((message) =>
    contentOf(message).every(({ feature }) => features.includes(feature)) ? message : withoutContent(message, features),
  );
}

function withoutContent(message: Message, features: readonly Feature[]): Message {
  const seen = <Part extends { readonly type: string }>(part: Part) => {
    const { type } = part;
    if (type !== "image" && type !== "audio" && type !== "file") return part;
    const { feature, noun } = contentFeatures[type];
    if (features.includes(feature)) return part;
    return { type: "text", text: `(${noun} is left out here: this model can't read it)` } as const;
  };
  return {
    ...message,
    blocks: message.blocks.map((block) =>
      block.type === "tool_result" && block.parts !== undefined
        ? { ...block, parts: block.parts.map(seen) }
        : seen(block),
    ),
  };
}
