import { dialects } from "../dialect/dialect.ts";
import { efforts } from "../dialect/effort.ts";
import { defaultQuirks, type Quirks } from "../dialect/quirks.ts";
import { anthropic } from "./anthropic.ts";
import { forward } from "./forward.ts";
import { openaiResponses } from "./openai-responses.ts";
import type { ProviderSpec } from "./provider-spec.ts";
import { type NamedEndpoint, providerSpecs } from "./registry.ts";

/** What an endpoint of the family is like when nothing else is said of it. */
const likeness = {
  "openai-chat": forward,
  "openai-responses": openaiResponses,
  "anthropic-messages": anthropic,
} satisfies Record<keyof typeof dialects, ProviderSpec>;

const fields = ["dialect", "base_url", "api_key_env", "headers", "quirks"];
const connectionHeaders = ["host", "connection", "content-length", "transfer-encoding", "accept-encoding"];

/** Reads one value; throws a sentence that says what is wanted. */
type Read<Value> = (value: unknown) => Value;

const flag: Read<boolean> = (value) => {
  if (typeof value === "boolean") return value;
  throw new Error("true or false is wanted");
};

function oneOf<const Word extends string>(...words: readonly Word[]): Read<Word> {
  return (value) => {
    const word = words.find((candidate) => candidate === value);
    if (word === undefined) throw new Error(`one of ${words.map((one) => JSON.stringify(one)).join(", ")} is wanted`);
    return word;
  };
}

function listOf<const Word extends string>(...words: readonly Word[]): Read<readonly Word[]> {
  const read = oneOf(...words);
  return (value) => {
    if (!Array.isArray(value)) throw new Error(`a list of words is wanted, each one of ${words.join(", ")}`);
    return value.map(read);
  };
}

const quirkReaders: { readonly [Key in keyof Quirks]: Read<Quirks[Key]> } = {
  maxTokensField: oneOf("max_tokens", "max_completion_tokens"),
  thinkingField: (value) => {
    if (typeof value === "string" && /^[A-Za-z_]{1,64}$/.test(value)) return value;
    throw new Error("the name of a field is wanted");
  },
  thinkingReplay: oneOf("none", "tool-turn", "tool-turns", "all"),
  opaqueReplay: oneOf("none", "tool-turn", "tool-turns", "all"),
  emptyThinking: flag,
  thinkTags: flag,
  thinkingSwitch: oneOf("none", "thinking-type", "reasoning-object", "enable-thinking", "template-kwargs"),
  thinkingAlways: flag,
  thinkingMode: oneOf("any", "adaptive", "budget", "none"),
  usageOption: flag,
  developerRole: oneOf("developer", "system"),
  reasoningEffort: flag,
  efforts: listOf(...efforts),
  sampling: oneOf("always", "without-thinking", "never"),
  jsonSchema: oneOf("native", "json-object", "prompt"),
  encryptedReasoning: flag,
  emptyContent: (value) => {
    if (value === null || value === "") return value;
    throw new Error('null or "" is wanted');
  },
  defaultMaxTokens: (value) => {
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 1) return value;
    throw new Error("a whole number from 1 is wanted");
  },
  cacheControl: flag,
};

/**
 * An endpoint as an operator writes it: `dialect`, `base_url` and, where wanted, `api_key_env`, `headers` and `quirks`.
 * @param path where it is written, for errors.
 * @throws {Error} one sentence that says where and what is wanted; it shows no value, since some are secret.
 */
