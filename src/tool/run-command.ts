import { createHash } from "node:crypto";
import { noOutput, toolFailure } from "../chat/tool-result.ts";
import { type LocalFunction, numberArgument, textArgument } from "./local-function.ts";
import { type ProgramResult, runProgram } from "./run-program.ts";
import { findProgram } from "./sandbox/find-program.ts";
import { ProgramRefusedError, type Sandbox, SandboxUnavailableError } from "./sandbox/sandbox.ts";
import { filesRunBy } from "./shell/command-line.ts";
import { openFileBeneath, WorkspacePathError } from "./workspace.ts";

const defaultTimeoutMs = 30_000;
const maxTimeoutMs = 600_000;
const commandLimitBytes = 100 * 1024;

/** Runs command lines in the workspace, within the sandbox. */
export function runCommand(sandbox: Sandbox): LocalFunction {
  return {
    definition: {
      name: "run_command",
      description:
        "Runs a command line with bash in the workspace and gives its output and exit code. There is nothing to read on its " +
        "standard input; what it leaves in the background is ended with it. It may be confined: outside the workspace " +
        "nothing can be changed, .git is read-only, and the network may be out of reach.",
      parameters: JSON.stringify({
        type: "object",
        properties: {
          command: { type: "string", minLength: 1, description: "The command line, for example npm test" },
          timeout_ms: {
            type: "integer",
            minimum: 1,
            maximum: maxTimeoutMs,
            description: `How long it may take, in milliseconds; default ${defaultTimeoutMs}`,
          },
        },
        required: ["command"],
        additionalProperties: false,
      }),
      source: "local",
      title: "Run a command",
      readOnly: false,
      runsProgram: true,
      timeoutMs: maxTimeoutMs,
      returns: "Standard output and standard error as they came; the end says the exit code when it is not 0.",
    },

    async run(given, { workspace, signal, onOutput }) {
      const command = textArgument(given, "command") ?? "";
      const timeoutMs = numberArgument(given, "timeout_ms") ?? defaultTimeoutMs;
      if (command.includes("\0"))
        return toolFailure("the command holds a NUL character, which no program can be given");
      const commandBytes = Buffer.byteLength(command);
      if (commandBytes > commandLimitBytes) {
        return toolFailure(
          `the command is ${commandBytes} bytes long, more than ${commandLimitBytes}; write it to a file and run that`,
        );
      }
      try {
        const result = await runProgram(sandbox, {
          program: findProgram("bash", "/usr/bin:/bin") ?? "/bin/sh",
          args: ["-c", command],
          cwd: workspace,
          env: {},
          access: { writable: [workspace], readable: [], network: false },
          timeoutMs,
          signal,
          ...(onOutput === undefined ? {} : { onOutput }),
        });
        const { endedBy, exitCode, output, truncated, durationMs } = result;
        const isSuccess = endedBy === "itself" && exitCode === 0;
        return {
          success: isSuccess,
          output: isSuccess && output === "" ? noOutput : output,
          ...(isSuccess ? {} : { error: endOf(result, timeoutMs) }),
          ...(truncated ? { truncated } : {}),
          metadata: { exit_code: String(exitCode), ended_by: endedBy, program_ms: String(durationMs) },
        };
      } catch (error) {
        if (error instanceof SandboxUnavailableError || error instanceof ProgramRefusedError)
          return toolFailure(error.message);
        throw error;
      }
    },

    async fingerprint(given, { workspace }) {
      const files = filesRunBy(textArgument(given, "command") ?? "").sort();
      const hash = createHash("sha256");
      let found = 0;
      for (const file of files) {
        const content = await digestOf(workspace, file);
        if (content === undefined) continue;
        found++;
        hash.update(`${JSON.stringify(file)} ${content}\n`);
      }
      return found === 0 ? "" : hash.digest("hex");
    },
  };
}

/** How a command ended that failed, by the error that its result has. */
export function commandEnd(error: string): { readonly exitCode?: number; readonly isLate: boolean } {
  const [, exitCode] = /^exit code (\d+) after \d+ ms$/.exec(error) ?? [];
  return {
    isLate: /^the command was stopped after \d+ ms/.test(error),
    ...(exitCode === undefined ? {} : { exitCode: Number(exitCode) }),
  };
}

function endOf({ endedBy, exitCode, durationMs }: ProgramResult, timeoutMs: number): string {
  switch (endedBy) {
    case "itself":
      return `exit code ${exitCode} after ${durationMs} ms`;
    case "time": {
      const more = timeoutMs < maxTimeoutMs ? `; give a timeout_ms of at most ${maxTimeoutMs} for more time` : "";
      return `the command was stopped after ${timeoutMs} ms${more}`;
    }
    case "output":
      return "the command was stopped because it wrote more than 64 MiB; write less, or to a file";
    case "stop":
      return "the command was stopped";
    default:
      return endedBy satisfies never;
  }
}

/** SHA-256 of a file of the workspace; absent for what is no file there: a program of the system, a word that is no path. */
async function digestOf(workspace: string, path: string): Promise<string | undefined> {
  try {
    const { handle } = await openFileBeneath(workspace, path);
    try {
      const hash = createHash("sha256");
      // The stream ends with the descriptor, which is closed here.
      for await (const chunk of handle.createReadStream({ autoClose: false })) hash.update(chunk);
      return hash.digest("hex");
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof WorkspacePathError) return undefined;
    throw error;
  }
}
