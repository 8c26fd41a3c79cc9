// The life of a lease as its holder drives it. Every change locks, in this order: pools by id, the lease, its work, the event counter.
import { randomBytes, randomUUID, timingSafeEqual } from "node:crypto";
import { fits, lockPools, type Member } from "./capacity.ts";
import type { Tx } from "./database.ts";
import { Refusal } from "./errors.ts";
import { appendEvent } from "./events.ts";
import type { Answer } from "./idempotency.ts";
import { bypassedBy, countBypass } from "./queue.ts";
import { leaseColumns, publicLease, type LeaseRow, type State } from "./rows.ts";
import { addSeconds, databaseNow } from "./time.ts";
import { closeWork, enqueue, enqueuePromotion } from "./work.ts";

const day = 86400;

export interface LeaseRequest {
  ownerId: string;
  members: Member[];
  startAt: Date;
  endAt: Date;
  holdSeconds: number;
  priority: number;
  wait: boolean;
}

export async function requestLease(tx: Tx, request: LeaseRequest): Promise<Answer> {
  const pools = await lockPools(tx, request.members.map((member) => member.poolId));
  const unknown = request.members.find((member) => !pools.has(member.poolId));
  if (unknown) throw new Refusal(404, "POOL_NOT_FOUND", `there is no pool ${unknown.poolId}`);
  const now = await databaseNow(tx);
  checkInterval(request.startAt, request.endAt, now);
  const capacities = new Map([...pools.values()].map((pool) => [pool.pool_id, pool.capacity]));
  if (request.members.some((member) => member.units > capacities.get(member.poolId)!)) {
    throw new Refusal(409, "EXCEEDS_POOL_CAPACITY", "the pool never has that many units");
  }
  const { startAt: start_at, endAt: end_at, members, priority } = request;
  const bypassed = (await fits(tx, members, capacities, { start: start_at, end: end_at }))
    ? await bypassedBy(tx, { members, start_at, end_at, priority, number: null })
    : null;
  if (!bypassed && !request.wait) throw new Refusal(409, "CAPACITY_UNAVAILABLE", "the units are not free in this interval");
  await countBypass(tx, bypassed ?? []);
  const lease = await insertLease(tx, request, bypassed ? "held" : "waiting", now);
  if (bypassed) await enqueue(tx, "lease.expireHold", lease.lease_id, lease.hold_expires_at!);
  else await enqueue(tx, "lease.end", lease.lease_id, lease.end_at);
  await appendLeaseEvent(tx, bypassed ? "lease.held" : "lease.queued", lease, now);
  const body = JSON.stringify({ lease: publicLease(lease), leaseToken: lease.token });
  return { status: bypassed ? 201 : 202, etag: etagOf(lease), body };
}

function checkInterval(start: Date, end: Date, now: Date): void {
  const seconds = (end.getTime() - start.getTime()) / 1000;
  const startsIn = (start.getTime() - now.getTime()) / 1000;
  if (seconds < 1 || seconds > 30 * day || end <= now || startsIn < -3600 || startsIn > 366 * day) {
    throw new Refusal(400, "INVALID_INTERVAL", "the interval is empty, too long, past or too far ahead");
  }
}

async function insertLease(tx: Tx, request: LeaseRequest, state: State, now: Date): Promise<LeaseRow> {
  const holdExpires = new Date(Math.min(addSeconds(now, request.holdSeconds).getTime(), request.endAt.getTime()));
  const { rows } = await tx.query<LeaseRow>(
    `insert into leases (lease_id, token, owner_id, start_at, end_at, hold_seconds, hold_expires_at, priority, state, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) returning *`,
    [
      randomUUID(),
      randomBytes(24).toString("base64url"),
      request.ownerId,
      request.startAt,
      request.endAt,
      request.holdSeconds,
      state === "held" ? holdExpires : null,
      request.priority,
      state,
      now,
    ],
  );
  const lease = rows[0]!;
  await tx.query("insert into lease_members select $1, pool_id, units from unnest($2::text[], $3::int[]) as m (pool_id, units)", [
    lease.lease_id,
    request.members.map((member) => member.poolId),
    request.members.map((member) => member.units),
  ]);
  return { ...lease, members: request.members };
}

/** Whoever changes a lease says which one, at which revision, and proves to be its holder. */
export interface Holder {
  leaseId: string;
  token: string | undefined;
  revision: number;
}

export async function confirmLease(tx: Tx, holder: Holder): Promise<Answer> {
  const { lease, now } = await lockHeld(tx, holder);
  requireState(lease, ["held"]);
  if (lease.hold_expires_at! <= now) throw new Refusal(409, "HOLD_EXPIRED", "the hold has run out");
  const changed = await changeLease(tx, lease, { state: "confirmed", hold_expires_at: null });
  await closeWork(tx, lease.lease_id, now);
  await enqueue(tx, "lease.activate", lease.lease_id, lease.start_at);
  await enqueue(tx, "lease.end", lease.lease_id, lease.end_at);
  return finish(tx, "lease.confirmed", changed, now);
}

