import { permissionModes } from "../chat/session-config.ts";
import { nearNames } from "../tool/near-names.ts";
import { type ProfilePermissions, ruleFault } from "../tool/permission.ts";
import { type Profile, profileName } from "./profile.ts";

const fields = ["model", "system_prompt", "tools", "permission"];
const permissionFields = ["mode", "allow", "ask", "deny"];

/**
 * A profile as an operator writes it: `model`, `system_prompt`, `tools` and `permission`, which is a mode or has `mode`,
 * `allow`, `ask` and `deny`.
 * @param path where it is written, for errors
 * @throws {Error} one sentence that says where and what is wanted.
 */
export function readProfile(name: string, value: unknown, path: string): Profile {
  if (!profileName.test(name))
    throw new Error(
      `${path}: a name of small letters, digits, dots, - and _ is wanted, 64 at most, which begins with a letter or digit`,
    );
  const given = mapping(value, path);
  refuseOthers(given, fields, path);
  if (Object.keys(given).length === 0) throw new Error(`${path} is empty; there are: ${fields.join(", ")}`);
  const { model, system_prompt: systemPrompt, tools, permission } = given;
  return {
    name,
    model: model === undefined ? "" : modelFrom(model, `${path}.model`),
    systemPrompt: systemPrompt === undefined ? "" : textFrom(systemPrompt, `${path}.system_prompt`),
    ...(tools === undefined ? {} : { tools: toolsFrom(tools, `${path}.tools`) }),
    ...(permission === undefined ? {} : { permissions: permissionsFrom(name, permission, `${path}.permission`) }),
  };
}

function modelFrom(value: unknown, path: string): string {
  const model = textFrom(value, path);
  if (model.split(",").every((one) => /^[^/\s]+\/\S+$/.test(one.trim()))) return model;
  throw new Error(`${path} is ${JSON.stringify(model)}: provider/model is wanted`);
}

function toolsFrom(value: unknown, path: string): readonly string[] {
  if (!Array.isArray(value)) throw new Error(`${path}: a list of names of functions is wanted`);
  return value.map((item: unknown, index) => {
    if (typeof item === "string" && /^[\w.:*-]{1,128}$/.test(item)) return item;
    throw new Error(`${path}[${index}]: the name of a function is wanted, with * for any characters`);
  });
}

function permissionsFrom(profile: string, value: unknown, path: string): ProfilePermissions {
  if (typeof value === "string") return { profile, mode: modeFrom(value, path), allow: [], ask: [], deny: [] };
  const given = mapping(value, path);
  refuseOthers(given, permissionFields, path);
  return {
    profile,
    ...(given["mode"] === undefined ? {} : { mode: modeFrom(given["mode"], `${path}.mode`) }),
    allow: rulesFrom(given["allow"], `${path}.allow`),
    ask: rulesFrom(given["ask"], `${path}.ask`),
    deny: rulesFrom(given["deny"], `${path}.deny`),
  };
}

function modeFrom(value: unknown, path: string) {
  const mode = permissionModes.find((each) => each === value);
  if (mode !== undefined) return mode;
  throw new Error(`${path} is ${JSON.stringify(value)}: one of ${permissionModes.join(", ")} is wanted`);
}

function rulesFrom(value: unknown = [], path: string): readonly string[] {
  if (!Array.isArray(value)) throw new Error(`${path}: a list of rules is wanted, as run_command(git status:*)`);
  return value.map((item: unknown, index) => {
    const rule = textFrom(item, `${path}[${index}]`);
    const fault = ruleFault(rule);
    if (fault !== undefined) throw new Error(`${path}[${index}]: the rule ${rule} ${fault}`);
    return rule;
  });
}

function textFrom(value: unknown, path: string): string {
  if (typeof value === "string" && value.trim() !== "") return value;
  throw new Error(`${path}: a text is wanted`);
}

function mapping(value: unknown, path: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...value };
  throw new Error(`${path}: fields as "key: value" are wanted`);
}

function refuseOthers(given: Readonly<Record<string, unknown>>, known: readonly string[], path: string): void {
  const strange = Object.keys(given).find((key) => !known.includes(key));
  if (strange === undefined) return;
  const near = nearNames(known, strange);
  const help = near.length > 0 ? `is ${near.join(" or ")} meant?` : `there are: ${known.join(", ")}`;
  throw new Error(`${path}: there is no field ${strange}; ${help}`);
}
