import { randomBytes } from "node:crypto";
import type { PostgresClient, Statement } from "./postgres-client.ts";
import { numberOf, type Row, textOf } from "./row.ts";
import { heldForGood, heldUntil } from "./store.ts";

export interface MemberOptions {
  /** Connections of its own, so that nothing else keeps it from being heard. */
  readonly client: PostgresClient;
  readonly build: string;
  /** A process not heard of for so long is dead. */
  readonly ttlMs: number;
  readonly pollMs: number;
  /** Lock of the database that this process holds now; `undefined` for none. */
  readonly heldLock: () => number | undefined;
  /** Others may take this process for dead, or have done so. */
  readonly onFenced: () => void;
  /** A session whose owner died and that nobody is to claim any more. */
  readonly onHeldBack: (sessionId: string) => void;
  /** Called every `pollMs`, and when somebody died. A failure is left to the next time. */
  readonly poll: () => Promise<void>;
}

/** How often it is looked whether somebody died, and how old a sign of life is then at most. */
const probeMs = 250;
const beatMs = 500;
/** A process whose lock is free is dead when its sign of life is older than this. */
const lockFreeMs = 1000;
/** After a trouble of our own others get this long to come back before a free lock counts against them. */
const mercyMs = 3000;

/** So many ids this process remembers as its own. */
const keptIds = 1000;

const nowMs = "(extract(epoch from clock_timestamp()) * 1000)::bigint";

/**
 * One process among those that share a database: gives signs of life, finds out who died and frees the dead's sessions.
 * Only the database's clock is compared. A process that can't give a sign of life for 0.6 of the limit takes itself for
 * dead, by its own clock, before others may; it comes back under a new id.
 */
