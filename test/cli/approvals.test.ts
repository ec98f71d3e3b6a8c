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
async function answerWith(context: Parameters<typeof startTestApp>[0], says: readonly string[], yes = false) {
  const { client } = await startTestApp(context, { script });
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
  const rows: [flags: readonly string[], said: RegExp][] = [
    [[], /^deny by local: nobody is there to be asked: .*--yes.*\n← list_files: not run: /m],
    [["--yes"], /^allow_once by local\n← list_files: /m],
  ];
  for (const [flags, said] of rows) {
    test(`codeagent run ${flags.join(" ")}`.trim(), async (context) => {
      const folder = temporaryFolder(context);
      const { url } = await startServe(context, [], { folder, script });
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