export function readNamedEndpoint(name: string, value: unknown, path: string): NamedEndpoint {
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(name))
    throw new Error(`${path}: a name of small letters, digits, - and _ is wanted, which begins with a letter`);
  if (providerSpecs.some(({ id }) => id === name))
    throw new Error(`${path}: ${name} is a provider of our own; choose another name`);
  const given = mapping(value, path);
  refuseOthers(given, fields, path);
  for (const field of ["dialect", "base_url"]) {
    if (given[field] === undefined) throw new Error(`${path}.${field} is missing`);
  }
  const dialect = at(`${path}.dialect`, given["dialect"], oneOf(...dialectIds()));
  const apiKeyEnv =
    given["api_key_env"] === undefined ? undefined : at(`${path}.api_key_env`, given["api_key_env"], keyName);
  const like: ProviderSpec = likeness[dialect];
  return {
    spec: {
      id: name,
      dialect,
      baseUrl: at(`${path}.base_url`, given["base_url"], httpUrl),
      ...(apiKeyEnv === undefined ? {} : { apiKeyEnv }),
      ...(like.auth === undefined ? {} : { auth: like.auth }),
      keyRequired: apiKeyEnv !== undefined,
      ...(like.headers === undefined ? {} : { headers: like.headers }),
      features: like.features,
    },
    settings: {
      headers: readHeaders(given["headers"], `${path}.headers`),
      quirks: readQuirks(given["quirks"], `${path}.quirks`),
    },
  };
}

function dialectIds(): (keyof typeof dialects)[] {
  return [dialects["openai-chat"].id, dialects["openai-responses"].id, dialects["anthropic-messages"].id];
}

const httpUrl: Read<string> = (value) => {
  const url = typeof value === "string" ? URL.parse(value) : null;
  if (typeof value === "string" && (url?.protocol === "http:" || url?.protocol === "https:")) return value;
  throw new Error("an http: or https: URL is wanted");
};

/** Only variables that are taken for secrets by their names are kept from the programs we start. */
const keyName: Read<string> = (value) => {
  if (typeof value === "string" && /^(?:[A-Za-z_][A-Za-z0-9_]*_)?(?:KEY|TOKEN|SECRET)$/.test(value)) return value;
  throw new Error("the name of an environment variable is wanted that ends in _KEY, _TOKEN or _SECRET, not the key");
};

function readHeaders(value: unknown, path: string): Record<string, string> {
  const headers: Record<string, string> = {};
  if (value === undefined) return headers;
  for (const [name, text] of Object.entries(mapping(value, path))) {
    if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/.test(name))
      throw new Error(`${path}: ${JSON.stringify(name)} is no header's name`);
    if (connectionHeaders.includes(name.toLowerCase()))
      throw new Error(`${path}.${name} belongs to the connection and can't be set`);
    if (typeof text !== "string" || !/^[\t\x20-\x7e]*$/.test(text))
      throw new Error(`${path}.${name}: a text in ASCII on one line is wanted; put numbers in quotes`);
    headers[name] = text;
  }
  return headers;
}

function readQuirks(value: unknown, path: string): Partial<Quirks> {
  const quirks: { -readonly [Key in keyof Quirks]?: Quirks[Key] } = {};
  if (value === undefined) return quirks;
  const given = mapping(value, path);
  const take = <Key extends keyof Quirks>(key: Key, written: unknown) => {
    quirks[key] = at(`${path}.${wordOf(key)}`, written, quirkReaders[key]);
  };
  const keys = Object.keys(defaultQuirks).filter(isQuirk);
  refuseOthers(given, keys.map(wordOf), path);
  for (const key of keys) {
    const word = wordOf(key);
    if (Object.hasOwn(given, word)) take(key, given[word]);
  }
  return quirks;
}

function isQuirk(key: string): key is keyof Quirks {
  return Object.hasOwn(quirkReaders, key);
}

/** As keys are written in the configuration: `thinking_field`. */
function wordOf(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function at<Value>(path: string, value: unknown, read: Read<Value>): Value {
  try {
    return read(value);
  } catch (cause) {
    throw new Error(`${path}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

function mapping(value: unknown, path: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error(`${path}: entries as "key: value" are wanted`);
  return { ...value };
}

function refuseOthers(given: Readonly<Record<string, unknown>>, known: readonly string[], path: string): void {
  const other = Object.keys(given).find((key) => !known.includes(key));
  if (other !== undefined) throw new Error(`${path}: there is no ${other}; there are: ${known.join(", ")}`);
}
