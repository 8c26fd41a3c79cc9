// A lease request in its one inner form, whichever form the client used.
import type { Member } from "./capacity.ts";
import type { LeaseRequest } from "./leases.ts";
import { parseInstant } from "./time.ts";
import { invalid } from "./validation.ts";

/** Read a validated body: short form unfolded, members in order, instants as instants. */
export function readRequest(body: Record<string, unknown>): LeaseRequest {
  const members = (body.members as Member[] | undefined) ?? [{ poolId: body.poolId as string, units: body.units as number }];
  const sorted = members.toSorted((a, b) => (a.poolId < b.poolId ? -1 : 1));
  if (new Set(sorted.map((member) => member.poolId)).size < sorted.length) {
    throw invalid([{ field: "members", issue: "names a pool twice" }]);
  }
  return {
    ownerId: body.ownerId as string,
    members: sorted.map(({ poolId, units }) => ({ poolId, units })),
    startAt: parseInstant(body.startAt as string, "startAt"),
    endAt: parseInstant(body.endAt as string, "endAt"),
    holdSeconds: body.holdSeconds as number,
    priority: body.priority as number,
    wait: body.wait as boolean,
  };
}
