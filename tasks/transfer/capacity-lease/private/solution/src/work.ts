// The table of background work: enqueueing, claiming, fencing. What the work does is in background.ts.
import type { Db, Tx } from "./database.ts";

export type Kind = "lease.expireHold" | "lease.activate" | "lease.end" | "queue.promote";

export interface Claim {
  work_id: string;
  kind: Kind;
  aggregate_id: string;
  attempt: number;
}

/** The claim is no longer ours: whatever was prepared must not happen. */
export class ClaimLost extends Error {}

export async function enqueue(tx: Tx, kind: Kind, aggregateId: string, dueAt: Date): Promise<void> {
  await tx.query("insert into work (kind, aggregate_id, due_at) values ($1, $2, $3) on conflict do nothing", [kind, aggregateId, dueAt]);
}

/** Ask for promotion in those pools that somebody waits for; the caller holds their locks. */
export async function enqueuePromotion(tx: Tx, poolIds: string[], dueAt: Date): Promise<void> {
  await tx.query(
    `insert into work (kind, aggregate_id, due_at)
     select 'queue.promote', p.id, $2 from unnest($1::text[]) as p (id)
      where exists (select from lease_members m join leases l using (lease_id) where m.pool_id = p.id and l.state = 'waiting')
     on conflict do nothing`,
    [poolIds, dueAt],
  );
}

/** Close a lease's open work, claimed or not; `kinds` limits it. */
export async function closeWork(tx: Tx, leaseId: string, at: Date, kinds: Kind[] | null = null): Promise<void> {
  await tx.query(
    `update work set state = 'cancelled', finished_at = $2, lease_owner = null, lease_expires_at = null
      where aggregate_id = $1 and state in ('pending', 'leased') and ($3::text[] is null or kind = any($3))`,
    [leaseId, at, kinds],
  );
}

/** Take leases on due work and on work whose claim ran out. */
export async function claimWork(db: Db, owner: string, seconds: number, limit: number): Promise<Claim[]> {
  const { rows } = await db.query<Claim>(
    `update work set state = 'leased', attempt = attempt + 1, lease_owner = $1,
            lease_expires_at = clock_timestamp() + make_interval(secs => $2)
      where work_id in (
        select work_id from work
         where (state = 'pending' and due_at <= clock_timestamp()) or (state = 'leased' and lease_expires_at <= clock_timestamp())
         order by due_at limit $3 for update skip locked)
     returning work_id, kind, aggregate_id, attempt`,
    [owner, seconds, limit],
  );
  return rows;
}

/** Make sure that the claim is still ours, and keep it so until the transaction ends. After pools and leases, before effects. */
export async function fence(tx: Tx, claim: Claim): Promise<void> {
  const { rowCount } = await tx.query(
    `select from work where work_id = $1 and attempt = $2 and state = 'leased' and lease_expires_at > clock_timestamp() for update`,
    [claim.work_id, claim.attempt],
  );
  if (rowCount !== 1) throw new ClaimLost(claim.work_id);
}

export async function succeed(tx: Tx, claim: Claim, at: Date): Promise<void> {
  await tx.query(
    `update work set state = 'succeeded', finished_at = $2, lease_owner = null, lease_expires_at = null where work_id = $1`,
    [claim.work_id, at],
  );
}

/** Give failed work back, to be tried again after a pause that grows with its attempts. */
export async function giveBack(db: Db, claim: Claim): Promise<void> {
  await db.query(
    `update work set state = 'pending', lease_owner = null, lease_expires_at = null,
            due_at = clock_timestamp() + make_interval(secs => $3)
      where work_id = $1 and attempt = $2 and state = 'leased'`,
    [claim.work_id, claim.attempt, pauseSeconds(claim.attempt)],
  );
}

/** 0.2 s at first, doubling, 5 s at most. */
export function pauseSeconds(attempt: number): number {
  return Math.min(5, 0.2 * 2 ** Math.min(attempt - 1, 10));
}
