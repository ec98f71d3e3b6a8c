#!/bin/sh
# gRPC from a shell: the methods are found by reflection, as grpcurl and generated clients in Go and other languages would.
set -eu
url=${CODEAGENT_URL:-http://127.0.0.1:4088}
ask() {
  npx buf curl --protocol grpc --http2-prior-knowledge -H "authorization: Bearer ${CODEAGENT_TOKEN:-none}" "$@"
}

ask "$url" --list-methods | grep '^codeagent.v1.CodeAgentService/' | head -3
ask -d '{"messages":[{"role":"user","content":"What is in this project?"}]}' \
  "$url/codeagent.v1.CodeAgentService/StreamGenerate"
