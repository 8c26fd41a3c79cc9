// The import document: read, checked, brought into one form.
import { Ajv2020 } from "ajv/dist/2020.js";
import type { Member } from "./capacity.ts";
import { document } from "./openapi.ts";
import { parseInstant } from "./time.ts";

export interface SeedPool {
  poolId: string;
  name: string;
  capacity: number;
}

export interface SeedLease {
  leaseId: string;
  leaseToken: string;
  ownerId: string;
  members: Member[];
  startAt: Date;
  endAt: Date;
  priority: number;
}

const part = (name: string) => ({ $ref: `contract#/components/schemas/${name}` });
const closed = (properties: object) => ({ type: "object", additionalProperties: false, required: Object.keys(properties), properties });
const schema = closed({
  pools: { type: "array", items: closed({ poolId: part("PoolId"), name: part("PoolName"), capacity: part("Units") }) },
  leases: {
    type: "array",
    items: closed({
      leaseId: { type: "string", pattern: "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" },
      leaseToken: { type: "string", minLength: 24, maxLength: 128 },
      ownerId: part("OwnerId"),
      members: { type: "array", items: part("Member"), minItems: 1, maxItems: 10 },
      startAt: part("InstantInput"),
      endAt: part("InstantInput"),
      priority: { type: "integer", minimum: 0, maximum: 9 },
    }),
  },
});

export function readDocument(text: string): { pools: SeedPool[]; leases: SeedLease[] } {
  const ajv = new Ajv2020({ strict: false, formats: { "date-time": true, uuid: true } }).addSchema(document, "contract");
  const value = JSON.parse(text) as { pools: SeedPool[]; leases: (Omit<SeedLease, "startAt" | "endAt"> & { startAt: string; endAt: string })[] };
  const check = ajv.compile(schema);
  if (!check(value)) throw new Error(`the document is not valid: ${ajv.errorsText(check.errors)}`);
  requireDistinct("pool", value.pools.map((pool) => pool.poolId));
  requireDistinct("lease", value.leases.map((lease) => lease.leaseId.toLowerCase()));
  return { pools: value.pools, leases: value.leases.map((lease, index) => readLease(lease, `leases.${index}`)) };
}

function readLease(lease: Omit<SeedLease, "startAt" | "endAt"> & { startAt: string; endAt: string }, place: string): SeedLease {
  const [startAt, endAt] = [parseInstant(lease.startAt, place), parseInstant(lease.endAt, place)];
  const seconds = (endAt.getTime() - startAt.getTime()) / 1000;
  if (seconds < 1 || seconds > 30 * 86400) throw new Error(`${place}: the interval is empty or too long`);
  const members = lease.members.toSorted((a, b) => (a.poolId < b.poolId ? -1 : 1));
  requireDistinct("member", members.map((member) => member.poolId));
  return { ...lease, leaseId: lease.leaseId.toLowerCase(), members, startAt, endAt };
}

function requireDistinct(what: string, ids: string[]): void {
  if (new Set(ids).size < ids.length) throw new Error(`a ${what} appears twice`);
}
