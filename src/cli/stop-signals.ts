/** A terminal and a parent process may both deliver one Ctrl-C; what comes this soon after is the same wish. */
const sameWishMs = 300;

/**
 * Calls `stop` at SIGINT and SIGTERM instead of ending the process; `again` from the second on. SIGUSR1, which would open
 * a debugger, does nothing.
 * @param hangUp what the end of the terminal (SIGHUP) means
 * @returns gives the signals their usual meaning back.
 */
export function onStopSignal(stop: (again: boolean) => void, hangUp: "stop" | "ignore"): () => void {
  let lastMs: number | undefined;
  const onSignal = () => {
    const nowMs = performance.now();
    if (lastMs !== undefined && nowMs - lastMs < sameWishMs) return;
    const again = lastMs !== undefined;
    lastMs = nowMs;
    stop(again);
  };
  const ignore = () => {};
  const listeners = [
    ["SIGINT", onSignal],
    ["SIGTERM", onSignal],
    ["SIGHUP", hangUp === "stop" ? onSignal : ignore],
    ["SIGUSR1", ignore],
  ] as const;
  for (const [signal, listener] of listeners) process.on(signal, listener);
  return () => {
    for (const [signal, listener] of listeners) process.off(signal, listener);
  };
}
