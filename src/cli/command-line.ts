import { setTimeout } from "node:timers/promises";
import { Argument, Command, CommanderError } from "commander";
import { version } from "../version.ts";
import type { ConfigFlags } from "./config-flags.ts";
import type { DbFlags } from "./db.ts";
import type { DoctorFlags } from "./doctor.ts";
import type { LoginFlags, LogoutFlags } from "./login.ts";
import type { McpFlags } from "./mcp.ts";
import type { AddMcpServerFlags, McpServersFlags } from "./mcp-servers.ts";
import type { ModelsFlags } from "./models.ts";
import type { CreatePlanFlags, EditPlanFlags, ListPlansFlags, RunPlanFlags, ShowPlanFlags } from "./plan.ts";
import type { RunFlags } from "./run.ts";
import type { AddScheduleFlags, SchedulesFlags } from "./schedules.ts";
import { takeSecrets } from "./secrets.ts";
import type { ConnectionFlags } from "./service.ts";
import type { ForkFlags, ListFlags, ShowFlags } from "./sessions.ts";
import type { CheckSkillsFlags, NewSkillFlags, SkillsFlags } from "./skills.ts";
import type { CallToolFlags, ToolsFlags } from "./tools.ts";

/** Whoever reads stderr too slowly does not keep us from ending. */
const lastWordsLimitMs = 1000;

/**
 * Runs one command of `codeagent` and ends the process with its exit code: 0 when it did what it was asked to, else 1
 * and one sentence on stderr.
 * @param words what stands after `codeagent`
 */
