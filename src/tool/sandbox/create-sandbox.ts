import { BubblewrapSandbox } from "./bubblewrap.ts";
import type { Environment } from "./environment.ts";
import type { SandboxKind, ServerSandbox } from "./sandbox.ts";
import { RuntimeSandbox } from "./sandbox-runtime.ts";
import { UnwalledSandbox } from "./unwalled.ts";

export interface SandboxOptions {
  readonly kind: SandboxKind;
  /** This server's own files; no program sees them. Absolute, as all paths here. */
  readonly dataDir: string;
  /** Files of this server with secrets in them, wherever they lie; programs see them empty. */
  readonly hidden?: readonly string[];
  /** Every program may read these besides what it is given, for example a compiler in a folder of its own. */
  readonly readable: readonly string[];
  /** Every program may change these, also where they would be protected: a cache, or the `.git` of a workspace. */
  readonly writable: readonly string[];
  /** Programs reach the network, and with it everything that listens on this machine. */
  readonly network: boolean;
  /** With `srt`: the domains the network consists of, as `github.com` or `*.npmjs.org`. */
  readonly domains: readonly string[];
  /** This process's own environment, of which a little is passed on. */
  readonly env: Environment;
}

/** Makes the sandbox a server is configured to have. Nothing is started or looked at before it is used. */
export function createSandbox(options: SandboxOptions): ServerSandbox {
  switch (options.kind) {
    case "bwrap":
      return new BubblewrapSandbox(options);
    case "srt":
      return new RuntimeSandbox(options);
    case "none":
      return new UnwalledSandbox(options);
    default:
      return options.kind satisfies never;
  }
}