export async function renewLease(tx: Tx, holder: Holder, endAt: Date): Promise<Answer> {
  const { lease, capacities, now } = await lockHeld(tx, holder);
  requireState(lease, ["confirmed", "active"]);
  requireUnended(lease, now);
  const seconds = (endAt.getTime() - lease.start_at.getTime()) / 1000;
  if (endAt <= lease.end_at || seconds > 30 * day) throw new Refusal(400, "INVALID_INTERVAL", "the new end is not later, or too late");
  // Only the added time: the lease itself occupies the rest, and not more than it has.
  if (!(await fits(tx, lease.members, capacities, { start: lease.end_at, end: endAt }))) {
    throw new Refusal(409, "CAPACITY_UNAVAILABLE", "the units are not free in the added time");
  }
  const changed = await changeLease(tx, lease, { end_at: endAt });
  await closeWork(tx, lease.lease_id, now, ["lease.end"]);
  await enqueue(tx, "lease.end", lease.lease_id, endAt);
  return finish(tx, "lease.renewed", changed, now);
}

export async function releaseLease(tx: Tx, holder: Holder): Promise<Answer> {
  const { lease, now } = await lockHeld(tx, holder);
  requireState(lease, ["confirmed", "active"]);
  requireUnended(lease, now);
  const changed = await endLease(tx, lease, "released", now);
  return finish(tx, "lease.released", changed, now);
}

export async function cancelLease(tx: Tx, holder: Holder): Promise<Answer> {
  const { lease, now } = await lockHeld(tx, holder);
  requireState(lease, ["held", "waiting"]);
  const changed = await endLease(tx, lease, "cancelled", now);
  return finish(tx, "lease.cancelled", changed, now);
}

/** Enter a final state: close what is open, and let the queue move. The event is the caller's, because it comes last. */
export async function endLease(tx: Tx, lease: LeaseRow, state: State, now: Date): Promise<LeaseRow> {
  const changed = await changeLease(tx, lease, { state, hold_expires_at: null, ended_at: now });
  await closeWork(tx, lease.lease_id, now);
  await enqueuePromotion(tx, lease.members.map((member) => member.poolId), now);
  return changed;
}

/** Lock a lease's pools, then the lease. Members never change, so they may be read before. */
export async function lockLease(tx: Tx, leaseId: string) {
  const members = await tx.query<{ pool_id: string }>("select pool_id from lease_members where lease_id = $1", [leaseId]);
  const pools = await lockPools(tx, members.rows.map((row) => row.pool_id));
  const { rows } = await tx.query<LeaseRow>(`select ${leaseColumns} from leases l where l.lease_id = $1 for no key update of l`, [leaseId]);
  const capacities = new Map([...pools.values()].map((pool) => [pool.pool_id, pool.capacity]));
  return { lease: rows[0], capacities, now: await databaseNow(tx) };
}

async function lockHeld(tx: Tx, holder: Holder) {
  const { lease, capacities, now } = await lockLease(tx, holder.leaseId);
  if (!lease) throw new Refusal(404, "LEASE_NOT_FOUND", "there is no such lease");
  if (!isToken(holder.token, lease.token)) throw new Refusal(403, "LEASE_TOKEN_REQUIRED", "the lease's token is needed");
  if (lease.revision !== holder.revision) throw new Refusal(412, "REVISION_MISMATCH", `the lease is at revision ${lease.revision}`);
  return { lease, capacities, now };
}

function isToken(given: string | undefined, token: string): boolean {
  const [a, b] = [Buffer.from(given ?? ""), Buffer.from(token)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function requireState(lease: LeaseRow, states: State[]): void {
  if (!states.includes(lease.state)) throw new Refusal(409, "INVALID_STATE", `the lease is ${lease.state}`);
}

function requireUnended(lease: LeaseRow, now: Date): void {
  if (lease.end_at <= now) throw new Refusal(409, "INVALID_STATE", "the lease's time is over");
}

export async function changeLease(tx: Tx, lease: LeaseRow, change: Partial<LeaseRow>): Promise<LeaseRow> {
  const next = { ...lease, ...change, revision: lease.revision + 1 };
  await tx.query(
    `update leases set state = $2, end_at = $3, hold_expires_at = $4, ended_at = $5, "grant" = $6, revision = $7 where lease_id = $1`,
    [next.lease_id, next.state, next.end_at, next.hold_expires_at, next.ended_at, next.grant, next.revision],
  );
  return next;
}

export async function appendLeaseEvent(tx: Tx, type: string, lease: LeaseRow, at: Date): Promise<void> {
  const { lease_id: aggregateId, revision } = lease;
  await appendEvent(tx, { type, aggregateType: "lease", aggregateId, revision, data: publicLease(lease) }, at);
}

async function finish(tx: Tx, type: string, lease: LeaseRow, now: Date): Promise<Answer> {
  await appendLeaseEvent(tx, type, lease, now);
  return { status: 200, etag: etagOf(lease), body: JSON.stringify(publicLease(lease)) };
}

function etagOf(lease: LeaseRow): string {
  return `"${lease.revision}"`;
}
