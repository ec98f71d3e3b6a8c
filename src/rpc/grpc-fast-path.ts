import { type DescMethod, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  CodeAgentService,
  type GenerateChunk,
  GenerateChunkSchema,
  type GenerateRequest,
  GenerateRequestSchema,
  GenerateResponseSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { errorForClient, type ReportFault } from "./error-interceptor.ts";
import type { TurnCalls } from "./generate.ts";

/** From the bytes of a request to the bytes of the messages that answer it, as many at a time as are ready. */
type EncodedCall = (request: Uint8Array, signal: AbortSignal) => AsyncGenerator<readonly Uint8Array[]>;

/** So much is encoded at once, in bytes, before a slow reader is waited for. */
const encodedAtOnce = 64 * 1024;

/**
 * The methods that run turns, by path, from bytes to bytes: what costs most in the service is the way of a message
 * through Connect's library, so the server answers these without it where it can. All they throw is a `ConnectError`.
 */
export function encodedTurnCalls(turns: TurnCalls, report: ReportFault): ReadonlyMap<string, EncodedCall> {
  const { generate, streamGenerate } = CodeAgentService.method;
  return new Map<string, EncodedCall>([
    [
      pathOf(generate),
      async function* (request, signal) {
        try {
          yield [toBinary(GenerateResponseSchema, await turns.generate(requestFrom(request), signal))];
        } catch (error) {
          throw errorForClient(error, pathOf(generate).slice(1), report);
        }
      },
    ],
    [
      pathOf(streamGenerate),
      async function* (request, signal) {
        try {
          for await (const chunks of await turns.streamGenerate(requestFrom(request), signal)) {
            for (const messages of encoded(chunks)) yield messages;
          }
        } catch (error) {
          throw errorForClient(error, pathOf(streamGenerate).slice(1), report);
        }
      },
    ],
  ]);
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function* encoded(chunks: Iterable<GenerateChunk>): Generator<readonly Uint8Array[]> {
  let messages: Uint8Array[] = [];
  let bytes = 0;
  for (const chunk of chunks) {
    const message = toBinary(GenerateChunkSchema, chunk);
    messages.push(message);
    bytes += message.length;
    if (bytes < encodedAtOnce) continue;
    yield messages;
    messages = [];
    bytes = 0;
  }
  if (messages.length > 0) yield messages;
}

/** Says of bytes that are no message what the library says of them. */
function requestFrom(bytes: Uint8Array): GenerateRequest {
  try {
    return fromBinary(GenerateRequestSchema, bytes);
  } catch (error) {
    throw new ConnectError(`parse binary: ${error instanceof Error ? error.message : String(error)}`, Code.Internal);
  }
}
