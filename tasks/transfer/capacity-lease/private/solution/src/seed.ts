// `npm run seed -- FILE`: imports pools and confirmed leases, all or nothing.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { bookingsOf, lockPools, peakOf, type Member, type PoolRow } from "./capacity.ts";
import { openDatabase, transaction, type Tx } from "./database.ts";
import { appendLeaseEvent } from "./leases.ts";
import { appendPoolEvent } from "./pools.ts";
import { leaseColumns, type LeaseRow } from "./rows.ts";
import { readDocument, type SeedLease, type SeedPool } from "./seeddocument.ts";
import { readSettings } from "./settings.ts";
import { databaseNow } from "./time.ts";

async function importPools(tx: Tx, pools: SeedPool[], now: Date): Promise<PoolRow[]> {
  const known = await tx.query<PoolRow & { imported: SeedPool | null }>("select * from pools where pool_id = any($1)", [pools.map((pool) => pool.poolId)]);
  const byId = new Map(known.rows.map((row) => [row.pool_id, row]));
  for (const pool of pools) {
    const row = byId.get(pool.poolId);
    if (row && !isDeepStrictEqual(row.imported ?? { poolId: row.pool_id, name: row.name, capacity: row.capacity }, pool)) {
      throw new Error(`pool ${pool.poolId} exists with other content`);
    }
  }
  const added = await tx.query<PoolRow>(
    `insert into pools (pool_id, name, capacity, created_at, imported)
     select p->>'poolId', p->>'name', (p->>'capacity')::int, $2, p from jsonb_array_elements($1::jsonb) with ordinality as d (p, place)
     order by place returning *`,
    [JSON.stringify(pools.filter((pool) => !byId.has(pool.poolId))), now],
  );
  return added.rows;
}

async function importLeases(tx: Tx, leases: SeedLease[], now: Date): Promise<LeaseRow[]> {
  const known = await tx.query<{ lease_id: string; imported: unknown }>("select lease_id, imported from leases where lease_id = any($1)", [
    leases.map((lease) => lease.leaseId),
  ]);
  const byId = new Map(known.rows.map((row) => [row.lease_id, row.imported]));
  for (const lease of leases) {
    if (byId.has(lease.leaseId) && !isDeepStrictEqual(byId.get(lease.leaseId), JSON.parse(JSON.stringify(lease)))) {
      throw new Error(`lease ${lease.leaseId} exists with other content`);
    }
  }
  const fresh = leases.filter((lease) => !byId.has(lease.leaseId));
  for (const lease of fresh) if (lease.endAt <= now) throw new Error(`lease ${lease.leaseId} has ended already`);
  await tx.query(
    `insert into leases (lease_id, token, owner_id, start_at, end_at, hold_seconds, priority, state, created_at, imported)
     select (l->>'leaseId')::uuid, l->>'leaseToken', l->>'ownerId', (l->>'startAt')::timestamptz, (l->>'endAt')::timestamptz, 300,
            (l->>'priority')::int, 'confirmed', $2, l from jsonb_array_elements($1::jsonb) with ordinality as d (l, place) order by place`,
    [JSON.stringify(fresh), now],
  );
  await tx.query(
    `insert into lease_members select (l->>'leaseId')::uuid, m->>'poolId', (m->>'units')::int
       from jsonb_array_elements($1::jsonb) as l, jsonb_array_elements(l->'members') as m`,
    [JSON.stringify(fresh)],
  );
  const ids = fresh.map((lease) => lease.leaseId);
  await tx.query(
    `insert into work (kind, aggregate_id, due_at)
     select k.kind, l.lease_id::text, case k.kind when 'lease.end' then l.end_at else l.start_at end
       from leases l, (values ('lease.activate'), ('lease.end')) as k (kind) where l.lease_id = any($1) order by l.number, k.kind`,
    [ids],
  );
  const added = await tx.query<LeaseRow>(`select ${leaseColumns} from leases l where l.lease_id = any($1) order by l.number`, [ids]);
  return added.rows;
}

/** With everything imported and locked, no pool may be over its capacity at any instant of the new leases. */
async function requireRoom(tx: Tx, leases: LeaseRow[], pools: Map<string, PoolRow>): Promise<void> {
  const touched = new Map<string, LeaseRow[]>();
  for (const lease of leases) for (const { poolId } of lease.members) touched.set(poolId, [...(touched.get(poolId) ?? []), lease]);
  for (const [poolId, own] of touched) {
    const start = new Date(Math.min(...own.map((lease) => lease.start_at.getTime())));
    const end = new Date(Math.max(...own.map((lease) => lease.end_at.getTime())));
    if (peakOf(await bookingsOf(tx, poolId, start, end), { start, end }) > pools.get(poolId)!.capacity) {
      throw new Error(`pool ${poolId} has not enough units for these leases`);
    }
  }
}

async function importDocument(tx: Tx, pools: SeedPool[], leases: SeedLease[]): Promise<void> {
  await tx.query("select pg_advisory_xact_lock(727002)"); // one import at a time
  const addedPools = await importPools(tx, pools, await databaseNow(tx));
  const named = leases.flatMap((lease) => lease.members.map((member: Member) => member.poolId));
  const locked = await lockPools(tx, [...new Set(named)]);
  const unknown = named.find((poolId) => !locked.has(poolId));
  if (unknown) throw new Error(`there is no pool ${unknown}`);
  const now = await databaseNow(tx);
  const addedLeases = await importLeases(tx, leases, now);
  await requireRoom(tx, addedLeases, locked);
  for (const row of addedPools) await appendPoolEvent(tx, "pool.created", row, now);
  for (const row of addedLeases) await appendLeaseEvent(tx, "lease.imported", row, now);
}

try {
  const file = process.argv[2];
  if (!file) throw new Error("usage: npm run seed -- FILE");
  const { pools, leases } = readDocument(readFileSync(file, "utf8"));
  const db = openDatabase(readSettings(["DATABASE_URL"]).databaseUrl);
  try {
    await transaction(db, (tx) => importDocument(tx, pools, leases));
  } finally {
    await db.end();
  }
} catch (error) {
  console.error(`seed: ${(error as Error).message.split("\n")[0] || "the database cannot be reached"}`);
  process.exitCode = 1;
}
