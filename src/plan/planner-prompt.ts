import type { OfferedFunctions } from "./offered-functions.ts";

/** A plan in the form that is asked for; it calls no function of any server. */
export const examplePlan = {
  goal: "Every TODO of the sources is in one report that a person has approved.",
  success_criteria: ["The report names every file that has a TODO."],
  complexity: "medium",
  input_schema: { type: "object", properties: { folder: { type: "string", default: "src" } } },
  steps: [
    {
      id: "find",
      kind: "function_call",
      description: "Look for TODOs.",
      function: "search",
      parameters: { pattern: "TODO", path: { ref: "input.folder" } },
      retry: { max_attempts: 2 },
    },
    {
      id: "each_file",
      kind: "for_each",
      description: "Sum up what each file leaves to be done.",
      condition: "size(step.find.result.files) > 0",
      for_each: {
        items: { ref: "step.find.result.files" },
        max_concurrency: 4,
        steps: [
          {
            id: "sum_up",
            kind: "model",
            description: "Sum up one file.",
            model: { prompt: `In one sentence, what is left to be done here?\n\${item.text}` },
          },
        ],
      },
    },
    {
      id: "approve",
      kind: "user_input",
      description: "Ask whether the report is to be written.",
      user_input: {
        prompt: "Write the report?",
        schema: { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] },
      },
    },
    {
      id: "write",
      kind: "function_call",
      description: "Write the report.",
      function: "save",
      parameters: { path: "todo.json", content: { ref: "step.each_file.result" } },
      condition: "step.approve.result.ok",
    },
  ],
} as const;

/** What a model that writes plans is told, with the functions it may call. */
export function plannerPrompt({ text, shown, leftOut }: OfferedFunctions): string {
  const list = shown.length === 0 ? "(none)" : text;
  const more =
    leftOut === 0
      ? ""
      : `\nThere are ${leftOut} more, which seem to have less to do with the requirement and are not shown.`;
  return `${rules}

An example for other functions than yours:
${JSON.stringify(examplePlan)}

The functions that there are, one a line, with the JSON Schema of their parameters:
<functions>
${list}
</functions>${more}`;
}

const rules = `You write plans. A program carries out your plan later without you, step by step and as often as it says: whatever it is to do has to stand in the plan. Answer with one plan as a JSON object, and with nothing else.

The plan
- goal: one sentence on what is true when the plan has worked. success_criteria: what has to hold at the end, one sentence each, so that it can be judged by the results of the steps. complexity: simple, medium, complex or very_complex.
- input_schema: JSON Schema of an object, for what only whoever starts the plan can know; leave it out when there is nothing.
- steps: as few as will do. Steps that do not wait for each other run at the same time.

A step
- id: a short word of letters, digits and _, unique in the whole plan, those within other steps included. description: what it does, for people.
- kind, and with it what only that kind has:
  function_call calls a function: function and parameters. Call only functions that are listed. If none of them can do what is needed, call one by a name that tells what it would do, and describe it: people are told that it is missing. Never make believe that another one does it.
  model asks a language model that has no functions: model {prompt, system_prompt, schema}. It gives text, or with a schema the JSON that fits it.
  user_input asks a person: user_input {prompt, schema}, the schema of an object whose properties are the fields.
  branch runs the first case that holds: branch {cases: [{condition, steps}], otherwise}.
  for_each runs steps for each item of a list: for_each {items, steps, max_concurrency}. Its result is the list of the results of their last step.
  parallel runs branches side by side: parallel {branches: [{name, steps}], max_concurrency}. Its result is the list of their results.
  sub_plan runs another plan: sub_plan {plan_id, input}; only one that the context names.
- depends_on: ids of steps of the same list that have to end before it. A step also waits for those it refers to; do not write cycles.
- condition: when it does not hold, the step is skipped. CEL over step.<id>.result, input, and within for_each item and index; it has to give true or false.
- retry {max_attempts, delay_ms} where trying again is safe and may help; timeout_ms; on_error: fail ends the plan, skip skips what depends on the step, continue goes on with null; compensation {function, parameters, description}, what undoes the step when the plan fails later.

Values
- In parameters, items and input an object {"ref": "step.<id>.result.a.b[0]"} stands for that value with its type; other roots are input, and within for_each item and index. It can only refer to steps that end before. Text is not filled in there.
- In prompts \${step.<id>.result.a} is filled in.
- A step without a result, or one that was skipped, has null.
- Parameters have to fit the function's schema exactly: all that is required, nothing that is not there, each in its type.`;
