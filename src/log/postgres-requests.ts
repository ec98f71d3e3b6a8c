import type { Ask } from "./postgres-client.ts";
import { bytesOf, numberOf, textOf } from "./row.ts";
import { type AnsweredRequest, deltaKinds, type NewRequest, type StoredRequest } from "./store.ts";

export const requestTables = `
create table codeagent.requests (
  tenant text not null, request_id text not null, method text not null, hash text not null, owner text not null,
  answer bytea, at bigint not null, primary key (tenant, request_id));
create index requests_by_age on codeagent.requests (at);
`;

/** As SQL lists them. */
export const deltas = `(${deltaKinds.map((kind) => `'${kind}'`).join(", ")})`;

/** @param isOwn whether an owner is this process, under whatever id */
export async function readRequest(
  ask: Ask,
  tenant: string,
  requestId: string,
  isOwn: (owner: string) => boolean,
): Promise<StoredRequest | undefined> {
  const [row] = await ask(
    `select method, hash, owner, answer, exists (select 1 from codeagent.replicas where id = owner) as alive
      from codeagent.requests where tenant = $1 and request_id = $2`,
    [tenant, requestId],
  );
  if (row === undefined) return undefined;
  return {
    method: textOf(row, "method"),
    hash: textOf(row, "hash"),
    answer: row["answer"] === null ? undefined : bytesOf(row, "answer"),
    owner: isOwn(textOf(row, "owner")) ? "here" : row["alive"] === true ? "elsewhere" : "gone",
  };
}

/** Notes a request, after whoever notes the same one at this moment; says whether it was not noted before. */
export async function insertRequest(
  ask: Ask,
  { tenant, requestId, method, hash, atMs }: NewRequest,
  owner: string,
  answer: Uint8Array | null,
): Promise<boolean> {
  const rows = await ask(
    `insert into codeagent.requests (tenant, request_id, method, hash, owner, answer, at)
      values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning 1`,
    [tenant, requestId, method, hash, owner, answer, atMs],
  );
  return rows.length > 0;
}

export async function answerRequest(ask: Ask, { tenant, requestId, answer }: AnsweredRequest): Promise<void> {
  await ask("update codeagent.requests set answer = $3 where tenant = $1 and request_id = $2 and answer is null", [
    tenant,
    requestId,
    answer,
  ]);
}

export async function removeRequest(ask: Ask, { tenant, requestId }: NewRequest): Promise<void> {
  await ask("delete from codeagent.requests where tenant = $1 and request_id = $2", [tenant, requestId]);
}

export async function pruneRequests(ask: Ask, beforeMs: number, limit: number): Promise<number> {
  const rows = await ask(
    `delete from codeagent.requests where (tenant, request_id) in (
      select tenant, request_id from codeagent.requests where at < $1 order by at limit $2) returning 1`,
    [beforeMs, limit],
  );
  return rows.length;
}

/** Several processes may prune at once: each takes a session that no other has. */
export async function pruneDeltas(ask: Ask, finishedUntilMs: number, limit: number) {
  const [due] = await ask(
    `select id, pruned_seq from codeagent.sessions where prune_at <= $1 order by prune_at, id limit 1
      for update skip locked`,
    [finishedUntilMs],
  );
  if (due === undefined) return { removed: 0, more: false };
  const sessionId = textOf(due, "id");
  const prunedSeq = numberOf(due, "pruned_seq");
  const removed = await ask(
    `delete from codeagent.events where session_id = $1 and seq in (select seq from codeagent.events
      where session_id = $1 and seq <= $2 and kind in ${deltas} order by seq limit $3) returning 1`,
    [sessionId, prunedSeq, limit],
  );
  // First all is out of reach, then it goes piece by piece: nobody sees half of a block.
  if (removed.length < limit) await pruneNext(ask, sessionId, prunedSeq, finishedUntilMs);
  return { removed: removed.length, more: true };
}

/** Puts out of reach what may go now, or notes when there may be something again. */
async function pruneNext(ask: Ask, sessionId: string, prunedSeq: number, finishedUntilMs: number): Promise<void> {
  const [finished] = await ask(
    `select coalesce(max(seq), 0) as seq from codeagent.events
      where session_id = $1 and kind = 'turn-finished' and at <= $2`,
    [sessionId, finishedUntilMs],
  );
  const finishedSeq = numberOf(finished, "seq");
  const [last] = await ask(
    `select max(seq) as seq from codeagent.events where session_id = $1 and seq > $2 and seq < $3 and kind in ${deltas}`,
    [sessionId, prunedSeq, finishedSeq],
  );
  if (last !== undefined && last["seq"] !== null) {
    await ask("update codeagent.sessions set pruned_seq = $2 where id = $1", [sessionId, numberOf(last, "seq")]);
    return;
  }
  // A clock that was set back gives later events earlier times.
  await ask(
    `update codeagent.sessions set prune_at = (select greatest(at, $3::bigint + 1) from codeagent.events
      where session_id = $1 and kind = 'turn-finished' and seq > $2 order by seq limit 1) where id = $1`,
    [sessionId, finishedSeq, finishedUntilMs],
  );
}
