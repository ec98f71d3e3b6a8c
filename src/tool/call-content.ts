import { createHash } from "node:crypto";
import type { IndexedFunction } from "./function-index.ts";
import type { FunctionCall } from "./function-provider.ts";

/**
 * SHA-256, in hexadecimal, over what a call would run besides its arguments: the files of a script, the definition that a
 * server gave. Empty where nothing but the server's own code runs. What somebody approves holds for these bytes.
 */
export async function callContent(
  { definition, provider, name }: IndexedFunction,
  given: FunctionCall["arguments"],
  workspace: string,
): Promise<string> {
  const { digest = "" } = definition;
  const files = (await provider.fingerprint?.({ name, arguments: given }, { workspace })) ?? "";
  if (digest === "" && files === "") return "";
  return createHash("sha256").update(`${digest} ${files}`).digest("hex");
}
