import type { ServerRequest, ServerResponse } from "./refuse.ts";

/** What answers all paths below a prefix that are no RPCs, in a dialect of its own. */
export interface PathDoor {
  /** Begins and ends with a slash. */
  readonly prefix: string;
  /** Header fields, in lower case, that may carry the token besides `authorization`, without a word before it. */
  readonly tokenFields: readonly string[];
  /** For pages of other origins: methods that may be asked for, fields they may send and see. */
  readonly methods: readonly string[];
  /** @param name in lower case */
  takesField(name: string): boolean;
  readonly exposedFields: readonly string[];
  /**
   * Answers a request that was let in.
   * @param withoutBody calls a function that answers without having read the body, when the peer can take the answer
   */
  serve(request: ServerRequest, response: ServerResponse, withoutBody: (answer: () => void) => void): Promise<void>;
  /** Writes and ends the answer to a request that was not let in or failed where nobody expected it. */
  refuse(request: ServerRequest, response: ServerResponse, refused: RefusedRequest): void;
}

/** Why a request is refused, in the words of HTTP. */
interface RefusedRequest {
  readonly status: number;
  /** One sentence. */
  readonly message: string;
}