export class Member {
  readonly #options: MemberOptions;
  #id = newId();
  #registered = false;
  /** Ids it had, the last ones last. */
  readonly #earlierIds = new Set<string>();
  /** Ids that others may still take for alive. */
  #formerIds: string[] = [];
  /** When the last sign of life that arrived was sent, by a clock that never goes back. */
  #beatAt = 0;
  #polledAt = 0;
  #troubledAt = Number.NEGATIVE_INFINITY;
  #beatIsDue = false;
  /** Taken for granted until it is counted. */
  #others = 1;
  #ticking: Promise<void> | undefined;
  #tick: NodeJS.Timeout | undefined;
  #watch: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: MemberOptions) {
    this.#options = options;
  }

  /** Under which sessions are claimed; `undefined` while this process may be taken for dead. */
  get id(): string | undefined {
    return this.#registered ? this.#id : undefined;
  }

  /** Whether an id is, or was, this process's; only the last thousand are remembered. */
  isOwn(id: string): boolean {
    return id === this.#id || this.#earlierIds.has(id);
  }

  /** Whether there are other processes, as far as is known. */
  get hasOthers(): boolean {
    return this.#others > 0;
  }

  /** Another process has spoken: it is there before the next look finds it. */
  heardOther(): void {
    this.#others = Math.max(1, this.#others);
  }

  /** @throws {AgentError} when the database can't be reached. */
  async join(): Promise<void> {
    await this.#register();
    this.#watch = setInterval(() => this.checkBeat(), Math.max(10, this.#options.ttlMs / 50));
    this.#schedule();
  }

  /** Gives a sign of life at once: there is something new to say. */
  beatNow(): void {
    this.#beatIsDue = true;
    if (this.#tick === undefined) return;
    clearTimeout(this.#tick);
    this.#schedule(0);
  }

  /** Leaves; what this process owned is free at once. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#watch);
    clearTimeout(this.#tick);
    await this.#ticking;
    this.#registered = false;
    await this.#options.client.transaction(leaving([this.#id, ...this.#formerIds])).catch(() => undefined);
  }

  #schedule(delayMs = probeMs): void {
    if (this.#closed) return;
    this.#tick = setTimeout(() => {
      this.#tick = undefined;
      this.#ticking = this.#work()
        .catch(() => {
          this.#troubledAt = performance.now();
        })
        .finally(() => this.#schedule(this.#beatIsDue ? 0 : probeMs));
    }, delayMs);
  }

  async #work(): Promise<void> {
    const { poll, pollMs } = this.#options;
    if (!this.#registered) await this.#register();
    if (this.#beatIsDue || performance.now() - this.#beatAt >= beatMs - probeMs / 2) await this.#beat();
    const freed = this.#registered ? await this.#findDead() : false;
    if (freed || performance.now() - this.#polledAt >= pollMs) {
      this.#polledAt = performance.now();
      await poll();
    }
  }

  async #register(): Promise<void> {
    const { client, build, heldLock } = this.#options;
    const sentAt = performance.now();
    const former = [...this.#formerIds];
    await client.transaction([
      ...leaving(former),
      {
        sql: "insert into codeagent.replicas (id, beat, lock_key, build) values ($1, clock_timestamp(), $2, $3)",
        values: [this.#id, heldLock() ?? null, build],
      },
    ]);
    this.#formerIds = this.#formerIds.filter((id) => !former.includes(id));
    this.#beatAt = sentAt;
    this.#beatIsDue = true;
    this.#registered = true;
  }

  async #beat(): Promise<void> {
    const { client, heldLock } = this.#options;
    this.#beatIsDue = false;
    const sentAt = performance.now();
    const [row] = await client.query(
      "update codeagent.replicas set beat = clock_timestamp(), lock_key = $2 where id = $1 returning (select count(*) from codeagent.replicas) as replicas",
      [this.#id, heldLock() ?? null],
      "beat",
    );
    if (row === undefined) {
      this.#fence();
      return;
    }
    this.#beatAt = sentAt;
    this.#others = numberOf(row, "replicas") - 1;
  }

  /** Finds out whether too much time has gone by, as after this process was frozen: `id` is then `undefined`. */
  checkBeat(): void {
    if (this.#registered && performance.now() - this.#beatAt > 0.6 * this.#options.ttlMs) this.#fence();
  }

  #fence(): void {
    if (!this.#registered) return;
    this.#registered = false;
    this.#troubledAt = performance.now();
    this.#formerIds.push(this.#id);
    this.#earlierIds.add(this.#id);
    for (const oldest of this.#earlierIds) {
      if (this.#earlierIds.size <= keptIds) break;
      this.#earlierIds.delete(oldest);
    }
    this.#id = newId();
    this.#options.onFenced();
  }

  /** Removes the dead and frees what they owned; says whether there was anything to free. */
  async #findDead(): Promise<boolean> {
    const { client, ttlMs } = this.#options;
    const merciful = performance.now() - this.#troubledAt < Math.max(mercyMs, 2 * lockFreeMs);
    const [dead = [], orphans = []] = await client.transaction([
      {
        // The lock is looked at only where the sign of life is old: taking it, if only for a moment, is the way to look.
        sql: `delete from codeagent.replicas where id <> $1 and case
            when beat < clock_timestamp() - $2 * interval '1 millisecond' then true
            when $3 or lock_key is null or beat >= clock_timestamp() - interval '${lockFreeMs} milliseconds' then false
            else pg_try_advisory_xact_lock(lock_key) end returning id`,
        values: [this.#id, ttlMs, merciful],
        name: "find-dead",
      },
      {
        sql: `select id, deaths, owner, ${nowMs} as now from codeagent.sessions s where owner is not null
            and not exists (select 1 from codeagent.replicas r where r.id = s.owner) limit 1000`,
        name: "find-orphans",
      },
    ]);
    if (orphans.length === 0) return dead.length > 0;
    await this.#free(orphans);
    return true;
  }

  async #free(orphans: readonly Row[]): Promise<void> {
    const until = orphans.map((row) => heldUntil(numberOf(row, "deaths") + 1, numberOf(row, "now")) ?? null);
    const freed = await this.#options.client.query(
      `with orphans as (select * from unnest($1::text[], $2::text[], $3::bigint[]) as t(id, owner, held_until)),
        locked as (select s.id from codeagent.sessions s join orphans o on o.id = s.id and o.owner = s.owner
          order by s.id for no key update of s skip locked)
      update codeagent.sessions s set owner = null, runnable = 1, deaths = s.deaths + 1, held_until = o.held_until
        from orphans o join locked l on l.id = o.id where s.id = o.id and s.owner = o.owner returning s.id, s.held_until`,
      [orphans.map((row) => textOf(row, "id")), orphans.map((row) => textOf(row, "owner")), until],
      "free-orphans",
    );
    for (const row of freed) if (row["held_until"] === heldForGood) this.#options.onHeldBack(textOf(row, "id"));
  }
}

/** Leaves the others, with nothing counted against the sessions that were owned. */
function leaving(ids: readonly string[]): Statement[] {
  if (ids.length === 0) return [];
  return [
    { sql: "delete from codeagent.replicas where id = any($1::text[])", values: [ids] },
    { sql: "update codeagent.sessions set owner = null, runnable = 1 where owner = any($1::text[])", values: [ids] },
  ];
}

function newId(): string {
  return randomBytes(12).toString("hex");
}
