import { isPlainAwk, isPlainSed, type RunCommand } from "./command-line.ts";
import type { ShellWord } from "./parse-shell.ts";
import { interpreterOf, isPowerfulVariable } from "./wrappers.ts";

/** Options and words with which a program runs others, writes files or is configured: more than its name says. */
interface Risk {
  /** Letters of short options, alone or among others. */
  readonly short?: string;
  /** Long options without their dashes; beginnings of them count, as programs take these too. */
  readonly long?: readonly string[];
  /** Words as a whole, options with one dash among them. */
  readonly words?: readonly string[];
  /** Any word of this form. */
  readonly form?: RegExp;
  /** The most words without a dash. */
  readonly mostOperands?: number;
}

const goRisk: Risk = {
  words: ["generate", "tool"],
  form: /^--?(exec|toolexec|overlay|C|modfile|vettool|ldflags|gcflags|asmflags|gccgoflags|w|o|cpuprofile|memprofile|trace|coverprofile|blockprofile|outputdir)(=|$)/,
};
const compilerRisk: Risk = { form: /^(-wrapper|-fplugin|-B|-specs|--specs|-load|-o|@|-Xclang|-fuse-ld|-Wl,|-Xlinker)/ };
const makeRisk: Risk = { short: "fCIE", long: ["file", "makefile", "directory", "include-dir", "eval"], form: /=/ };
const packageRisk: Risk = {
  short: "C",
  long: [
    "prefix",
    "dir",
    "cwd",
    "script-shell",
    "node-options",
    "userconfig",
    "globalconfig",
    "registry",
    "use-node-version",
  ],
};

const risks: Readonly<Record<string, Risk>> = {
  find: {
    // What -exec runs is judged by itself.
    words: ["-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"],
  },
  fd: { short: "xX", long: ["exec", "exec-batch"] },
  fdfind: { short: "xX", long: ["exec", "exec-batch"] },
  rg: { long: ["pre", "hostname-bin"] },
  ag: { long: ["pager"] },
  ack: { long: ["pager", "ackrc", "output"] },
  sort: { short: "oT", long: ["output", "compress-program", "temporary-directory"] },
  uniq: { mostOperands: 1 },
  xxd: { mostOperands: 1 },
  tree: { short: "o" },
  file: { short: "mC", long: ["magic-file", "compile"] },
  split: { long: ["filter"] },
  tar: {
    short: "IF",
    long: [
      "to-command",
      "checkpoint-action",
      "use-compress-program",
      "rsh-command",
      "rmt-command",
      "info-script",
      "new-volume-script",
    ],
    form: /^[a-zA-Z]*[IF][a-zA-Z]*$/,
  },
  zip: { short: "T", long: ["unzip-command"] },
  rsync: { short: "e", long: ["rsh", "rsync-path", "daemon", "config", "remote-option"] },
  ssh: { short: "oFEISwWLRD" },
  scp: { short: "oSFDiJ" },
  sftp: { short: "oSFDb" },
  curl: {
    short: "oOKTdFDcwx",
    long: [
      "output",
      "remote-name",
      "create-dirs",
      "config",
      "upload-file",
      "data",
      "json",
      "form",
      "dump-header",
      "cookie-jar",
      "trace",
      "stderr",
      "unix-socket",
      "abstract-unix-socket",
      "libcurl",
      "etag-save",
      "hsts",
      "alt-svc",
      "write-out",
      "proxy",
      "preproxy",
      "connect-to",
      "resolve",
      "next",
      "netrc-file",
      "engine",
      "egd-file",
      "random-file",
      "ssl-sessions",
      "variable",
      "expand",
      "dns",
      "doh",
    ],
    form: /^(-\w*H|--header=?)?@/,
  },
  wget: {
    short: "OoaeiP",
    long: [
      "output-document",
      "output-file",
      "append-output",
      "execute",
      "input-file",
      "directory-prefix",
      "use-askpass",
      "post",
      "body",
      "config",
      "save",
      "load",
      "warc",
      "rejected-log",
      "hsts-file",
      "recursive",
      "mirror",
    ],
  },
  less: { short: "oOkT", long: ["log-file", "LOG-FILE", "lesskey", "tag-file"], form: /^\+/ },
  more: { form: /^\+/ },
  most: { form: /^\+/ },
  man: { short: "PHCTXZE", long: ["pager", "html", "config-file", "troff", "ditroff", "preprocessor"] },
  make: makeRisk,
  gmake: makeRisk,
  cmake: { short: "PEDCo", long: ["build", "install", "open"] },
  ninja: { short: "Cf" },
  npm: packageRisk,
  pnpm: packageRisk,
  yarn: packageRisk,
  cargo: { short: "CZ", long: ["config", "manifest-path", "target-dir", "artifact-dir"], form: /^\+/ },
  go: goRisk,
  gcc: compilerRisk,
  "g++": compilerRisk,
  cc: compilerRisk,
  "c++": compilerRisk,
  clang: compilerRisk,
  "clang++": compilerRisk,
  rustc: { short: "CZo", long: ["codegen", "out-dir", "emit", "sysroot"] },
  pip: {
    short: "eti",
    long: ["editable", "target", "index-url", "extra-index-url", "config-settings", "python", "log"],
  },
  pip3: {
    short: "eti",
    long: ["editable", "target", "index-url", "extra-index-url", "config-settings", "python", "log"],
  },
  pytest: { short: "cpo", long: ["rootdir", "override-ini", "confcutdir", "basetemp", "junit", "debug", "pdbcls"] },
  eslint: {
    short: "cof",
    long: ["config", "rulesdir", "plugin", "resolve-plugins", "parser", "format", "output-file", "fix"],
  },
  prettier: { short: "w", long: ["write", "plugin", "config", "with-node-modules"] },
  docker: { short: "Hc", long: ["host", "config", "context"] },
  podman: { short: "Hc", long: ["host", "config", "connection", "url"] },
  kubectl: { long: ["kubeconfig", "server", "as", "token"] },
  apt: { short: "oc", long: ["option", "config-file"] },
  "apt-get": { short: "oc", long: ["option", "config-file"] },
  "apt-cache": { short: "oc", long: ["option", "config-file"] },
  dpkg: { long: ["pre-invoke", "post-invoke", "status-logger", "admindir", "root", "instdir"] },
  ip: { short: "b", long: ["batch"], words: ["exec"] },
  nc: { short: "ecl", long: ["exec", "sh-exec", "lua-exec"] },
  ncat: { short: "ecl", long: ["exec", "sh-exec", "lua-exec"] },
  nmap: { short: "o", long: ["script", "datadir", "resume"] },
  strace: { form: /^(-\w*o|--output=)?[|!]/ },
  tcpdump: { short: "zwrF" },
  openssl: { form: /^-+(out|engine|provider|provider-path|config|writerand|keyout|CAserial|rand)/ },
  yq: { short: "is", long: ["inplace", "in-place", "split"] },
  journalctl: { long: ["vacuum", "rotate", "flush", "root", "directory"] },
  systemctl: { short: "HM", long: ["host", "machine", "root"] },
  date: { short: "s", long: ["set"] },
  hostname: { short: "F", long: ["file"], mostOperands: 0 },
  gdb: { form: /^/ },
  history: { short: "warn" },
  git: {},
  cd: {},
};

