// Rows of the database and their public forms.
import type { Member, PoolRow } from "./capacity.ts";

export type State = "waiting" | "held" | "confirmed" | "active" | "released" | "expired" | "cancelled";

export interface LeaseRow {
  lease_id: string;
  number: string;
  token: string;
  owner_id: string;
  start_at: Date;
  end_at: Date;
  hold_seconds: number;
  hold_expires_at: Date | null;
  priority: number;
  state: State;
  revision: number;
  grant: string | null;
  bypass_count: number;
  created_at: Date;
  ended_at: Date | null;
  members: Member[];
}

/** Columns of a lease with its members; to be followed by a condition on `l`. */
export const leaseColumns = `l.*, (select json_agg(json_build_object('poolId', m.pool_id, 'units', m.units) order by m.pool_id collate "C")
  from lease_members m where m.lease_id = l.lease_id) as members`;

export function publicLease(row: LeaseRow) {
  return {
    leaseId: row.lease_id,
    ownerId: row.owner_id,
    members: row.members,
    startAt: row.start_at,
    endAt: row.end_at,
    holdSeconds: row.hold_seconds,
    holdExpiresAt: row.hold_expires_at,
    priority: row.priority,
    state: row.state,
    revision: row.revision,
    grant: row.grant,
    bypassCount: row.bypass_count,
    createdAt: row.created_at,
    endedAt: row.ended_at,
  };
}

export function publicPool(row: PoolRow) {
  return { poolId: row.pool_id, name: row.name, capacity: row.capacity, revision: row.revision, createdAt: row.created_at };
}

export interface WorkRow {
  work_id: string;
  number: string;
  kind: string;
  aggregate_id: string;
  state: string;
  attempt: number;
  due_at: Date;
  lease_owner: string | null;
  lease_expires_at: Date | null;
  created_at: Date;
  finished_at: Date | null;
}

export function publicWork(row: WorkRow) {
  return {
    workId: row.work_id,
    kind: row.kind,
    aggregateId: row.aggregate_id,
    state: row.state,
    attempt: row.attempt,
    dueAt: row.due_at,
    leaseOwner: row.lease_owner,
    leaseExpiresAt: row.lease_expires_at,
    createdAt: row.created_at,
    finishedAt: row.finished_at,
  };
}
