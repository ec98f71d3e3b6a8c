import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { connectionConfig, type PostgresClient } from "./postgres-client.ts";

/** What processes tell each other. */
export interface Notice {
  /** Who says it. */
  readonly from: string;
  /** Logs and where they end. */
  readonly grown?: readonly (readonly [sessionId: string, headSeq: number])[];
  readonly runnable?: readonly string[];
  readonly commanded?: readonly string[];
  readonly deleted?: readonly string[];
  readonly heldBack?: readonly string[];
}

export type NoticeKind = Exclude<keyof Notice, "from" | "grown">;

const channel = "codeagent";
/** NOTIFY takes less than 8,000 bytes. */
const maxPayloadBytes = 7500;
const coalesceMs = 5;
const longestRetryMs = 2000;
const pingMs = 15_000;

/**
 * Tells other processes what happened, after it was committed: at once, then at most every 5 ms, many sessions in one
 * notice. A notice that is lost costs the others time and nothing else, so a failure is not told.
 */
export class NoticeSender {
  readonly #client: PostgresClient;
  readonly #from: string;
  #grown = new Map<string, number>();
  #others = new Map<string, { readonly kind: NoticeKind; readonly sessionId: string }>();
  #sending: Promise<void> | undefined;
  #greets = false;

  constructor(client: PostgresClient, from: string) {
    this.#client = client;
    this.#from = from;
  }

  grown(sessionId: string, headSeq: number): void {
    this.#grown.set(sessionId, Math.max(headSeq, this.#grown.get(sessionId) ?? 0));
    this.#sending ??= this.#send();
  }

  say(kind: NoticeKind, sessionId: string): void {
    this.#others.set(`${kind} ${sessionId}`, { kind, sessionId });
    this.#sending ??= this.#send();
  }

  /** Says nothing but that this process is there, so that others tell it what they do from now on. */
  greet(): void {
    this.#greets = true;
    this.#sending ??= this.#send();
  }

  async settled(): Promise<void> {
    while (this.#sending !== undefined) await this.#sending;
  }

  async #send(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#greets || this.#grown.size + this.#others.size > 0) {
      const payloads = this.#payloads();
      const sql = "select pg_notify($1, payload) from unnest($2::text[]) as payload";
      await this.#client.query(sql, [channel, payloads], "notify").catch(() => undefined);
      await wait(coalesceMs);
    }
    this.#sending = undefined;
  }

  #payloads(): string[] {
    const items = [
      ...[...this.#grown].map((grown) => ({ kind: "grown", item: JSON.stringify(grown) })),
      ...[...this.#others.values()].map(({ kind, sessionId }) => ({ kind, item: JSON.stringify(sessionId) })),
    ];
    this.#grown = new Map();
    this.#others = new Map();
    const payloads: string[] = this.#greets ? [`{"from":${JSON.stringify(this.#from)}}`] : [];
    this.#greets = false;
    let page = new Map<string, string[]>();
    let bytes = 0;
    const turn = () => {
      if (page.size === 0) return;
      const fields = [...page].map(([kind, of]) => `,${JSON.stringify(kind)}:[${of.join(",")}]`).join("");
      payloads.push(`{"from":${JSON.stringify(this.#from)}${fields}}`);
      page = new Map();
      bytes = 0;
    };
    for (const { kind, item } of items) {
      if (bytes + item.length > maxPayloadBytes - 300) turn();
      const of = page.get(kind) ?? [];
      page.set(kind, of);
      of.push(item);
      bytes += item.length + 1;
    }
    turn();
    return payloads;
  }
}

/**
 * One connection that hears what others say and holds a lock of the database as long as this process lives: the kernel
 * closes it when the process is killed. A broken connection is made again; what was said meanwhile is lost.
 */
export class NoticeReceiver {
  readonly #url: string;
  readonly #timeoutMs: number;
  readonly #hear: (notice: Notice) => void;
  readonly #onLocked: () => void;
  readonly #stopping = new AbortController();
  readonly #running: Promise<void>;
  readonly #tried = Promise.withResolvers<void>();
  /** Resolves when the lock was taken for the first time, or could not be. */
  readonly tried = this.#tried.promise;
  /** Whether the lock is held now. */
  holdsLock = false;

  /** @param onLocked called whenever the lock was taken */
  constructor(url: string, lockKey: number, timeoutMs: number, hear: (notice: Notice) => void, onLocked: () => void) {
    this.#onLocked = onLocked;
    this.#url = url;
    this.#timeoutMs = timeoutMs;
    this.#hear = hear;
    this.#running = this.#run(lockKey);
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(lockKey: number): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; failures++) {
      const client = new pg.Client(connectionConfig(this.#url, this.#timeoutMs));
      const broken = new Promise<void>((resolve) => {
        client.on("error", () => resolve());
        client.on("end", resolve);
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      client.on("notification", ({ payload = "" }) => {
        const notice = parseNotice(payload);
        if (notice !== undefined) this.#hear(notice);
      });
      try {
        await client.connect();
        await client.query(`listen ${channel}`);
        await client.query("select pg_advisory_lock($1)", [lockKey]);
        this.holdsLock = true;
        this.#onLocked();
        this.#tried.resolve();
        failures = 0;
        for (let whole = true; whole && !signal.aborted; ) {
          const pause = new AbortController();
          whole = await Promise.race([
            broken.then(() => false),
            wait(pingMs, true, { signal: pause.signal }).catch(() => false),
          ]);
          pause.abort();
          if (whole) await client.query("select 1");
        }
      } catch {
        // Tried again below; what others do is seen by looking.
      }
      this.holdsLock = false;
      this.#tried.resolve();
      await client.end().catch(() => undefined);
      const retryMs = Math.min(longestRetryMs, 100 * 2 ** Math.min(failures, 10));
      if (!signal.aborted) await wait(retryMs, undefined, { signal }).catch(() => undefined);
    }
  }
}

function parseNotice(payload: string): Notice | undefined {
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || !("from" in value) || typeof value.from !== "string")
    return undefined;
  const fields = new Map<string, unknown>(Object.entries(value));
  const names = (kind: NoticeKind) => listOf(fields.get(kind)).filter((name) => typeof name === "string");
  return {
    from: value.from,
    grown: listOf(fields.get("grown")).flatMap((pair) => {
      const [sessionId, headSeq]: unknown[] = listOf(pair);
      return typeof sessionId === "string" && typeof headSeq === "number" ? [[sessionId, headSeq] as const] : [];
    }),
    runnable: names("runnable"),
    commanded: names("commanded"),
    deleted: names("deleted"),
    heldBack: names("heldBack"),
  };
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
