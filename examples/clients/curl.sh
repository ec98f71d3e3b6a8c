#!/bin/sh
# The same question in three formats: Connect's JSON, OpenAI's stream, Anthropic's messages.
set -eu
url=${CODEAGENT_URL:-http://127.0.0.1:4088}
post() {
  path=$1
  body=$2
  curl --silent --show-error --fail-with-body --no-buffer "$url$path" -H 'content-type: application/json' \
    -H "authorization: Bearer ${CODEAGENT_TOKEN:-none}" -d "$body"
  echo
}

question='"messages":[{"role":"user","content":"What is in this project?"}]'
post /codeagent.v1.CodeAgentService/Generate "{$question}"
post /v1/chat/completions "{$question,\"stream\":true}"
post /v1/messages "{$question,\"max_tokens\":1000}"
