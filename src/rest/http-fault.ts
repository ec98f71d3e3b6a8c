import { AgentError } from "../chat/error.ts";

/** A request that is wrong as HTTP: its status is HTTP's own word, whatever the vendor. */
export class HttpFault extends AgentError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  /** @param reason a word for programs, in capitals */
  constructor(status: number, reason: string, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(kindOf(status), message, { reason, detail: { retryable: status === 503 } });
    this.status = status;
    this.headers = headers;
  }
}

function kindOf(status: number) {
  if (status === 401) return "unauthenticated";
  if (status === 403) return "permission_denied";
  if (status === 404) return "not_found";
  if (status === 503) return "unavailable";
  return status >= 500 ? "internal" : "invalid_request";
}