/** Options that git takes before its command. */
const gitGlobals = new Set([
  "--no-pager",
  "-P",
  "--no-optional-locks",
  "--literal-pathspecs",
  "--no-replace-objects",
  "--version",
  "--help",
]);

const gitRisk: Risk = {
  long: [
    "output",
    "output-directory",
    "exec",
    "exec-path",
    "upload-pack",
    "receive-pack",
    "upload-archive",
    "ext-diff",
    "textconv",
    "extcmd",
    "tool",
    "open-files-in-pager",
    "config",
    "config-env",
    "template",
    "git-dir",
    "work-tree",
    "separate-git-dir",
    "editor",
    "interactive",
    "signature",
    "gpg-sign",
    "edit",
    "tree-filter",
    "index-filter",
    "msg-filter",
    "env-filter",
    "trailer",
    "remote",
    "server-option",
    "to",
    "smtp-server",
  ],
  words: [
    "-O",
    "-x",
    "-c",
    "-C",
    "-u",
    "-i",
    "-e",
    "-o",
    "run",
    "foreach",
    "alias",
    "config",
    "filter-branch",
    "difftool",
    "mergetool",
    "daemon",
    "hook",
    "maintenance",
    "send-email",
    "fast-import",
    "instaweb",
    "credential",
    "bundle",
    "archimport",
  ],
  form: /::|^-O.|^-c.|^-x.|^-o./,
};

/** Options that git's own commands understand as something harmless. */
const gitHarmless: Readonly<Record<string, RegExp>> = {
  log: /^(-c|-i|-C|-u)$/,
  show: /^(-c|-u)$/,
  diff: /^(-C|-u)$/,
  grep: /^(-c|-i|-e|-o|-C)$/,
  add: /^(-u|-i)$/,
  push: /^(-u)$/,
  commit: /^(-o|-u|-i)$/,
  status: /^(-u)$/,
  stash: /^(-u)$/,
  "ls-files": /^(-o|-c|-i|-u)$/,
  "rev-parse": /^(--git-dir|--show-toplevel)$/,
};

