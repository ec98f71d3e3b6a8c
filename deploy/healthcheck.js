// Asks the server of this machine or container whether it serves: exit code 0 when it does. It reads the same variables
// as the server, since without the token nobody is told anything. Plain JavaScript without packages, so that a probe
// starts fast.
import { readFileSync } from "node:fs";

const { CODEAGENT_PORT: port, CODEAGENT_TOKEN: token, CODEAGENT_TOKEN_FILE: tokenFile } = process.env;
const bearer = tokenFile ? readFileSync(tokenFile, "utf8").trim() : token;
try {
  const answer = await fetch(`http://127.0.0.1:${port || 4088}/grpc.health.v1.Health/Check`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(bearer ? { authorization: `Bearer ${bearer}` } : {}) },
    body: "{}",
    signal: AbortSignal.timeout(3000),
  });
  const { status, message } = await answer.json();
  if (status !== "SERVING") {
    console.error(`codeagent does not serve: ${status ?? message}`);
    process.exitCode = 1;
  }
} catch (error) {
  console.error(`codeagent can't be asked: ${error.cause?.message ?? error.message}`);
  process.exitCode = 1;
}
