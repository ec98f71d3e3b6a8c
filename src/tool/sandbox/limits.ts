/** Processes, threads among them, of one program and all it starts. */
export const mostProcesses = 256;

/**
 * Options of `prlimit` (util-linux). Memory is bounded by what is written to: Node.js, Go and Java reserve far more addresses
 * than they use, and the first does not start with less than some gigabytes of them.
 * @param countsProcesses the processes of the program are counted apart from those of its user.
 */
export function limitsOf({ countsProcesses }: { readonly countsProcesses: boolean }): string[] {
  return [
    ...(countsProcesses ? [`--nproc=${mostProcesses}`] : []),
    "--data=2147483648",
    "--as=34359738368",
    "--fsize=1073741824",
    "--core=0",
  ];
}
