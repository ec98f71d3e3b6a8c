/** It makes no sense to try again before something is changed. The message is for people. */
export class McpUnusableError extends Error {
  override readonly name = "McpUnusableError";
}

/** The server did not do what it should. The message is the end of a sentence about it. */
export class McpServerError extends Error {
  override readonly name = "McpServerError";
}