export async function runCommandLine(words: readonly string[]): Promise<never> {
  const taken = takeSecrets(process.env);
  // Whoever reads us may stop to; that must not end what we do with a stack trace.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  let exitCode = 0;
  const program = new Command("codeagent")
    .description("An LLM coding agent as a service")
    .version(version)
    .showHelpAfterError("(--help shows what there is)")
    // So that an option of a command may have the name of one of the program: `plan show --version`.
    .enablePositionalOptions()
    .exitOverride();
  // The code of a command is loaded when it is called, so that a server starts without that of the others.
  withServerFlags(program.command("serve"))
    .description("serve gRPC, gRPC-Web, Connect and vendors' REST on one port")
    .option("--host <address>", "address to listen on (127.0.0.1)")
    .option("--port <number>", "port to listen on, 0 for any free one (4088)")
    .option("--insecure", "listen beyond loopback without a token")
    .action(async (flags: ConfigFlags) => {
      exitCode = await (await import("./serve.ts")).serve(flags, taken);
    });
  withConnectionFlags(program.command("run <prompt>"))
    .description('run one turn and show it as it goes; the prompt "-" is read from stdin')
    .option("--session <id>", "go on with this session; without it a new one is made")
    .option("--json", "one JSON line for each event")
    .option("--yes", "approve what the agent asks for; without it and without a terminal that is denied")
    .action(async (prompt: string, flags: RunFlags) => {
      exitCode = await (await import("./run.ts")).run(prompt, flags, taken);
    });
  const mcp = withConnectionFlags(program.command("mcp"));
  mcp
    .description(
      "serve this agent to MCP clients, over stdin and stdout; with ls, add or rm: MCP servers whose tools it uses",
    )
    .option("--http", "serve as `codeagent serve` does, and say where MCP is: under /mcp of the one port")
    .option("--host <address>", "with --http: address to listen on (127.0.0.1)")
    .option("--port <number>", "with --http: port to listen on, 0 for any free one (4088)")
    .option("--tools", "offer the functions too, besides the agent that uses them")
    .action(async (flags: McpFlags) => {
      exitCode = await (await import("./mcp.ts")).serveMcp(flags, taken);
    });
  // Their options are those of `mcp` too, which takes them wherever they stand.
  withConnectionFlags(mcp.command("ls"))
    .description("list the MCP servers whose tools agents can call")
    .option("--json", "one JSON line for each")
    .action(async (_flags: McpServersFlags, command: Command) => {
      exitCode = await (await import("./mcp-servers.ts")).listMcpServers(command.optsWithGlobals(), taken);
    });
  withConnectionFlags(mcp.command("add <name> <url-or-program> [arguments...]"))
    .description('add one: a URL, or a program with its arguments, after "--" when they begin with -')
    .option("--env <name=value>", "variable for the program, or NAME for its value here; may be given again", collect)
    .option("--header <header>", 'header for the URL, as "Name: value"; may be given again', collect)
    .option("--tool <name>", "offer this tool; may be given again (all)", collect)
    .option("--timeout <milliseconds>", "longest call (60000)")
    .action(
      async (name: string, first: string, rest: readonly string[], _flags: AddMcpServerFlags, command: Command) => {
        const { addMcpServer } = await import("./mcp-servers.ts");
        exitCode = await addMcpServer(name, [first, ...rest], command.optsWithGlobals(), taken);
      },
    );
  withConnectionFlags(mcp.command("rm <name...>"))
    .description("remove servers that were added")
    .action(async (names: readonly string[], _flags: ConnectionFlags, command: Command) => {
      exitCode = await (await import("./mcp-servers.ts")).removeMcpServers(names, command.optsWithGlobals(), taken);
    });
  const sessions = program.command("sessions").description("the sessions that are kept");
  withConnectionFlags(sessions.command("ls"))
    .description("list them, newest first")
    .option("--limit <number>", "how many (50)")
    .option("--json", "one JSON line for each session")
    .action(async (flags: ListFlags) => {
      exitCode = await (await import("./sessions.ts")).listSessions(flags, taken);
    });
  withConnectionFlags(sessions.command("show <id>"))
    .description("show the history of one")
    .option("--json", "one JSON line for each message")
    .action(async (id: string, flags: ShowFlags) => {
      exitCode = await (await import("./sessions.ts")).showSession(id, flags, taken);
    });
  withConnectionFlags(sessions.command("fork <id>"))
    .description("begin a new session like this one")
    .option("--through-seq <number>", "the last event to take over; all finished turns without it")
    .option("--title <text>", "title of the new session")
    .action(async (id: string, flags: ForkFlags) => {
      exitCode = await (await import("./sessions.ts")).forkSession(id, flags, taken);
    });
  withConnectionFlags(sessions.command("rm <id...>"))
    .description("remove sessions with all that was said in them")
    .action(async (ids: readonly string[], flags: ConnectionFlags) => {
      exitCode = await (await import("./sessions.ts")).removeSessions(ids, flags, taken);
    });
  const schedules = program.command("schedules").description("turns at set times");
  withConnectionFlags(schedules.command("ls"))
    .description("list them, newest first")
    .option("--json", "one JSON line for each schedule")
    .action(async (flags: SchedulesFlags) => {
      exitCode = await (await import("./schedules.ts")).listSchedules(flags, taken);
    });
  withConnectionFlags(schedules.command("add <cron> <prompt>"))
    .description('run a prompt at the times of five cron fields, as "0 9 * * 1-5"; it runs while a server does')
    .option("--session <id>", "in this session; without it in a new one each time")
    .option("--time-zone <name>", "the zone the fields are read in, as Europe/Zurich (this machine's)")
    .option("--misfire <policy>", "what passed while no server ran: one, all or none of it is made up for (one)")
    .option("--overlap <policy>", "when the run before goes on: queue or skip (queue)")
    .option("--id <id>", "id wanted")
    .option("--title <text>", "title for people (the prompt's beginning)")
    .action(async (cron: string, prompt: string, flags: AddScheduleFlags) => {
      exitCode = await (await import("./schedules.ts")).addSchedule(cron, prompt, flags, taken);
    });
  for (const [action, what] of [
    ["pause", "stop one until it is resumed"],
    ["resume", "go on with a paused one"],
    ["run", "run one now"],
  ] as const) {
    withConnectionFlags(schedules.command(`${action} <id>`))
      .description(what)
      .action(async (id: string, flags: ConnectionFlags) => {
        exitCode = await (await import("./schedules.ts")).changeSchedule(action, id, flags, taken);
      });
  }
  withConnectionFlags(schedules.command("rm <id...>"))
    .description("remove schedules; the sessions they made stay")
    .action(async (ids: readonly string[], flags: ConnectionFlags) => {
      exitCode = await (await import("./schedules.ts")).removeSchedules(ids, flags, taken);
    });
  withConnectionFlags(schedules.command("history <id>"))
    .description("list the runs of one, newest first")
    .option("--json", "one JSON line for each run")
    .action(async (id: string, flags: SchedulesFlags) => {
      exitCode = await (await import("./schedules.ts")).showRuns(id, flags, taken);
    });
  const plan = program.command("plan").description("plans: steps over the tools that run the same way each time");
  withConnectionFlags(plan.command("create [requirement]"))
    .description('have a plan made for a requirement, "-" reads it from stdin; or take one over with --file')
    .option("--session <id>", "over the tools and under the rules of this session")
    .option("--file <plan.yaml>", "take this plan over instead of asking a model")
    .option("--context <text>", "what the model that writes the plan should know besides")
    .option("--json", "the plan as one JSON line")
    .action(async (requirement: string | undefined, flags: CreatePlanFlags) => {
      exitCode = await (await import("./plan.ts")).createPlan(requirement, flags, taken);
    });
  withConnectionFlags(plan.command("show <id>"))
    .description("show the steps of one, and what keeps it from running")
    .option("--version <number>", "this version (the newest)")
    .option("--yaml", "as YAML, to be changed and taken over again")
    .option("--json", "as one JSON line")
    .action(async (id: string, flags: ShowPlanFlags) => {
      exitCode = await (await import("./plan.ts")).showPlan(id, flags, taken);
    });
  withConnectionFlags(plan.command("run <id-or-file>"))
    .description("run one, or one from a YAML file, and show it as it goes")
    .option("--version <number>", "this version (the newest)")
    .option("--session <id>", "for a file: over the tools and under the rules of this session")
    .option("--input <json>", "the values it asks for, as a JSON object")
    .option("--input-file <file>", "a file with them")
    .option("--follow <execution>", "go on with showing this execution instead of beginning one")
    .option("--json", "one JSON line for each event")
    .option("--yes", "approve what its steps ask for; without it and without a terminal that is denied")
    .action(async (given: string, flags: RunPlanFlags) => {
      exitCode = await (await import("./plan.ts")).runPlan(given, flags, taken);
    });
  withConnectionFlags(plan.command("edit <id>"))
    .description("make its next version in $EDITOR, or from a file")
    .option("--file <plan.yaml>", "take this text over instead of opening an editor")
    .action(async (id: string, flags: EditPlanFlags) => {
      exitCode = await (await import("./plan.ts")).editPlan(id, flags, taken);
    });
  withConnectionFlags(plan.command("ls"))
    .description("list them, newest first")
    .option("--session <id>", "only those of this session")
    .option("--json", "one JSON line for each")
    .action(async (flags: ListPlansFlags) => {
      exitCode = await (await import("./plan.ts")).listPlans(flags, taken);
    });
  const skills = program.command("skills").description("instructions and scripts for kinds of tasks");
  withConnectionFlags(skills.command("ls"))
    .description("list those of the workspace and the server")
    .option("--json", "one JSON line for each skill")
    .action(async (flags: SkillsFlags) => {
      exitCode = await (await import("./skills.ts")).listSkills(flags, taken);
    });
  skills
    .command("check <folder>")
    .description("say what is wrong with a skill, or with those in a folder")
    .option("--json", "one JSON line for each skill")
    .action(async (folder: string, flags: CheckSkillsFlags) => {
      exitCode = await (await import("./skills.ts")).checkSkills(folder, flags);
    });
  skills
    .command("new <name>")
    .description("make a skill that works, with one script")
    .option("--dir <folder>", "folder of skills to make it in (the server's first one)")
    .option("--config <file>", "settings (codeagent.yaml in the working directory, if there is one)")
    .option("--data-dir <folder>", "where sessions are kept (~/.codeagent)")
    .action(async (name: string, flags: NewSkillFlags) => {
      exitCode = await (await import("./skills.ts")).newSkill(name, flags, taken);
    });
  withLoginFlags(program.command("login"))
    .description("log in to a provider with a browser, for models as copilot/<model>")
    .option("--host <name>", "name of a GitHub Enterprise server, as company.ghe.com (github.com)")
    .option("--client-id <id>", "id of the app that the login is for (that of GitHub's own for editors)")
    .action(async (_provider: string, flags: LoginFlags) => {
      exitCode = await (await import("./login.ts")).login(flags, taken);
    });
  withLoginFlags(program.command("logout"))
    .description("remove a login")
    .action(async (_provider: string, flags: LogoutFlags) => {
      exitCode = await (await import("./login.ts")).logout(flags, taken);
    });
  withConnectionFlags(program.command("models [provider]"))
    .description("list the models of a provider, or of all that are configured, with their prices")
    .option("--all", "those of providers that are not configured too")
    .option("--validate", "ask the provider, or all that are configured, whether they answer")
    .option("--json", "one JSON line for each")
    .action(async (provider: string | undefined, flags: ModelsFlags) => {
      exitCode = await (await import("./models.ts")).listModels(provider, flags, taken);
    });
  const tools = program.command("tools").description("what agents can do here");
  withConnectionFlags(tools.command("ls"))
    .description("list the tools: name, source, whether they only read, what they do")
    .option("--session <id>", "those of this session; without it those a new one would have")
    .option("--json", "one JSON line for each, with the schema of its arguments")
    .action(async (flags: ToolsFlags) => {
      exitCode = await (await import("./tools.ts")).listTools(flags, taken);
    });
  withConnectionFlags(tools.command("call <name> [arguments]"))
    .description('run one outside any turn; the arguments are a JSON object, "-" reads them from stdin')
    .option("--session <id>", "in the workspace and under the permissions of this session")
    .option("--timeout <seconds>", "how long it may take (the tool's own limit)")
    .option("--json", "the whole result as one JSON line")
    .action(async (name: string, given: string | undefined, flags: CallToolFlags) => {
      exitCode = await (await import("./tools.ts")).callTool(name, given, flags, taken);
    });
  const db = program.command("db").description("all that is kept, in one file and back");
  db.command("export <file>")
    .description("write all sessions into a new file; any store reads it")
    .option("--config <file>", "settings (codeagent.yaml in the working directory, if there is one)")
    .option("--data-dir <folder>", "where sessions are kept (~/.codeagent); DATABASE_URL for PostgreSQL")
    .action(async (file: string, flags: DbFlags) => {
      exitCode = await (await import("./db.ts")).exportStore(file, flags, taken);
    });
  db.command("import <file>")
    .description("take what was exported into an empty store")
    .option("--config <file>", "settings (codeagent.yaml in the working directory, if there is one)")
    .option("--data-dir <folder>", "where sessions are to be kept (~/.codeagent); DATABASE_URL for PostgreSQL")
    .action(async (file: string, flags: DbFlags) => {
      exitCode = await (await import("./db.ts")).importStore(file, flags, taken);
    });
  withServerFlags(program.command("doctor"))
    .description("say what is configured, reachable and writable")
    .option("--host <address>", "address the server is to listen on")
    .option("--port <number>", "port the server is to listen on")
    .action(async (flags: DoctorFlags) => {
      exitCode = await (await import("./doctor.ts")).doctor(flags, taken);
    });
  try {
    await program.parseAsync(words, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) {
      // It has said already what it has to say.
      exitCode = error.exitCode;
    } else {
      const { sentenceOf } = await import("./sentence.ts");
      process.stderr.write(`codeagent: ${taken.redactor.redact(sentenceOf(error))}\n`);
      exitCode = 1;
    }
  }
  // A pipe is written to in the background; ending now would cut what is on its way.
  const { written } = await import("./terminal.ts");
  await Promise.race([written(process.stderr), setTimeout(lastWordsLimitMs)]);
  await written(process.stdout);
  process.exit(exitCode);
}