/**
 * Says what an allowed program is told by its arguments that its rule does not say.
 * @param covered how many words of the command stand in the rule
 * @param moves the command line goes to other folders
 */
export function riskOf(command: RunCommand, covered: number, moves: boolean): string | undefined {
  const { program, words } = command;
  const rest = words.slice(covered);
  if (program === "git") return gitRiskOf(words, covered, moves);
  if (program === "sed" || program === "gsed")
    return isPlainSed(words) || covered > 1 ? undefined : "its script or options may write files or run commands";
  if (["awk", "gawk", "mawk", "nawk", "original-awk"].includes(program))
    return isPlainAwk(words) || covered > 1 ? undefined : "its program may write files or run commands";
  if (program === "cd" || program === "pushd") {
    const target = words.find((word, at) => at > 0 && !/^-[LPe@n]*$/.test(word.text));
    const stays = target?.literal === true && !/^(\/|~|-)/.test(target.text) && !target.text.split("/").includes("..");
    return stays || target === undefined || covered > 1 ? undefined : "it may leave the workspace";
  }
  if (["alias", "enable", "hash", "trap", "shopt", "bind", "complete", "source", ".", "eval"].includes(program))
    return rest.length === 0 || covered > 1 ? undefined : "it may change what the words after it mean";
  if (["export", "declare", "typeset", "local", "readonly", "printf", "read"].includes(program)) {
    const isPowerful = rest.some((word) => isPowerfulVariable(word.start.split(/[=+]/, 1)[0] ?? ""));
    return isPowerful ? "it sets a variable that decides what is run" : undefined;
  }
  const interpreter = interpreterOf(program);
  if (interpreter !== undefined) {
    if (rest.length === 0 || covered > 1) return undefined;
    return command.hides === undefined ? undefined : command.hides;
  }
  const risk = Object.hasOwn(risks, program) ? risks[program] : undefined;
  return risk === undefined ? undefined : riskAmong(risk, words, covered);
}

function riskAmong(risk: Risk, words: readonly ShellWord[], covered: number): string | undefined {
  const { mostOperands } = risk;
  let optionsEnd = false;
  let operands = 0;
  for (const [at, word] of words.entries()) {
    if (at === 0) continue;
    if (!word.start.startsWith("-")) operands++;
    if (at < covered) continue;
    if (!word.literal && !optionsEnd && (word.start === "" || word.start.startsWith("-")))
      return "it is given words that may turn out to be options";
    if (optionsEnd && risk.form === undefined) continue;
    if (word.literal && word.text === "--") optionsEnd = true;
    else if (isRisky(risk, word.literal ? word.text : word.start))
      return `${word.text} gives it more power than the rule says`;
  }
  return mostOperands !== undefined && operands > mostOperands ? "it writes to the last of its files" : undefined;
}

function isRisky({ short = "", long = [], words = [], form }: Risk, text: string): boolean {
  if (words.includes(text) || form?.test(text) === true) return true;
  if (text.startsWith("--")) {
    const [name = ""] = text.slice(2).split("=", 1);
    return name !== "" && long.some((each) => each.startsWith(name) || name.startsWith(`${each}-`));
  }
  if (!text.startsWith("-")) return false;
  return [...text.slice(1)].some((letter) => short.includes(letter));
}

function gitRiskOf(words: readonly ShellWord[], covered: number, moves: boolean): string | undefined {
  if (moves) return "in another folder git may be configured to run something";
  let at = 1;
  for (; at < words.length; at++) {
    const { text, literal } = words[at] ?? { text: "", literal: false };
    if (!literal) return "it is given words that may turn out to be options";
    if (!text.startsWith("-")) break;
    if (at >= covered && !gitGlobals.has(text)) return `${text} gives it more power than the rule says`;
  }
  const verb = words[at]?.text ?? "";
  const harmless = Object.hasOwn(gitHarmless, verb) ? gitHarmless[verb] : undefined;
  let optionsEnd = false;
  for (const word of words.slice(Math.max(at, covered))) {
    if (!word.literal && !optionsEnd && (word.start === "" || word.start.startsWith("-")))
      return "it is given words that may turn out to be options";
    const { start } = word;
    if (word.text === "--") optionsEnd = true;
    else if (!optionsEnd && harmless?.test(start) !== true && isRisky(gitRisk, start))
      return `${word.text} gives it more power than the rule says`;
  }
  return undefined;
}
