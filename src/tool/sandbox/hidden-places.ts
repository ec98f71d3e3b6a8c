import { homedir } from "node:os";
import { join } from "node:path";
import type { Environment } from "./environment.ts";

const inHome = [
  ...[".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc"],
  ...[".pypirc", ".git-credentials", ".password-store", ".vault-token", ".codeagent", ".terraform.d", ".boto"],
  ...[".config/gcloud", ".config/gh", ".config/hub", ".config/git/credentials", ".config/github-copilot"],
  ...[".config/op", ".config/doctl", ".config/rclone", ".cargo/credentials", ".cargo/credentials.toml"],
  ...[".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".local/share/keyrings", ".mozilla"],
  ...[".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history", ".python_history"],
];
const ofSystem = [
  ...["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh"],
  ...["/etc/ssl/private", "/etc/krb5.keytab", "/etc/codeagent", "/var/lib/docker", "/var/lib/containerd", "/var/log"],
  ...["/var/spool", "/var/lib/postgresql", "/var/backups", "/boot", "/sys/kernel", "/tmp/.X11-unix", "/tmp/.ICE-unix"],
];

/**
 * Where secrets lie, and sockets of those who would act for whoever asks. No program sees them, whatever else it may read.
 * Not all of them exist.
 */
export function hiddenPlaces(dataDir: string, env: Environment): string[] {
  const homes = [...new Set([env["HOME"] ?? homedir(), homedir(), "/root"])];
  const agent = env["SSH_AUTH_SOCK"] ?? "";
  return [
    dataDir,
    ...homes.flatMap((home) => inHome.map((name) => join(home, name))),
    ...ofSystem,
    ...(agent.startsWith("/") ? [agent] : []),
  ];
}
