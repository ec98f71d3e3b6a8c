"""Asks the server with nothing but Python's standard library."""

import json
import os
import urllib.error
import urllib.request

URL = os.environ.get("CODEAGENT_URL", "http://127.0.0.1:4088")
TOKEN = os.environ.get("CODEAGENT_TOKEN", "")


def post(path, body):
    headers = {"content-type": "application/json"}
    if TOKEN:
        headers["authorization"] = "Bearer " + TOKEN
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    try:
        return urllib.request.urlopen(request, timeout=120)
    except urllib.error.HTTPError as error:
        # The status alone does not say what to do; the answer does.
        raise SystemExit(f"{path}: {error.code}: {error.read().decode()}") from None


def call(method, **fields):
    """One method of the contract, as Connect's JSON."""
    with post("/codeagent.v1.CodeAgentService/" + method, fields) as answer:
        return json.load(answer)


def stream(question):
    """The text of an answer, piece by piece, in OpenAI's format."""
    body = {"messages": [{"role": "user", "content": question}], "stream": True}
    with post("/v1/chat/completions", body) as answer:
        for line in answer:
            data = line.decode().removeprefix("data:").strip()
            if not line.startswith(b"data:") or data == "[DONE]":
                continue
            for choice in json.loads(data)["choices"]:
                yield choice["delta"].get("content") or ""


print("stream: ", end="")
for text in stream("What is in this project?"):
    print(text, end="", flush=True)
print()

session_id = call("CreateSession", title="an example")["sessionId"]
call("Generate", sessionId=session_id, messages=[{"role": "user", "content": "I am Ada."}])
answer = call("Generate", sessionId=session_id, messages=[{"role": "user", "content": "What is my name?"}])
print("in a session:", answer["message"]["content"])
call("DeleteSession", sessionId=session_id)