function withServerFlags(command: Command): Command {
  return command
    .option("--config <file>", "settings (codeagent.yaml in the working directory, if there is one)")
    .option("--data-dir <folder>", "where sessions are kept (~/.codeagent)")
    .option("--workspace <folder>", "the folder agents work in (the working directory)")
    .option("--workspace-root <folder>", "sessions may work in folders below it; may be given again", collect)
    .option("--skills-dir <folder>", "a folder of skills (skills in the data directory); may be given again", collect)
    .option("--model <name>", "the model to ask, as provider/model")
    .option("--token-file <file>", "file with the token that callers have to show")
    .option("--log-level <level>", "trace, debug, info, warn, error or silent (warn)")
    .option("--script <file>", "script of the provider `scripted`")
    .option("--record <folder>", "write each exchange with a model provider into this folder, without credentials")
    .option("--replay <folder>", "answer from recorded exchanges, without network and keys");
}

function withLoginFlags(command: Command): Command {
  return command
    .addArgument(new Argument("<provider>", "the provider").choices(["copilot"]))
    .option("--config <file>", "settings (codeagent.yaml in the working directory, if there is one)")
    .option("--data-dir <folder>", "where the login is kept (~/.codeagent)");
}

function withConnectionFlags(command: Command): Command {
  return withServerFlags(command).option(
    "--server <url>",
    "a running server; without it the one that uses the data directory, or else none: the service runs in this process",
  );
}

function collect(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}
