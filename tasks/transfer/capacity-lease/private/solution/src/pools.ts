// Creating and changing pools.
import { bookingsOf, lockPools, peakOf, type PoolRow } from "./capacity.ts";
import type { Tx } from "./database.ts";
import { Refusal } from "./errors.ts";
import { appendEvent } from "./events.ts";
import type { Answer } from "./idempotency.ts";
import { publicPool } from "./rows.ts";
import { databaseNow } from "./time.ts";
import { enqueuePromotion } from "./work.ts";

export interface PoolCreate {
  poolId: string;
  name: string;
  capacity: number;
}

export async function createPool(tx: Tx, pool: PoolCreate): Promise<Answer> {
  const now = await databaseNow(tx);
  const { rows } = await tx.query<PoolRow>(
    "insert into pools (pool_id, name, capacity, created_at) values ($1, $2, $3, $4) on conflict (pool_id) do nothing returning *",
    [pool.poolId, pool.name, pool.capacity, now],
  );
  if (!rows[0]) throw new Refusal(409, "POOL_EXISTS", "a pool with this id exists");
  await appendPoolEvent(tx, "pool.created", rows[0], now);
  return poolAnswer(201, rows[0]);
}

export async function changePool(tx: Tx, poolId: string, revision: number, change: Partial<PoolCreate>): Promise<Answer> {
  const pool = (await lockPools(tx, [poolId])).get(poolId);
  if (!pool) throw new Refusal(404, "POOL_NOT_FOUND", "there is no such pool");
  if (pool.revision !== revision) throw new Refusal(412, "REVISION_MISMATCH", `the pool is at revision ${pool.revision}`);
  const now = await databaseNow(tx);
  const capacity = change.capacity ?? pool.capacity;
  if (capacity < pool.capacity) await requireRoom(tx, poolId, capacity, now);
  const { rows } = await tx.query<PoolRow>(
    "update pools set name = $2, capacity = $3, revision = revision + 1 where pool_id = $1 returning *",
    [poolId, change.name ?? pool.name, capacity],
  );
  if (capacity > pool.capacity) await enqueuePromotion(tx, [poolId], now);
  await appendPoolEvent(tx, "pool.changed", rows[0]!, now);
  return poolAnswer(200, rows[0]!);
}

async function requireRoom(tx: Tx, poolId: string, capacity: number, now: Date): Promise<void> {
  const bookings = await bookingsOf(tx, poolId, now, null);
  const end = new Date(Math.max(now.getTime() + 1, ...bookings.map((booking) => booking.end.getTime())));
  if (peakOf(bookings, { start: now, end }) > capacity) {
    throw new Refusal(409, "CAPACITY_IN_USE", "leases use more than this capacity");
  }
}

export async function appendPoolEvent(tx: Tx, type: string, row: PoolRow, at: Date): Promise<void> {
  await appendEvent(tx, { type, aggregateType: "pool", aggregateId: row.pool_id, revision: row.revision, data: publicPool(row) }, at);
}

function poolAnswer(status: number, row: PoolRow): Answer {
  return { status, etag: `"${row.revision}"`, body: JSON.stringify(publicPool(row)) };
}
