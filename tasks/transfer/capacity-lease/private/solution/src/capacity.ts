// What fits. The rule is a plain function; the queries only fetch what it needs.
import type { Db, Tx } from "./database.ts";

export interface Interval {
  start: Date;
  end: Date;
}

export interface Booking extends Interval {
  units: number;
}

export interface Slice extends Interval {
  used: number;
}

/** Use over `[start, end)` as slices without gap; neighbours differ. */
export function slicesOf(bookings: Booking[], { start, end }: Interval): Slice[] {
  const changes = new Map<number, number>([[start.getTime(), 0]]);
  for (const booking of bookings) {
    const from = Math.max(booking.start.getTime(), start.getTime());
    const to = Math.min(booking.end.getTime(), end.getTime());
    if (from >= to) continue;
    changes.set(from, (changes.get(from) ?? 0) + booking.units);
    if (to < end.getTime()) changes.set(to, (changes.get(to) ?? 0) - booking.units);
  }
  const slices: Slice[] = [];
  let used = 0;
  for (const [at, change] of [...changes].sort(([a], [b]) => a - b)) {
    used += change;
    const last = slices.at(-1);
    if (last && last.used === used) continue;
    if (last) last.end = new Date(at);
    slices.push({ start: new Date(at), end, used });
  }
  return slices;
}

/** The highest use at any instant of the interval. */
export function peakOf(bookings: Booking[], interval: Interval): number {
  return Math.max(0, ...slicesOf(bookings, interval).map((slice) => slice.used));
}

export interface PoolRow {
  pool_id: string;
  name: string;
  capacity: number;
  revision: number;
  created_at: Date;
}

/** Lock pools, always in one order: whoever holds a pool alone decides about its capacity and its leases. */
export async function lockPools(tx: Tx, poolIds: string[]): Promise<Map<string, PoolRow>> {
  const { rows } = await tx.query<PoolRow>("select * from pools where pool_id = any($1) order by pool_id for no key update", [poolIds]);
  return new Map(rows.map((row) => [row.pool_id, row]));
}

/** What occupies a pool within an interval; `end` null means from `start` on. */
export async function bookingsOf(tx: Tx | Db, poolId: string, start: Date, end: Date | null): Promise<Booking[]> {
  const { rows } = await tx.query<Booking>(
    `select l.start_at as start, l.end_at as end, m.units
       from lease_members m join leases l using (lease_id)
      where m.pool_id = $1 and l.state in ('held', 'confirmed', 'active')
        and l.end_at > $2 and ($3::timestamptz is null or l.start_at < $3)`,
    [poolId, start, end],
  );
  return rows;
}

export interface Member {
  poolId: string;
  units: number;
}

/** Tell whether all members fit beside what is booked in the interval. */
export async function fits(tx: Tx | Db, members: Member[], capacities: Map<string, number>, interval: Interval): Promise<boolean> {
  for (const { poolId, units } of members) {
    const booked = peakOf(await bookingsOf(tx, poolId, interval.start, interval.end), interval);
    if (booked + units > (capacities.get(poolId) ?? 0)) return false;
  }
  return true;
}
