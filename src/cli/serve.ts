import { startApp } from "../app.ts";
import { type ConfigFlags, configFrom, readToken } from "./config-flags.ts";
import { createLog } from "./log.ts";
import { hideDatabases, type TakenEnvironment } from "./secrets.ts";
import { onStopSignal } from "./stop-signals.ts";

/** Beyond the drain time, for last words and for closing the store. */
const closingLimitMs = 15_000;

/**
 * Serves until SIGTERM or SIGINT, then lets running turns finish; a second signal shortens that.
 * @param greeting what is written when it listens, a line
 * @returns the exit code: 0, or 1 after a fault of our own.
 * @throws {Error} one sentence, when the start fails.
 */
export async function serve(
  flags: ConfigFlags,
  { env, redactor }: TakenEnvironment,
  greeting: (url: string) => string = (url) => `codeagent listening on ${url}`,
): Promise<number> {
  const config = configFrom(flags, env);
  hideDatabases([config.database_url, config["postgres.listen_url"]], redactor);
  const report = createLog(config.log_level, redactor.hide(readToken(config)));
  const stopAsked = Promise.withResolvers<void>();
  let graceMs = config["limits.drain_ms"];
  let exitCode = 0;
  let hurry = () => {};
  const stop = (again: boolean) => {
    if (again) graceMs = 0;
    report("info", again ? "draining ends now" : "draining", { graceMs });
    stopAsked.resolve();
    if (again) hurry();
  };
  const giveUp = () => process.exit(1);
  onStopSignal(stop, "ignore");
  process.on("uncaughtException", (error) => {
    report("error", "a fault of the server; it stops", { error });
    exitCode = 1;
    setTimeout(giveUp, closingLimitMs).unref();
    stop(true);
  });
  const app = await startApp({ config, env, report, requestStop: () => stop(false) });
  process.stdout.write(`${greeting(app.url)}\n`);
  report("info", "listening", { url: app.url });
  await stopAsked.promise;
  hurry = () => void app.close(0).catch(() => undefined);
  setTimeout(giveUp, graceMs + closingLimitMs).unref();
  await app.close(graceMs);
  report("info", "stopped");
  return exitCode;
}
