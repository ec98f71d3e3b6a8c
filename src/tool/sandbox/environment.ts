import { dirname, isAbsolute } from "node:path";
import { ProgramRefusedError } from "./sandbox.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

const systemPath = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const passedOn = ["LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM"];

/** Each makes a shell, a loader or an interpreter run code that nobody has looked at, or where programs are taken from. */
const loaders = new Set([
  ...["BASH_ENV", "ENV", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "IFS", "GLOBIGNORE", "ZDOTDIR", "FPATH"],
  ...["NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "ELECTRON_RUN_AS_NODE", "BUN_OPTIONS", "DENO_DIR"],
  ...["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONUSERBASE", "PYTHONBREAKPOINT"],
  ...["PERL5LIB", "PERL5OPT", "PERLLIB", "PERL5DB", "RUBYLIB", "RUBYOPT", "LUA_PATH", "LUA_CPATH", "LUA_INIT"],
  ...["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "JAVA_OPTS", "DOTNET_STARTUP_HOOKS"],
  ...["GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCPATH", "NLSPATH", "RESOLV_HOST_CONF", "TERMINFO", "TERMCAP"],
  ...["EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "SHELL", "OPENSSL_CONF"],
  ...["PATH", "CODEAGENT_PROGRAM"],
]);
const loaderPrefixes = ["LD_", "DYLD_", "BASH_FUNC_", "MALLOC_", "GLIBC_", "GIT_", "NPM_CONFIG_", "CORECLR_", "COR_"];

/** Whether a program that is given this variable may load other code than its own. */
export function isLoaderVariable(name: string): boolean {
  const upper = name.toUpperCase();
  return loaders.has(upper) || loaderPrefixes.some((prefix) => upper.startsWith(prefix));
}

/**
 * The environment of a program: what each is given, and what was asked for. Nothing else of this process's own is in it.
 * @param server this process's own environment; its PATH, language, terminal and time zone are passed on.
 * @param home a folder of the program's own, for HOME.
 * @throws {ProgramRefusedError} for a variable that loads code, and for what is no variable.
 */
export function programEnvironment(
  asked: Readonly<Record<string, string>>,
  server: Environment,
  home: string,
  temporary: string,
): Record<string, string> {
  for (const [name, value] of Object.entries(asked)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new ProgramRefusedError(`${JSON.stringify(name.slice(0, 100))} is no name of an environment variable`);
    }
    if (isLoaderVariable(name))
      throw new ProgramRefusedError(`${name} can't be set for a program: it decides what code is run`);
    if (value.includes("\0")) throw new ProgramRefusedError(`the value of ${name} holds a NUL character`);
  }
  const language = server["LANG"] === undefined && server["LC_ALL"] === undefined ? { LANG: "C.UTF-8" } : {};
  const passed = passedOn.flatMap((name) => (server[name] === undefined ? [] : [[name, server[name]]]));
  return {
    TERM: "dumb",
    ...language,
    ...Object.fromEntries(passed),
    PATH: programPath(server["PATH"]),
    HOME: home,
    TMPDIR: temporary,
    USER: server["USER"] ?? "agent",
    ...asked,
  };
}

/** The server's own, then the system's, then where this Node.js is, for scripts on machines without one. */
function programPath(path: string | undefined): string {
  const own = (path ?? "").split(":").filter((folder) => isAbsolute(folder));
  return [...new Set([...own, ...systemPath, dirname(process.execPath)])].join(":");
}
