import { Client, type ElicitResult, type Progress, type Transport } from "@modelcontextprotocol/client";

/** The protocols a client may speak. */
export const eras = ["legacy", "2026-07-28"] as const;
export type Era = (typeof eras)[number];

export interface ClientOptions {
  readonly era?: Era;
  /** Answers forms; a client without it has none. */
  readonly answer?: (message: string, schema: unknown) => Promise<ElicitResult> | ElicitResult;
}

/** A client of the library, connected. */
export async function connected(transport: Transport, { era = "legacy", answer }: ClientOptions = {}): Promise<Client> {
  const client = new Client(
    { name: "test", version: "1.0.0" },
    {
      capabilities: answer === undefined ? {} : { elicitation: { form: {} } },
      versionNegotiation: { mode: era === "legacy" ? "legacy" : { pin: era } },
    },
  );
  if (answer !== undefined)
    client.setRequestHandler("elicitation/create", ({ params }) => {
      if (!("requestedSchema" in params)) throw new Error("a form was expected");
      return answer(params.message, params.requestedSchema);
    });
  await client.connect(transport, { timeout: 10_000 });
  return client;
}

export interface Called {
  readonly texts: readonly string[];
  readonly isError: boolean;
  readonly structured: Readonly<Record<string, unknown>>;
  readonly progress: readonly Progress[];
}

/** Calls a tool and sorts what came. */
export async function call(
  client: Client,
  name: string,
  given: Record<string, unknown>,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (progress: Progress) => void } = {},
): Promise<Called> {
  const progress: Progress[] = [];
  const result = await client.callTool(
    { name, arguments: given },
    {
      timeout: 20_000,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
      onprogress: (told) => {
        progress.push(told);
        options.onProgress?.(told);
      },
    },
  );
  const { structuredContent } = result;
  const isObject = typeof structuredContent === "object" && structuredContent !== null;
  return {
    texts: result.content.map((block) => (block.type === "text" ? block.text : block.type)),
    isError: result.isError === true,
    structured: isObject ? { ...structuredContent } : {},
    progress,
  };
}

/** The script of the model that both ways of serving are tested with. */
export const script = `
- when: { text: for ever }
  text: "on and on "
  repeat: 100000
  delay_ms: 20
- when: { role: user, text: what is here }
  text: Let me look.
  tool_calls: [{ name: list_files, arguments: { pattern: "*.txt" } }]
  usage: { prompt_tokens: 1200, completion_tokens: 30 }
- when: { tool: list_files }
  text: "There is\\na file."
  usage: { prompt_tokens: 1300, completion_tokens: 12 }
- when: { role: user, text: change it }
  tool_calls: [{ name: change_it, arguments: { to: new } }]
- when: { tool: change_it, text: { contains: "not run" } }
  text: It was refused.
- when: { tool: change_it }
  text: It is changed.
- when: { text: again }
  text: You asked before.
- when: { text: break }
  error: { status: 400, message: the model is out of order }
- when: { text: much }
  text: "0123456789"
  repeat: 50000
  chunk: 50000
`;
