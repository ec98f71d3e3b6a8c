/** How a program that runs another one reads its arguments. What is not listed is not understood. */
export interface Wrapper {
  /** Short options that take a value, as letters. */
  readonly valued?: string;
  /** Short options without one. */
  readonly plain?: string;
  /** Long options; those with a value end in `=`. */
  readonly long?: readonly string[];
  /** Words between the options and the command. */
  readonly operands?: number;
  /** `NAME=value` may stand before the command. */
  readonly assigns?: true;
  /** With these options alone it adds no power to the command. */
  readonly harmless?: true;
  /** The words after the options are put together and read by a shell. */
  readonly shellText?: true;
  /** The command gets further arguments, from what the wrapper reads. */
  readonly addsWords?: true;
  /** It runs the words of its line only after such a first word (`npm exec`); how it reads its options is left open. */
  readonly verbs?: readonly string[];
  /** Option whose value a shell reads. */
  readonly textOption?: string;
}

/** Programs that run the command their arguments end in. */
export const wrappers: Readonly<Record<string, Wrapper>> = {
  // Harmless ones: a rule for the command is enough.
  command: { plain: "", harmless: true },
  builtin: { harmless: true },
  exec: { harmless: true },
  time: { plain: "pv", long: ["portability", "verbose"], harmless: true },
  nice: { valued: "n", plain: "0123456789", long: ["adjustment="], harmless: true },
  nohup: { harmless: true },
  timeout: {
    valued: "sk",
    plain: "v",
    long: ["signal=", "kill-after=", "foreground", "preserve-status", "verbose"],
    operands: 1,
    harmless: true,
  },
  stdbuf: { valued: "ioe", long: ["input=", "output=", "error="], harmless: true },
  ionice: { valued: "cn", plain: "t", long: ["class=", "classdata=", "ignore"], harmless: true },
  setsid: { plain: "cfw", long: ["ctty", "fork", "wait"], harmless: true },
  env: { valued: "uC", plain: "i0v", long: ["ignore-environment", "unset=", "chdir="], assigns: true, harmless: true },
  // What adds power, or is read too differently by its versions.
  sudo: {
    valued: "ugpCrtTUDRh",
    plain: "AbEeHiKklnPSsVv",
    long: ["user=", "group=", "preserve-env", "login", "shell", "non-interactive", "background", "stdin", "edit"],
    assigns: true,
  },
  doas: { valued: "uC", plain: "nsL" },
  pkexec: { long: ["user=", "disable-internal-agent", "keep-cwd"] },
  run0: {},
  gosu: { operands: 1 },
  "su-exec": { operands: 1 },
  setpriv: {},
  chroot: { long: ["userspec=", "groups=", "skip-chdir"], operands: 1 },
  unshare: {},
  nsenter: {},
  xargs: {
    valued: "IndPLsaE",
    plain: "0rtpxo",
    long: ["null", "no-run-if-empty", "verbose", "max-args=", "max-procs=", "delimiter=", "arg-file=", "max-lines="],
    addsWords: true,
  },
  parallel: { valued: "jIna", plain: "k0u", long: ["jobs=", "keep-order", "halt="], addsWords: true, shellText: true },
  watch: { valued: "n", plain: "bcdegtpx", long: ["interval=", "no-title", "color"], shellText: true },
  ssh: { valued: "BbcDEeFIiJLlmOoPpQRSWw", plain: "46AaCfGgKkMNnqsTtVvXxYy", operands: 1, shellText: true },
  script: { valued: "cEIOBTmo", plain: "aefq", long: ["command=", "quiet", "return"], textOption: "c", operands: 1 },
  su: { valued: "csgGwT", plain: "lmpPfh", long: ["command=", "login", "shell="], textOption: "c" },
  runuser: { valued: "ucsgGw", plain: "lmpPf", long: ["command=", "user="], textOption: "c" },
  flock: { valued: "cwE", plain: "exnsuoF", long: ["command=", "timeout="], textOption: "c", operands: 1 },
  taskset: { plain: "ac", operands: 1 },
  chrt: { plain: "bfiomrv", operands: 1 },
  numactl: {},
  setarch: { operands: 1 },
  prlimit: {},
  "systemd-run": {},
  "systemd-inhibit": {},
  "dbus-run-session": {},
  "dbus-launch": {},
  "xvfb-run": {},
  strace: { valued: "abeEIoOpPsSuX" },
  ltrace: {},
  valgrind: {},
  perf: {},
  gdb: {},
  rlwrap: {},
  unbuffer: {},
  busybox: {},
  toybox: {},
  firejail: {},
  bwrap: {},
  proot: {},
  fakeroot: {},
  fakechroot: {},
  faketime: { operands: 1 },
  eatmydata: {},
  proxychains: {},
  proxychains4: {},
  torsocks: {},
  tini: {},
  "dumb-init": {},
  caffeinate: {},
  cpulimit: {},
  chpst: {},
  softlimit: {},
  setlock: { operands: 1 },
  daemonize: {},
  daemon: {},
  "start-stop-daemon": {},
  entr: {},
  nodemon: {},
  hyperfine: { shellText: true },
  "ld-linux-x86-64.so.2": {},
  "ld-linux-aarch64.so.1": {},
  "ld-linux.so.2": {},
  "ld-musl-x86_64.so.1": {},
  npx: { valued: "pc", plain: "yq", long: ["yes", "package=", "call="], textOption: "c" },
  bunx: {},
  uvx: {},
  pipx: { verbs: ["run"] },
  npm: { verbs: ["exec", "x"] },
  pnpm: { verbs: ["exec", "dlx"] },
  yarn: { verbs: ["exec", "dlx"] },
  bun: { verbs: ["x"] },
  uv: { verbs: ["run", "tool"] },
  poetry: { verbs: ["run"] },
  pipenv: { verbs: ["run"] },
  rye: { verbs: ["run"] },
  hatch: { verbs: ["run"] },
  conda: { verbs: ["run"] },
  bundle: { verbs: ["exec"] },
  mise: { verbs: ["exec", "x"] },
  asdf: { verbs: ["exec"] },
  direnv: { verbs: ["exec"] },
  nix: { verbs: ["run", "shell", "develop"] },
  "nix-shell": {},
  docker: { verbs: ["run", "exec", "compose", "container"] },
  podman: { verbs: ["run", "exec", "compose", "container"] },
  kubectl: { verbs: ["exec", "run", "debug"] },
  ip: { verbs: ["netns", "vrf"] },
};

