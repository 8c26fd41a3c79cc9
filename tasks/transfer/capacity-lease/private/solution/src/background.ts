// What background work does. Each effect is one transaction that begins with the locks of leases.ts and then proves its claim.
import { fits } from "./capacity.ts";
import { transaction, type Db, type Tx } from "./database.ts";
import { appendLeaseEvent, changeLease, endLease, lockLease } from "./leases.ts";
import { bypassedBy, countBypass, heldOthersBack } from "./queue.ts";
import { leaseColumns, type LeaseRow } from "./rows.ts";
import { askAdmission } from "./outside.ts";
import { addSeconds, databaseNow } from "./time.ts";
import { closeWork, enqueue, enqueuePromotion, fence, succeed, type Claim } from "./work.ts";

export interface Context {
  db: Db;
  admissionUrl: string;
  /** Ends outside calls when the worker stops. */
  signal: AbortSignal;
}

export async function perform(context: Context, claim: Claim): Promise<void> {
  switch (claim.kind) {
    case "lease.expireHold":
    case "lease.end":
      return expire(context.db, claim);
    case "lease.activate":
      return activate(context, claim);
    case "queue.promote":
      return promote(context.db, claim);
  }
}

/** The hold or the interval is over. Closing the lease's open work would close this piece too: it succeeds first. */
async function expire(db: Db, claim: Claim): Promise<void> {
  await transaction(db, async (tx) => {
    const { lease, now } = await lockLease(tx, claim.aggregate_id);
    await fence(tx, claim);
    await succeed(tx, claim, now);
    const changed = await endLease(tx, lease!, "expired", now);
    await appendLeaseEvent(tx, "lease.expired", changed, now);
  });
}

/** Ask the provider with nothing locked, then activate if the claim still holds. */
async function activate(context: Context, claim: Claim): Promise<void> {
  const asked = await readLease(context.db, claim.aggregate_id);
  const grant = context.admissionUrl ? await askAdmission(context.admissionUrl, claim, asked, context.signal) : null;
  await transaction(context.db, async (tx) => {
    const { lease, now } = await lockLease(tx, claim.aggregate_id);
    await fence(tx, claim);
    if (lease!.end_at <= now) throw new Error("the lease ended before it became active");
    await succeed(tx, claim, now);
    const changed = await changeLease(tx, lease!, { state: "active", grant });
    await appendLeaseEvent(tx, "lease.activated", changed, now);
  });
}

async function readLease(db: Db, leaseId: string) {
  const { rows } = await db.query<LeaseRow>(`select ${leaseColumns} from leases l where l.lease_id = $1`, [leaseId]);
  return rows[0]!;
}

/** Offer free units to the waiting leases of a pool, in queue order, each in a transaction of its own. */
async function promote(db: Db, claim: Claim): Promise<void> {
  const { rows } = await db.query<{ lease_id: string }>(
    `select l.lease_id from leases l join lease_members m using (lease_id)
      where m.pool_id = $1 and l.state = 'waiting' order by l.priority desc, l.number`,
    [claim.aggregate_id],
  );
  for (const { lease_id } of rows) await transaction(db, (tx) => promoteOne(tx, claim, lease_id));
  await transaction(db, async (tx) => {
    await fence(tx, claim);
    await succeed(tx, claim, await databaseNow(tx));
  });
}

async function promoteOne(tx: Tx, claim: Claim, leaseId: string): Promise<void> {
  const { lease, capacities, now } = await lockLease(tx, leaseId);
  await fence(tx, claim);
  if (!lease || lease.state !== "waiting" || lease.end_at <= now) return;
  if (!(await fits(tx, lease.members, capacities, { start: lease.start_at, end: lease.end_at }))) return;
  const bypassed = await bypassedBy(tx, lease);
  if (!bypassed) return;
  await countBypass(tx, bypassed);
  const holdExpires = new Date(Math.min(addSeconds(now, lease.hold_seconds).getTime(), lease.end_at.getTime()));
  const changed = await changeLease(tx, lease, { state: "held", hold_expires_at: holdExpires });
  await closeWork(tx, leaseId, now);
  await enqueue(tx, "lease.expireHold", leaseId, holdExpires);
  if (heldOthersBack(lease.bypass_count)) await enqueuePromotion(tx, lease.members.map((member) => member.poolId), now);
  await appendLeaseEvent(tx, "lease.promoted", changed, now);
}
