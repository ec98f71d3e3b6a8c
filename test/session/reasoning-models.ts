import { setMaxListeners } from "node:events";
import type { TestContext } from "node:test";
import { objectOf, textOf } from "../../src/dialect/json.ts";
import { startFakeGithub } from "../provider/fake-github.ts";
import { type Answer, eventStream, key, startUpstream } from "../provider/upstream.ts";
import type { Form } from "./reasoning-answers.ts";

/** Every provider on one fake upstream, which knows models by their names. */
export interface Models {
  /** For the service under test. */
  readonly env: Readonly<Record<string, string>>;
  /** Adds answers to those a model has left; `held` answers nothing and keeps the connection. */
  plan(model: string, ...answers: readonly (Answer | "held")[]): void;
  /** The bodies a model was sent, the oldest first. */
  sentTo(model: string): readonly string[];
  /** Waits until a model has been asked so many times. */
  asked(model: string, times: number): Promise<void>;
}

/** @param processes how many services will ask Copilot, each of which logs in by itself. */
export async function startModels(context: TestContext, processes: number): Promise<Models> {
  const plans = new Map<string, (Answer | "held")[]>();
  const sent = new Map<string, string[]>();
  const news = new EventTarget();
  setMaxListeners(0, news);
  const answer: Answer = (request, response, body) => {
    const model = textOf(objectOf(JSON.parse(body))["model"]);
    sent.set(model, [...(sent.get(model) ?? []), body]);
    news.dispatchEvent(new Event("asked"));
    const planned = plans.get(model)?.shift();
    if (planned === undefined) response.writeHead(418).end(`nobody planned this request to ${model}`);
    else if (planned !== "held") planned(request, response, body);
  };
  const { url } = await startUpstream(
    context,
    Array.from({ length: 1000 }, () => answer),
  );
  const github = await startFakeGithub(context);
  for (let count = 0; count < processes; count++)
    github.plan({ json: { token: "tid=a", refresh_in: 1500, endpoints: { api: url } } });
  return {
    env: {
      ANTHROPIC_BASE_URL: url.replace(/\/v1$/, ""),
      ANTHROPIC_API_KEY: key,
      OPENAI_BASE_URL: url,
      OPENAI_API_KEY: key,
      DEEPSEEK_BASE_URL: url,
      DEEPSEEK_API_KEY: key,
      MOONSHOT_BASE_URL: url,
      MOONSHOT_API_KEY: key,
      FORWARD_BASE_URL: url,
      FORWARD_API_KEY: key,
      COPILOT_GITHUB_TOKEN: "gho_a-login",
      COPILOT_TOKEN_URL: github.url,
    },
    plan: (model, ...answers) => void plans.set(model, [...(plans.get(model) ?? []), ...answers]),
    sentTo: (model) => sent.get(model) ?? [],
    async asked(model, times) {
      while ((sent.get(model)?.length ?? 0) < times)
        await new Promise<void>((next) => news.addEventListener("asked", () => next(), { once: true }));
    },
  };
}

/** A provider's answer in one of its forms. */
export function answers(body: Readonly<Record<Form, string>>, form: Form): Answer {
  const headers = form === "stream" ? eventStream : { "content-type": "application/json" };
  return (_, response) => response.writeHead(200, headers).end(body[form]);
}
