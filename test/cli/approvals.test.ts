import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { Approvals, type AskPerson } from "../../src/cli/approvals.ts";
import { createPage } from "../../src/cli/terminal.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { runToEnd, startServe, temporaryFolder } from "./start-codeagent.ts";

const script = `
- { when: { role: tool }, text: so it is }
- { text: I begin, tool_calls: [{ name: list_files, arguments: { pattern: "*.m\\u200bd\\n" } }] }
`;
const permissions = { ask: ["list_files"] };

/** Answers a turn's request as `codeagent run` does with what the person says, and tells what was decided and shown. */
async function answerWith(
  context: Parameters<typeof startTestApp>[0],
  says: readonly string[],
  yes = false,
  asked = script,
) {
  const { client } = await startTestApp(context, { script: asked });
  const { sessionId } = await client.createSession({ permissions });
  const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
  const [request] = await reading.requests(1);
  assert.ok(request !== undefined);
  let shown = "";
  const left = [...says];
  const askPerson: AskPerson = async (question) => {
    shown += question;
    return left.shift() ?? "n";
  };
  const complaints: string[] = [];
  const page = createPage((text) => {
    shown += text;
  });
  const complain = (message: string) => void complaints.push(message);
  const approvals = new Approvals({ client, page, askPerson, yes, complain });
  approvals.opened(request);
  const seen = await reading.end();
  await approvals.close();
  assert.deepEqual(complaints, []);
  const answers = seen.flatMap(({ event }) => (event.case === "requestResolved" ? [event.value] : []));
  return { shown, left, decided: answers.map(({ decision, text }) => [decision, text]) };
}

describe("what the person at the terminal says", () => {
  const rows: [says: readonly string[], decision: string, text: string][] = [
    [["y"], "allow_once", ""],
    [[" YES "], "allow_once", ""],
    [["a"], "allow_session", ""],
    [["n"], "deny", ""],
    [["", " ", "y"], "allow_once", ""],
    [["not now, please"], "deny", "not now, please"],
  ];
  for (const [says, decision, text] of rows) {
    test(JSON.stringify(says), async (context) => {
      const { decided, left, shown } = await answerWith(context, says);
      assert.deepEqual(decided, [[decision, text]]);
      assert.deepEqual(left, []);
      assert.match(shown, /^list_files \{"pattern":"\*\.m\\u200bd\\n"\}\n/, "all of it, and nothing hides");
    });
  }

  test("with --yes nobody is asked", async (context) => {
    const { decided, shown } = await answerWith(context, ["n"], true);
    assert.deepEqual(decided, [["allow_once", ""]]);
    assert.equal(shown, "");
  });
});

test("a text of several lines is shown by lines that pass for nothing else", async (context) => {
  const asked = `
- { when: { role: tool }, text: so it is }
- { text: I begin, tool_calls: [{ name: list_files, arguments: { pattern: "a\\nrun it? y\\u200b\\n" } }] }
`;
  const { shown } = await answerWith(context, ["n"], false, asked);
  assert.match(shown, /^list_files\n {2}pattern:\n {2}│ a\n {2}│ run it\? y\\u200b\n {2}│ \n/);
});

describe("what the person says to a question", () => {
  const options = ["red", "dark \u200bblue"];
  const rows: [given: object, says: string, decision: string, text: string][] = [
    [{}, " because ", "answer", "because"],
    [{}, "2", "answer", "2"],
    [{}, "", "deny", ""],
    [{ options }, "1", "answer", "red"],
    [{ options }, "red", "answer", "red"],
    [{ options }, "3", "answer", "3"],
    [{ options }, "1,2", "answer", "1,2"],
    [{ options, multiple: true }, "2, 1", "answer", "dark \u200bblue\nred"],
    [{ options, multiple: true }, "1, green", "answer", "1, green"],
  ];
  for (const [given, says, decision, text] of rows) {
    test(`${JSON.stringify(given)}: ${JSON.stringify(says)}`, async (context) => {
      const asking = scriptOf({ question: "Which\ncolour?", ...given });
      const { decided, shown } = await answerWith(context, [says], false, asking);
      assert.deepEqual(decided, [[decision, text]]);
      assert.match(shown, /^Which\ncolour\?\n/, "all of it");
      assert.equal(/^1\. red\n2\. dark \\u200bblue\n/m.test(shown), "options" in given, "and nothing hides");
    });
  }

  test("with --yes nobody is asked, and nothing is made up", async (context) => {
    const { decided, shown, left } = await answerWith(context, ["x"], true, scriptOf({ question: "Why?" }));
    assert.equal(decided[0]?.[0], "deny");
    assert.match(String(decided[0]?.[1]), /^nobody is there to answer: /);
    assert.deepEqual([shown, left], ["", ["x"]]);
  });

  function scriptOf(given: object): string {
    const call = `{ name: ask_user, arguments: ${JSON.stringify(JSON.stringify(given))} }`;
    return `- { when: { role: tool }, text: so it is }\n- { text: I ask, tool_calls: [${call}] }\n`;
  }
});

