import type { PlanRun, PlanVersion } from "../chat/plan.ts";
import type { ScheduledCommand } from "../chat/schedule.ts";
import type { PermissionPolicy } from "../chat/session-config.ts";
import { planVersionText } from "../convert/proto/plan.ts";

/** The one step of the plan that runs a command. */
const commandStepId = "command";
/** Its function. */
const commandFunction = "run_command";

/** A command as the plan of a turn: one step, tried once, judged and walled in as every call of its function. */
export function commandRun(scheduleId: string, { commandLine, timeoutMs }: ScheduledCommand, nowMs: number): PlanRun {
  const version: PlanVersion = {
    ...{ planId: scheduleId, version: 1, sessionId: "", goal: "The command has run", requirement: "" },
    ...{ successCriteria: [], complexity: "simple", inputSchema: "", metadata: {} },
    ...{ missingFunctions: [], problems: [], model: "", createTimeMs: nowMs, updateTimeMs: nowMs },
    steps: [
      {
        ...{ id: commandStepId, description: "", dependsOn: [], condition: "", onError: "fail" },
        details: {
          kind: "function_call",
          function: commandFunction,
          parameters: JSON.stringify({ command: commandLine, timeout_ms: timeoutMs }),
        },
      },
    ],
  };
  return { planId: scheduleId, version: 1, plan: planVersionText(version), input: "{}" };
}

/**
 * What lets a session run exactly this command without asking. What the server denies or asks for stays denied or asked for,
 * and where there is no sandbox each run is asked for.
 */
export function commandPermissions(commandLine: string): PermissionPolicy {
  // At the end of a pattern `:*` stands for any words, in a command for itself; a space more changes nothing else.
  return { mode: "ask", allow: [`${commandFunction}(${commandLine} )`], ask: [], deny: [] };
}
