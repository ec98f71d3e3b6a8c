/**
 * What a model can be asked for, as words for clients.
 *
 * - `thinking`: it can be told to think and shows what it thinks; `reasoning`: it reasons, as hard as it is told to
 * - `stateful`: the provider keeps answers, and a request can go on from one
 * - `json_mode`: it can be held to JSON by the provider; where this lacks the service checks the answer itself
 */
export const features = [
  "streaming",
  "tools",
  "vision",
  "audio",
  "files",
  "thinking",
  "reasoning",
  "stateful",
  "json_mode",
] as const;
export type Feature = (typeof features)[number];
