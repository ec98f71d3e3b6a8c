/**
 * The key of a session's metadata that says for which API the REST door made it, by the last segment of the API's path:
 * `responses`. What nobody made for a request of its own has none.
 */
export const madeByKey = "codeagent.made_by";
