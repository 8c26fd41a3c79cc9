// Everything that only reads.
import { bookingsOf, slicesOf, type PoolRow } from "./capacity.ts";
import { readCursor, writeCursor } from "./cursor.ts";
import { transaction, type Db } from "./database.ts";
import { Refusal } from "./errors.ts";
import { leaseColumns, publicLease, publicPool, publicWork, type LeaseRow, type WorkRow } from "./rows.ts";
import { databaseNow, parseInstant } from "./time.ts";
import type { Given } from "./validation.ts";
import { invalid } from "./validation.ts";

const oneInstant = "begin isolation level repeatable read read only";

export async function readPool(db: Db, poolId: string) {
  const { rows } = await db.query<PoolRow>("select * from pools where pool_id = $1", [poolId]);
  if (!rows[0]) throw new Refusal(404, "POOL_NOT_FOUND", "there is no such pool");
  return publicPool(rows[0]);
}

export async function readLease(db: Db, leaseId: string) {
  const { rows } = await db.query<LeaseRow>(`select ${leaseColumns} from leases l where l.lease_id = $1`, [leaseId]);
  if (!rows[0]) throw new Refusal(404, "LEASE_NOT_FOUND", "there is no such lease");
  return publicLease(rows[0]);
}

/** One page of rows that have a `number`; `sql` takes the number after which it begins as $1 and the limit as $2. */
async function page<R extends { number: string }>(
  db: Db,
  list: string,
  query: Given["query"],
  sql: string,
  filters: unknown[],
  form: (row: R) => object,
  first = "0",
) {
  const limit = query.limit as number;
  const after = readCursor(list, filters, query.cursor as string | undefined) ?? first;
  const { rows } = await db.query<R>(sql, [after, limit + 1, ...filters]);
  const shown = rows.slice(0, limit);
  const nextCursor = rows.length > limit ? writeCursor(list, filters, shown.at(-1)!.number) : null;
  return { items: shown.map(form), nextCursor };
}

export function listPools(db: Db, query: Given["query"]) {
  return page<PoolRow & { number: string }>(db, "pools", query, "select * from pools where number > $1 order by number limit $2", [], publicPool);
}

export function listLeases(db: Db, query: Given["query"]) {
  const newest = query.order === "newest";
  const sql = `select ${leaseColumns} from leases l
    where l.number ${newest ? "<" : ">"} $1 and ($3::text is null or l.state = $3) and ($4::text is null or l.owner_id = $4)
      and ($5::text is null or exists (select from lease_members f where f.lease_id = l.lease_id and f.pool_id = $5))
    order by l.number ${newest ? "desc" : ""} limit $2`;
  const filters = [query.state ?? null, query.ownerId ?? null, query.poolId ?? null];
  const list = newest ? "newest leases" : "leases";
  return page<LeaseRow>(db, list, query, sql, filters, publicLease, newest ? "9223372036854775807" : "0");
}

export function listWork(db: Db, query: Given["query"]) {
  const sql = "select * from work where number > $1 and ($3::text is null or state = $3) order by number limit $2";
  return page<WorkRow>(db, "work", query, sql, [query.state ?? null], publicWork);
}

export async function listWaiting(db: Db, query: Given["query"]) {
  const { rows } = await db.query<LeaseRow>(
    `select ${leaseColumns} from leases l
      where l.state = 'waiting' and ($1::text is null or exists (select from lease_members f where f.lease_id = l.lease_id and f.pool_id = $1))
      order by l.priority desc, l.number limit $2`,
    [query.poolId ?? null, query.limit],
  );
  return { items: rows.map((row, index) => ({ position: index + 1, lease: publicLease(row) })) };
}

export async function listEvents(db: Db, query: Given["query"]) {
  const { rows } = await db.query<{ body: string }>("select body from events where sequence > $1 order by sequence limit $2", [query.after, query.limit]);
  return { items: rows.map((row) => JSON.parse(row.body) as object) };
}

export async function listLeaseEvents(db: Db, leaseId: string) {
  await readLease(db, leaseId);
  const { rows } = await db.query<{ body: string }>(
    "select body from events where aggregate_type = 'lease' and aggregate_id = $1 order by sequence",
    [leaseId],
  );
  return { items: rows.map((row) => JSON.parse(row.body) as object) };
}

export async function readTimeline(db: Db, poolId: string, query: Given["query"]) {
  const [from, to] = [parseInstant(query.from as string, "from"), parseInstant(query.to as string, "to")];
  const days = (to.getTime() - from.getTime()) / 86_400_000;
  if (!(days > 0 && days <= 31)) throw invalid([{ field: "to", issue: "must be after from, by 31 days at most" }]);
  return transaction(
    db,
    async (tx) => {
      const { rows } = await tx.query<PoolRow>("select * from pools where pool_id = $1", [poolId]);
      if (!rows[0]) throw new Refusal(404, "POOL_NOT_FOUND", "there is no such pool");
      const capacity = rows[0].capacity;
      const slices = slicesOf(await bookingsOf(tx, poolId, from, to), { start: from, end: to }).map(({ start, end, used }) => ({
        startAt: start,
        endAt: end,
        usedUnits: used,
        availableUnits: Math.max(0, capacity - used),
      }));
      return { poolId, capacity, asOf: await databaseNow(tx), from, to, slices };
    },
    oneInstant,
  );
}

export function readSnapshot(db: Db) {
  return transaction(
    db,
    async (tx) => {
      const pools = await tx.query<PoolRow>("select * from pools order by number");
      const leases = await tx.query<LeaseRow>(`select ${leaseColumns} from leases l order by l.number`);
      const work = await tx.query<WorkRow>("select * from work order by created_at, number");
      const events = await tx.query<{ body: string; delivered_at: Date | null; attempts: number }>("select * from events order by sequence");
      return {
        asOf: await databaseNow(tx),
        resources: { pools: pools.rows.map(publicPool), leases: leases.rows.map(publicLease) },
        work: work.rows.map(publicWork),
        events: events.rows.map(({ body, delivered_at, attempts }) => ({
          ...(JSON.parse(body) as object),
          delivery: { state: delivered_at ? "delivered" : "pending", attempts },
        })),
      };
    },
    oneInstant,
  );
}
