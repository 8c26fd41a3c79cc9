// The waiting queue: who stands before whom, and who may go ahead.
import type { Member } from "./capacity.ts";
import type { Tx } from "./database.ts";

const limit = 3;

export interface Entrant {
  members: Member[];
  start_at: Date;
  end_at: Date;
  priority: number;
  /** Null for a new request: it stands behind all of its own priority. */
  number: string | null;
}

/**
 * Waiting leases that granting this one would bypass, or null when one of them may not be bypassed any more.
 * The caller holds the locks of the entrant's pools, and with them the waiting leases that name one of these.
 */
export async function bypassedBy(tx: Tx, entrant: Entrant): Promise<string[] | null> {
  const { rows } = await tx.query<{ lease_id: string; bypass_count: number }>(
    `select l.lease_id, l.bypass_count from leases l
      where l.state = 'waiting' and l.start_at < $3 and l.end_at > $2
        and (l.priority > $4 or (l.priority = $4 and ($5::bigint is null or l.number < $5)))
        and exists (select from lease_members m where m.lease_id = l.lease_id and m.pool_id = any($1))`,
    [entrant.members.map((member) => member.poolId), entrant.start_at, entrant.end_at, entrant.priority, entrant.number],
  );
  return rows.some((row) => row.bypass_count >= limit) ? null : rows.map((row) => row.lease_id);
}

export async function countBypass(tx: Tx, leaseIds: string[]): Promise<void> {
  if (leaseIds.length > 0) await tx.query("update leases set bypass_count = bypass_count + 1 where lease_id = any($1)", [leaseIds]);
}

/** Tell whether a waiting lease held others back that would have fitted. */
export function heldOthersBack(bypassCount: number): boolean {
  return bypassCount >= limit;
}
