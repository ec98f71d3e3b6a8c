import { ConnectError } from "@connectrpc/connect";

/** What went wrong, in one line for a person: no stack, no excerpt of a file. */
export function sentenceOf(error: unknown): string {
  const message =
    error instanceof ConnectError ? error.rawMessage : error instanceof Error ? error.message : String(error);
  const line = message.split("\n", 1)[0]?.trim().replace(/:$/, "") ?? "";
  return line === "" ? "something went wrong and did not say what" : line;
}
