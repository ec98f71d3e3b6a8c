import type { IncomingHttpHeaders } from "node:http";
import { type ContextValues, createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import { AgentError } from "../chat/error.ts";

/** Who may administer the server: callers on this machine, whoever gets past the door, or nobody. */
export const adminModes = ["local", "on", "off"] as const;
export type AdminMode = (typeof adminModes)[number];

const isFromHere = createContextKey(false, { description: "the call comes from this machine" });

/** Header fields of proxies, of networks that deliver content and of service meshes, in lower case. */
const ofProxies =
  /^(?:forwarded|via|x-forwarded(?:-.+)?|x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|cf-connecting-ip(?:v6)?|fastly-client-ip|x-original-forwarded-for|x-envoy-.+)$/;

/** What of a request tells whether it comes from this machine. */
interface RequestOrigin {
  readonly socket: { readonly remoteAddress?: string | undefined };
  readonly headers: IncomingHttpHeaders;
}

/**
 * Notes for the handlers of a call whether it comes from this machine. A proxy on this machine speaks for others, and
 * says so in a header; one that says nothing can't be told from a caller.
 */
export function originValues({ socket, headers }: RequestOrigin): ContextValues {
  const address = socket.remoteAddress ?? "";
  const isLoopback = address === "::1" || /^(?:::ffff:)?127\./i.test(address);
  const isProxied = Object.keys(headers).some((name) => ofProxies.test(name));
  return createContextValues().set(isFromHere, isLoopback && !isProxied);
}

/** Lets callers through who may administer the server. @throws {AgentError} `permission_denied` for others. */
export type AdminRight = (context: HandlerContext) => void;

export function adminRight(mode: AdminMode): AdminRight {
  return ({ values }) => {
    if (mode === "on" || (mode === "local" && values.get(isFromHere))) return;
    const who = mode === "off" ? "nobody may do this" : "this is for callers on the server's own machine";
    throw new AgentError("permission_denied", `${who}, as the setting admin_api says`);
  };
}