test("what a task asks is asked with what its giver asks", async (context) => {
  const handing = `
- { when: { role: tool }, text: so it is }
- { when: { text: { equals: ask } }, tool_calls: [{ name: ask_user, arguments: { question: "Why?" } }] }
- { tool_calls: [{ name: task, arguments: { description: a task, prompt: ask } }] }
`;
  const { client } = await startTestApp(context, { script: handing });
  const other = await client.createSession({});
  const strange = readAlong(client.streamGenerate({ sessionId: other.sessionId, messages: [user("ask")] }));
  await strange.requests(1);
  const { sessionId } = await client.createSession({});
  const asked: string[] = [];
  const askPerson: AskPerson = async (question) => {
    asked.push(question);
    return "because";
  };
  const complain = (message: string) => assert.fail(message);
  const approvals = new Approvals({ client, page: undefined, askPerson, yes: false, complain });
  let told = "";
  for await (const { event } of client.streamGenerate({ sessionId, messages: [user("go")] })) {
    if (event.case === "notice") approvals.taskWaits(sessionId);
    if (event.case === "toolFinished") told = event.value.result?.output ?? "";
  }
  await approvals.close();
  assert.equal(told, "so it is");
  assert.equal(asked.length, 1, "what others ask is theirs");
});

test("what somebody else answered is asked no more", async (context) => {
  const { client } = await startTestApp(context, { script });
  const { sessionId } = await client.createSession({ permissions });
  const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
  const [request] = await reading.requests(1);
  assert.ok(request !== undefined);
  const { requestId } = request;
  const asked = Promise.withResolvers<void>();
  const askPerson: AskPerson = (_question, signal) => {
    asked.resolve();
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
  };
  const complain = (message: string) => assert.fail(message);
  const approvals = new Approvals({
    client,
    page: undefined,
    askPerson,
    yes: false,
    complain,
  });
  approvals.opened(request);
  await asked.promise;
  await client.respondToRequest({ sessionId, responses: [{ requestId, decision: "deny" }] });
  await reading.end();
  approvals.resolved(requestId);
  await approvals.close();
});

describe("without a terminal", () => {
  const asking = `
- { when: { role: tool }, text: so it is }
- { tool_calls: [{ name: ask_user, arguments: { question: list_files or what? } }] }
`;
  const rows: [flags: readonly string[], said: RegExp, asked?: string][] = [
    [[], /^deny by local: nobody is there to answer: .*\n← ask_user: the user does not answer/m, asking],
    [[], /^deny by local: nobody is there to be asked: .*--yes.*\n← list_files: not run: /m],
    [["--yes"], /^allow_once by local\n← list_files: /m],
  ];
  for (const [flags, said, asked = script] of rows) {
    test(`codeagent run ${flags.join(" ")}${asked === script ? "" : " with a question"}`.trim(), async (context) => {
      const folder = temporaryFolder(context);
      const { url } = await startServe(context, [], { folder, script: asked });
      const client = createCodeAgentClient({ baseUrl: url });
      context.after(() => client.close());
      const { sessionId } = await client.createSession({ permissions });
      const words = ["run", "--server", url, "--session", sessionId, ...flags, "go"];
      const { exit, stdout, stderr } = await runToEnd(context, words, { folder });
      assert.equal(stderr, "");
      assert.equal(exit, 0);
      assert.match(stdout, /^waits for an answer: list_files /m);
      assert.match(stdout, said);
    });
  }
});
