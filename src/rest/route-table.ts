import { AgentError } from "../chat/error.ts";
import { HttpFault } from "./http-fault.ts";

/** Something served at a method and a path. */
export interface Routed<Target> {
  readonly method: string;
  /** See `RestRoute`. */
  readonly path: string;
  readonly target: Target;
}

/** Finds what serves a request. */
export class RouteTable<Target> {
  readonly #routes: readonly (Routed<Target> & { readonly pattern: RegExp })[];

  constructor(routes: readonly Routed<Target>[]) {
    this.#routes = routes.map((route) => ({ ...route, pattern: patternOf(route.path) }));
  }

  /**
   * @param path without query
   * @throws {HttpFault} 404 and 405, the latter with `allow`; {AgentError} `invalid_request` for broken percent-encoding.
   */
  find(method: string, path: string): { readonly target: Target; readonly params: Readonly<Record<string, string>> } {
    const fitting = this.#routes.flatMap((route) => {
      const match = route.pattern.exec(path);
      return match === null ? [] : [{ ...route, groups: match.groups ?? {} }];
    });
    // What is written out goes before what has names in braces.
    const found =
      fitting.find((route) => route.method === method && !route.path.includes("{")) ??
      fitting.find((route) => route.method === method);
    if (found !== undefined) return { target: found.target, params: decoded(found.groups) };
    if (fitting.length === 0)
      throw new HttpFault(404, "UNKNOWN_URL", `${nothingAt(method, path)}; there are ${this.#places()}`);
    const allow = [...new Set(fitting.map((route) => route.method))].join(", ");
    throw new HttpFault(
      405,
      "METHOD_NOT_ALLOWED",
      `${method.slice(0, 20)} is not for ${path.slice(0, 200)}; use ${allow}`,
      { allow },
    );
  }

  /** The paths without names in braces. */
  #places(): string {
    return [...new Set(this.#routes.map(({ path }) => path))].filter((path) => !path.includes("{")).join(", ");
  }
}

function nothingAt(method: string, path: string): string {
  return `there is nothing at ${method.slice(0, 20)} ${path.slice(0, 200)}`;
}

function patternOf(path: string): RegExp {
  const source = path
    .replace(/[.*?^$()|[\]\\]/g, "\\$&")
    .replace(/\{(\w+)\+\}/g, "(?<$1>.+)")
    .replace(/\{(\w+)\}/g, "(?<$1>[^/]+)");
  return new RegExp(`^${source}$`);
}

function decoded(groups: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  try {
    return Object.fromEntries(Object.entries(groups).map(([name, text]) => [name, decodeURIComponent(text)]));
  } catch (cause) {
    throw new AgentError("invalid_request", "the path of the request is not percent-encoded as it should be", {
      cause,
    });
  }
}
