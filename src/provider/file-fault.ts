const faults: ReadonlyMap<unknown, string> = new Map([
  ["ENOENT", "it does not exist"],
  ["ENOTDIR", "it is no folder"],
  ["EISDIR", "it is a folder"],
  ["EEXIST", "it is no folder"],
  ["EACCES", "it may not be opened by the user this runs as"],
  ["EPERM", "it may not be opened by the user this runs as"],
]);

/** Why a file or folder can't be used, in words for a person and without its path. */
export function fileFault(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error ? error.code : undefined;
  if (code === undefined || !("syscall" in error)) return (error.message.split("\n", 1)[0] ?? "").replace(/:$/, "");
  return faults.get(code) ?? `the system says ${String(code)}`;
}
