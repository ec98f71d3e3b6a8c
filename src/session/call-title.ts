import type { ToolUseBlock } from "../chat/message.ts";
import { mainArgumentText } from "../tool/permission.ts";
import { shortLine } from "./short-line.ts";

/** A call in one line for people; the whole is in its arguments. */
export function callTitle({ name, input }: Pick<ToolUseBlock, "name" | "input">): string {
  const given: unknown = JSON.parse(input.trim() === "" ? "{}" : input);
  const isObject = typeof given === "object" && given !== null;
  const main = isObject ? mainArgumentText({ name, arguments: { ...given } }) : "";
  return shortLine(`${name} ${main === "" ? input : main}`);
}
