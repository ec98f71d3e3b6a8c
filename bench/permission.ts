import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decidePermission, type PermissionSubject, resolveSubject, rulesOf } from "../src/tool/permission.ts";
import { readCommandLine } from "../src/tool/shell/command-line.ts";
import { type BenchOptions, interleaved, type Measured, type Sample } from "./harness.ts";

const plain = "git status --short";
const compound = `ls src && timeout 60 npm test -- --filter 'a b' 2>&1 | grep -v "^#" | tail -n 40; echo "done: $(git rev-parse HEAD)"`;

const rules = rulesOf(
  {
    mode: "ask",
    allow: [
      "run_command(git status:*)",
      "run_command(git rev-parse:*)",
      "run_command(npm test:*)",
      "run_command(ls:*)",
    ],
    ask: ["run_command(git push:*)"],
    deny: ["run_command(rm:*)", "run_command(sudo:*)", "write_file(.env)"],
    sandbox: "bwrap",
  },
  {
    mode: "ask",
    allow: ["run_command(grep:*)", "run_command(tail:*)", "run_command(echo:*)", "write_file(src/**)"],
    ask: [],
    deny: ["run_command(curl:*)"],
  },
);

/** How many calls can be judged in a second: by a dozen rules, with what the file system is asked about paths. */
export async function measurePermissions({ quick }: BenchOptions): Promise<Measured[]> {
  const workspace = realpathSync(mkdtempSync(join(tmpdir(), "codeagent-bench-")));
  const times = quick ? 50 : 200;
  const call = (name: string, given: Readonly<Record<string, unknown>>): PermissionSubject => {
    const edits = name === "write_file";
    return { name, readOnly: false, edits, runsProgram: !edits, arguments: given, workspace, contentSha256: "" };
  };
  const check = (subject: PermissionSubject, decision: string) => () =>
    timed(times, async () => {
      const found = decidePermission(rules, [], await resolveSubject(subject));
      if (found.decision !== decision) throw new Error(`${found.decision}: ${found.explanation}`);
    });
  try {
    return await interleaved(
      "a call judged by 13 rules",
      {
        "reading the compound line alone": () => timed(times, async () => readCommandLine(compound)),
        "a plain command": check(call("run_command", { command: plain }), "allow"),
        "a compound line of six commands": check(call("run_command", { command: compound }), "allow"),
        "a path": check(call("write_file", { path: "src/main/a.ts", content: "" }), "allow"),
      },
      quick ? 1 : 9,
      quick ? 1 : 3,
    );
  } finally {
    rmSync(workspace, { recursive: true, force: true });
  }
}

async function timed(times: number, work: () => Promise<unknown>): Promise<Sample> {
  const start = performance.now();
  for (let time = 0; time < times; time++) await work();
  return { "checks/s": (times * 1000) / (performance.now() - start) };
}
