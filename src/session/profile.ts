import { AgentError, invalidField } from "../chat/error.ts";
import type { GenerateOptions } from "../chat/request.ts";
import type { ProfilePermissions } from "../tool/permission.ts";

/** What the operator's configuration calls by one name: how an agent for a kind of work is set up. */
export interface Profile {
  readonly name: string;
  /** `provider/model`, or a list of them; empty means the one asked without the profile. */
  readonly model: string;
  /** Empty means the one there is without the profile. */
  readonly systemPrompt: string;
  /** Names of functions a turn may call, with `*` for any characters; absent means all. */
  readonly tools?: readonly string[];
  readonly permissions?: ProfilePermissions;
}

export type Profiles = ReadonlyMap<string, Profile>;

/** A profile never looks like a model: those have a slash. */
export const profileName = /^[a-z0-9][a-z0-9._-]{0,63}$/;

/** An empty list would mean all; no function has this name. */
export const noTools: readonly string[] = ["(none)"];

/** What a turn is asked for, as far as profiles have a say in it. */
export interface TurnTerms {
  /** `provider/model`, a list of them, or a name that nobody knows; empty where nobody names one. */
  readonly model: string;
  /** The options with the profile that holds for the turn, whether or not there is one of that name. */
  readonly options: GenerateOptions;
}

/**
 * Says which profile holds for a turn and which model it asks. The profile is the one that the options name, else the one
 * that the request names as its model, else, where it names none, the one that is the session's model. A model that the
 * request names besides its profile wins over the profile's; the profile's wins over the session's and the server's.
 * @throws {AgentError} `invalid_request` for a request that names two profiles.
 */
export function turnTerms(
  profiles: Profiles,
  { model, options }: TurnTerms,
  sessionModel: string,
  defaultModel: string,
): TurnTerms {
  const isNamed = profiles.has(model);
  if (options.profile !== undefined && isNamed && options.profile !== model)
    throw invalidField("options.profile", `is ${options.profile}, and the model names the profile ${model}; name one`);
  const known = [model, model === "" ? sessionModel : ""].find((name) => profiles.has(name));
  const name = options.profile ?? known;
  const ofRequest = isNamed ? "" : model;
  const ofSession = profiles.has(sessionModel) ? "" : sessionModel;
  if (name === undefined) return { model: ofRequest || ofSession || defaultModel, options };
  const ofProfile = profiles.get(name)?.model ?? "";
  return { model: ofRequest || ofProfile || ofSession || defaultModel, options: { ...options, profile: name } };
}

/** @throws {AgentError} `not_found` for the name of a profile that is not configured. */
export function checkProfile(profiles: Profiles, { profile }: GenerateOptions): void {
  if (profile === undefined || profiles.has(profile)) return;
  const shown = JSON.stringify(profile.slice(0, 100));
  throw new AgentError("not_found", `there is no profile ${shown}; ${knownNames(profiles)}`, {
    reason: "PROFILE_NOT_FOUND",
  });
}

/** What a model that nobody knows could have been meant for: the error, with the names of profiles where it has no slash. */
export function withProfileNames(error: unknown, profiles: Profiles, model: string): unknown {
  const isUnknown = error instanceof AgentError && error.kind === "not_found";
  if (!isUnknown || profiles.size === 0 || model.includes("/")) return error;
  return new AgentError("not_found", `${error.message}, or a profile; ${knownNames(profiles)}`, {
    reason: error.reason,
    cause: error,
  });
}

/**
 * The profile that holds for a turn that was begun.
 * @throws {AgentError} `failed_precondition` where it is not configured any more.
 */
export function profileOf(profiles: Profiles, { profile }: GenerateOptions): Profile | undefined {
  const found = profile === undefined ? undefined : profiles.get(profile);
  if (profile === undefined || found !== undefined) return found;
  throw new AgentError(
    "failed_precondition",
    `the turn was begun with the profile ${profile}, which this server's configuration does not have any more`,
    { reason: "PROFILE_GONE" },
  );
}

function knownNames(profiles: Profiles): string {
  return profiles.size === 0 ? "none is configured" : `configured are: ${[...profiles.keys()].join(", ")}`;
}

/**
 * The options of a turn that begins: it may call what its profile and its request both allow.
 * @param names of the functions there are
 */
export function withinProfile(
  profile: Profile | undefined,
  options: GenerateOptions,
  names: readonly string[],
): GenerateOptions {
  const { tools } = profile ?? {};
  if (tools === undefined) return options;
  const { allowedTools } = options;
  const ofProfile = new Set(
    tools.flatMap((tool) => (tool.includes("*") ? names.filter((name) => matches(tool, name)) : tool)),
  );
  const both = [...ofProfile].filter((name) => allowedTools === undefined || allowedTools.includes(name));
  return { ...options, allowedTools: both.length === 0 ? noTools : both };
}

function matches(pattern: string, name: string): boolean {
  const [first = "", ...others] = pattern.split("*");
  if (!name.startsWith(first)) return false;
  let place = first.length;
  for (const [index, part] of others.entries()) {
    const isLast = index === others.length - 1;
    const found = isLast ? name.length - part.length : name.indexOf(part, place);
    if (found < place || !name.startsWith(part, found)) return false;
    place = found + part.length;
  }
  return true;
}
