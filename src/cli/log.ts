import { pino, stdSerializers } from "pino";
import type { Report } from "../app.ts";
import type { Config } from "../config.ts";
import type { Redactor } from "./secrets.ts";

/** What waits for a reader of stderr; beyond it, lines are dropped. */
const waitingLimitBytes = 1024 * 1024;

/** JSON lines on stderr, without the secrets the redactor knows. */
export function createLog(level: Config["log_level"], redactor: Redactor): Report {
  const { stderr } = process;
  const destination = {
    write(line: string) {
      if (stderr.writableLength < waitingLimitBytes) stderr.write(line);
    },
  };
  const logger = pino(
    {
      level,
      base: { pid: process.pid },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: stdSerializers.err },
      hooks: { streamWrite: (line) => redactor.redact(line) },
    },
    destination,
  );
  return (label, message, facts = {}) => logger[label](facts, message);
}
