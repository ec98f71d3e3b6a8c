import { type DescMessage, type DescMethodUnary, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { requestHash } from "../session/request-hash.ts";
import type { Execution, NoteOf, OnceRequest, Requests } from "../session/requests.ts";
import { theCaller } from "./caller.ts";
import { requestIdFrom } from "./request-fields.ts";

type Identified<Input extends DescMessage> = MessageShape<Input> & { readonly requestId: string };

/** What a call with a request id does, as `Execution`, with the answer as a message. */
export interface CallExecution<Output extends DescMessage> {
  readonly isRepeatable: boolean;
  run(signal: AbortSignal): Promise<MessageShape<Output>>;
  interrupted(): MessageShape<Output>;
}

/** Makes calls of the contract idempotent by their `request_id`; without one they are done as often as they are made. */
export class OnceCalls {
  readonly #requests: Requests;

  constructor(requests: Requests) {
    this.#requests = requests;
  }

  /** As `Requests.change`. @throws {AgentError} also `invalid_request` for an id that can't be one. */
  async change<Input extends DescMessage, Output extends DescMessage>(
    method: DescMethodUnary<Input, Output>,
    request: Identified<Input>,
    work: (note: NoteOf<MessageShape<Output>>) => Promise<MessageShape<Output>>,
  ): Promise<MessageShape<Output>> {
    const asked = onceRequest(method, request);
    if (asked === undefined) return work(() => undefined);
    const encoded = (answer: MessageShape<Output>) => toBinary(method.output, answer);
    const bytes = await this.#requests.change(asked, async (note) =>
      encoded(await work((answer) => note(encoded(answer)))),
    );
    return fromBinary(method.output, bytes);
  }

  /** As `Requests.execute`. @throws {AgentError} also `invalid_request` for an id that can't be one. */
  async execute<Input extends DescMessage, Output extends DescMessage>(
    method: DescMethodUnary<Input, Output>,
    request: Identified<Input>,
    signal: AbortSignal,
    prepare: () => Promise<CallExecution<Output>>,
  ): Promise<MessageShape<Output>> {
    const asked = onceRequest(method, request);
    if (asked === undefined) return (await prepare()).run(signal);
    const encoded = (answer: MessageShape<Output>) => toBinary(method.output, answer);
    const bytes = await this.#requests.execute(asked, signal, async (): Promise<Execution> => {
      const { isRepeatable, run, interrupted } = await prepare();
      return {
        isRepeatable,
        run: async (running) => encoded(await run(running)),
        interrupted: () => encoded(interrupted()),
      };
    });
    return fromBinary(method.output, bytes);
  }
}

function onceRequest<Input extends DescMessage>(
  method: DescMethodUnary<Input, DescMessage>,
  request: Identified<Input>,
): OnceRequest | undefined {
  const requestId = requestIdFrom(request.requestId);
  if (requestId === "") return undefined;
  return { tenant: theCaller.tenant, requestId, method: method.name, hash: requestHash(request) };
}
