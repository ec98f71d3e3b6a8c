import { destination, pino, stdSerializers } from "pino";
import type { Report } from "../app.ts";
import type { Config } from "../config.ts";
import type { Redactor } from "./secrets.ts";

export interface Log {
  readonly report: Report;
  /** Writes out what is still to be written; for the last moment of a process. */
  flush(): void;
}

/** When nobody reads stderr, what does not fit is dropped. */
const waitingLimitBytes = 1024 * 1024;

/** JSON lines on stderr, without the secrets the redactor knows. */
export function createLog(level: Config["log_level"], redactor: Redactor): Log {
  const stderr = destination({ dest: 2, sync: false, maxLength: waitingLimitBytes });
  // A closed stderr must not end the server.
  stderr.on("error", () => {});
  const logger = pino(
    {
      level,
      base: { pid: process.pid },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: stdSerializers.err },
      hooks: { streamWrite: (line) => redactor.redact(line) },
    },
    stderr,
  );
  return {
    report: (label, message, facts = {}) => logger[label](facts, message),
    flush() {
      try {
        stderr.flushSync();
      } catch {
        // Nobody reads any more.
      }
    },
  };
}