/** Shells: what they run is judged as the line itself is, where it is in their arguments. */
export const shells: ReadonlySet<string> = new Set([
  "bash",
  "sh",
  "dash",
  "ash",
  "ksh",
  "mksh",
  "rbash",
  "lksh",
  "posh",
]);

/** Shells with a grammar of their own. */
export const otherShells: ReadonlySet<string> = new Set([
  "zsh",
  "fish",
  "csh",
  "tcsh",
  "rc",
  "es",
  "elvish",
  "nu",
  "pwsh",
  "powershell",
  "xonsh",
  "cmd.exe",
  "yash",
  "ksh93",
]);

/** Programs with a language of their own for what they start, in their arguments or in what they read. */
export const starters: ReadonlySet<string> = new Set(
  (
    "tmux screen xterm gnome-terminal konsole alacritty kitty adb vagrant ansible lxc machinectl socat ftp lftp mail mailx " +
    "mutt at batch crontab newgrp sg capsh ssh-agent choom uclampset logsave aa-exec runcon cgexec s6-setuidgid setuidgid run-parts"
  ).split(" "),
);

/** Interpreters, each with the options that are followed by code. */
export const interpreters: Readonly<Record<string, { readonly code: string; readonly valued?: string }>> = {
  python: { code: "c", valued: "mWXQ" },
  perl: { code: "eE", valued: "IMm" },
  ruby: { code: "e", valued: "rIEC" },
  node: { code: "ep", valued: "rC" },
  nodejs: { code: "ep", valued: "rC" },
  deno: { code: "", valued: "" },
  bun: { code: "ep", valued: "r" },
  tsx: { code: "ep", valued: "r" },
  "ts-node": { code: "ep", valued: "r" },
  php: { code: "rBRE", valued: "dcz" },
  lua: { code: "e", valued: "l" },
  luajit: { code: "e", valued: "l" },
  tclsh: { code: "" },
  expect: { code: "c" },
  osascript: { code: "e", valued: "l" },
  Rscript: { code: "e" },
  groovy: { code: "e" },
  scala: { code: "e" },
  jshell: { code: "" },
  erl: { code: "" },
  elixir: { code: "e" },
  sqlite3: { code: "" },
  psql: { code: "c", valued: "dhpUfv" },
  mysql: { code: "e", valued: "hPuDp" },
  vim: { code: "cS" },
  vi: { code: "cS" },
  nvim: { code: "cS" },
  ex: { code: "cS" },
  ed: { code: "" },
  emacs: { code: "" },
  m4: { code: "" },
  dc: { code: "e" },
  ipython: { code: "c" },
  julia: { code: "eE" },
  R: { code: "e" },
  octave: { code: "" },
  ghc: { code: "e" },
  raku: { code: "e" },
  guile: { code: "c" },
  sbcl: { code: "" },
  racket: { code: "e" },
  swift: { code: "e" },
};

/** `python3.12` is `python`. */
export function interpreterOf(name: string): (typeof interpreters)[string] | undefined {
  const plain = name.replace(/^(python|perl|ruby|lua|php|node|pypy)[\d.]*$/, "$1").replace("pypy", "python");
  return Object.hasOwn(interpreters, plain) ? interpreters[plain] : undefined;
}

/** Variables that decide which programs or libraries are run, or are run themselves. */
export function isPowerfulVariable(name: string): boolean {
  return (
    /^(LD_|DYLD_|GIT_|NODE_(?!ENV$)|PYTHON|PERL|RUBY|BASH_|npm_config_|NPM_CONFIG_|CARGO_|RUST|MAKE|GCONV|MALLOC_)/i.test(
      name,
    ) || powerfulVariables.has(name)
  );
}

const powerfulVariables: ReadonlySet<string> = new Set(
  (
    "PATH IFS ENV SHELL SHELLOPTS PS0 PS1 PS2 PS4 PROMPT_COMMAND EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE LESS " +
    "HOME XDG_CONFIG_HOME CDPATH TMPDIR GOFLAGS GOROOT GOPATH CC CXX LD AR JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS " +
    "CLASSPATH PHPRC PHP_INI_SCAN_DIR RIPGREP_CONFIG_PATH TAR_OPTIONS RSYNC_RSH SSH_ASKPASS SUDO_ASKPASS LOCPATH NLSPATH " +
    "LUA_INIT LUA_PATH LUA_CPATH OPENSSL_CONF CURL_HOME WGETRC SYSTEMD_PAGER SYSTEMD_EDITOR FPATH HISTFILE INPUTRC TERMINFO"
  ).split(" "),
);
