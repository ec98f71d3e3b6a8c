import { createHash, timingSafeEqual } from "node:crypto";
import { Code, ConnectError, cors } from "@connectrpc/connect";
import type { PathDoor } from "./path-door.ts";
import type { Refusal, ServerRequest, ServerResponse } from "./refuse.ts";

/** What the doorkeeper knows of the house. */
export interface DoorkeeperOptions {
  scheme: "http" | "https";
  /** The port we listen on. */
  port: number;
  /** Names of our own, without port: the loopback names and the address we are bound to. */
  ownNames: readonly string[];
  /** Further names, `name` or `name:port`. A name without a port stands for our port and for none. */
  allowedHosts: readonly string[];
  /** Origins of web pages that may call, exactly as a browser writes them. */
  allowedOrigins: readonly string[];
  token?: string;
  headerBytes: number;
  headerPairs: number;
}

/** Looks at the head of a request before anything else does. */
export interface Doorkeeper {
  /** Settles header count, target, Host and Origin. Rewrites an absolute target to its path. */
  checkAddress(request: ServerRequest): Refusal | undefined;
  /** Asks for the token, when there is one. @param door what the path belongs to, where it is not an RPC's */
  checkToken(request: ServerRequest, door?: PathDoor): Refusal | undefined;
  /** Sets the CORS fields of a request whose address was found good. Answers and returns true when it was a preflight. */
  answerCors(request: ServerRequest, response: ServerResponse, door?: PathDoor): boolean;
}

const hostShape = /^(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9._-]{0,253}))(?::\d{1,5})?$/;
const preflightMaxAgeSeconds = "7200";
const allowedHeaders = [...cors.allowedHeaders, "Authorization"].join(", ");
const allowedMethods = cors.allowedMethods.join(", ");
const exposedHeaders = cors.exposedHeaders.join(", ");

function refusal(httpStatus: number, code: Code, message: string): Refusal {
  return { error: new ConnectError(message, code), httpStatus };
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

export function createDoorkeeper(options: DoorkeeperOptions): Doorkeeper {
  const { scheme, port } = options;
  const hosts = new Set<string>();
  for (const name of [...options.ownNames, ...options.allowedHosts].map((host) => host.toLowerCase())) {
    hosts.add(name);
    if (!/:\d+$/.test(name)) hosts.add(`${name}:${port}`);
  }
  // A browser leaves the scheme's usual port out of an origin.
  const ownPort = port === (scheme === "https" ? 443 : 80) ? "" : `:${port}`;
  const origins = new Set([
    ...options.allowedOrigins,
    ...options.ownNames.map((name) => `${scheme}://${name.toLowerCase()}${ownPort}`),
  ]);
  const tokenHash = options.token === undefined ? undefined : sha256(options.token);

  function checkFields({ rawHeaders }: ServerRequest): Refusal | undefined {
    // An HTTP/2 peer may not yet know our limit when it sends its first request, and Node enforces it only from then on.
    const bytes = rawHeaders.reduce((sum, text) => sum + text.length, 0);
    if (bytes <= options.headerBytes && rawHeaders.length <= options.headerPairs * 2) return undefined;
    return refusal(
      431,
      Code.ResourceExhausted,
      `the header fields of the request exceed ${options.headerPairs} or ${options.headerBytes} bytes; send fewer`,
    );
  }

  function checkHost(request: ServerRequest): Refusal | undefined {
    const named = new Set<string>();
    let hostFields = 0;
    const raw = request.rawHeaders;
    for (let at = 0; at < raw.length; at += 2) {
      const name = raw[at]?.toLowerCase();
      if (name !== "host" && name !== ":authority") continue;
      if (name === "host") hostFields++;
      named.add((raw[at + 1] ?? "").toLowerCase());
    }
    const [host] = named;
    if (host === undefined || named.size > 1 || hostFields > 1) {
      return refusal(400, Code.InvalidArgument, "the request must name exactly one host");
    }
    if (!hostShape.test(host)) return refusal(400, Code.InvalidArgument, "the host of the request is malformed");
    if (!hosts.has(host)) {
      return refusal(
        403,
        Code.PermissionDenied,
        "the host of the request is not one this server answers for; allowed_hosts adds to them",
      );
    }
    const target = request.url ?? "";
    if (target.startsWith("/") && !target.startsWith("//")) return undefined;
    const absolute = /^https?:\/\/([^/?#]*)(\/(?!\/).*)?$/i.exec(target);
    if (absolute?.[1]?.toLowerCase() === host) {
      request.url = absolute[2] ?? "/";
      return undefined;
    }
    if (absolute !== null) return refusal(403, Code.PermissionDenied, "the target of the request names another host");
    return refusal(400, Code.InvalidArgument, "the target of the request is not a path");
  }

  function isAllowedOrigin(origin: string, request: ServerRequest): boolean {
    if (origins.has(origin)) return true;
    const host = "authority" in request ? request.authority : request.headers.host;
    return origin === `${scheme}://${host?.toLowerCase()}`;
  }

  return {
    checkAddress(request) {
      const tooMany = checkFields(request);
      if (tooMany !== undefined) return tooMany;
      const fault = checkHost(request);
      if (fault !== undefined) return fault;
      const origin = request.headers.origin;
      if (origin === undefined || isAllowedOrigin(origin, request)) return undefined;
      return refusal(
        403,
        Code.PermissionDenied,
        "pages of this origin may not call this server; allowed_origins lets them",
      );
    },
    checkToken(request, door) {
      if (tokenHash === undefined) return undefined;
      const bearer = /^bearer +(\S+) *$/i.exec(request.headers.authorization ?? "")?.[1];
      const given = [bearer, ...(door?.tokenFields ?? []).map((name) => request.headers[name])];
      // Hashes have one length, so the comparison tells nothing about the token's.
      const isToken = (text: unknown) => typeof text === "string" && timingSafeEqual(sha256(text), tokenHash);
      if (given.some(isToken)) return undefined;
      const fields = door === undefined || door.tokenFields.length === 0 ? "" : `, or one as ${door.tokenFields[0]}`;
      return { error: new ConnectError(`a valid bearer token is required${fields}`, Code.Unauthenticated) };
    },
    answerCors(request, response, door) {
      const origin = request.headers.origin;
      if (origin !== undefined || request.method !== "POST") response.setHeader("vary", "Origin");
      if (origin === undefined) return false;
      response.setHeader("access-control-allow-origin", origin);
      if (request.method !== "OPTIONS" || request.headers["access-control-request-method"] === undefined) {
        response.setHeader("access-control-expose-headers", door?.exposedFields.join(", ") ?? exposedHeaders);
        return false;
      }
      response.statusCode = 204;
      response.setHeader("access-control-allow-methods", door?.methods.join(", ") ?? allowedMethods);
      response.setHeader(
        "access-control-allow-headers",
        door === undefined ? allowedHeaders : wantedFields(request, door),
      );
      response.setHeader("access-control-max-age", preflightMaxAgeSeconds);
      response.end();
      return true;
    },
  };
}

/** What a preflight asks for and the door takes. */
function wantedFields(request: ServerRequest, door: PathDoor): string {
  const asked = request.headers["access-control-request-headers"] ?? "";
  const names = asked.split(",").map((name) => name.trim().toLowerCase());
  return names.filter((name) => door.takesField(name)).join(", ");
}
