import { Code, ConnectError } from "@connectrpc/connect";
import { CodeAgentError } from "../../sdk/error.ts";

/** What went wrong, in one line for a person: no stack, no excerpt of a file. */
export function sentenceOf(error: unknown): string {
  const message =
    error instanceof ConnectError ? error.rawMessage : error instanceof Error ? error.message : String(error);
  const line = message.split("\n", 1)[0]?.trim().replace(/:$/, "") ?? "";
  if (line === "") return "something went wrong and did not say what";
  const refused =
    (error instanceof ConnectError || error instanceof CodeAgentError) && error.code === Code.Unauthenticated;
  return refused ? `${line}; name the server's with CODEAGENT_TOKEN or --token-file` : line;
}
