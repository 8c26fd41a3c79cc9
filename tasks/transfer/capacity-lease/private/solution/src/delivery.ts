// Webhook deliveries: at least once, in order within an aggregate, always the stored bytes.
import type { Db } from "./database.ts";
import { post } from "./outside.ts";
import { pauseSeconds } from "./work.ts";

export interface Delivery {
  sequence: string;
  attempts: number;
  body: string;
}

/** Claim events whose predecessors within their aggregate are all acknowledged. */
export async function claimDeliveries(db: Db, seconds: number, limit: number): Promise<Delivery[]> {
  const { rows } = await db.query<Delivery>(
    `update events set attempts = attempts + 1, claim_expires_at = clock_timestamp() + make_interval(secs => $1)
      where sequence in (
        select e.sequence from events e
         where e.delivered_at is null and e.due_at <= clock_timestamp()
           and (e.claim_expires_at is null or e.claim_expires_at <= clock_timestamp())
           and not exists (select from events p where p.delivered_at is null and p.sequence < e.sequence
                            and p.aggregate_type = e.aggregate_type and p.aggregate_id = e.aggregate_id)
         order by e.due_at, e.sequence limit $2 for update skip locked)
     returning sequence, attempts, body`,
    [seconds, limit],
  );
  return rows;
}

/** Post one event. An acknowledgement is a fact, whoever got it; a failure counts only while the claim is ours. */
export async function deliver(db: Db, url: string, delivery: Delivery, signal: AbortSignal): Promise<void> {
  if (await isAcknowledged(url, delivery, signal)) {
    await db.query("update events set delivered_at = clock_timestamp(), claim_expires_at = null where sequence = $1 and delivered_at is null", [
      delivery.sequence,
    ]);
    return;
  }
  await db.query(
    `update events set claim_expires_at = null, due_at = clock_timestamp() + make_interval(secs => $3)
      where sequence = $1 and attempts = $2 and delivered_at is null`,
    [delivery.sequence, delivery.attempts, pauseSeconds(delivery.attempts)],
  );
}

async function isAcknowledged(url: string, delivery: Delivery, signal: AbortSignal): Promise<boolean> {
  const { eventId } = JSON.parse(delivery.body) as { eventId: string };
  try {
    const { status } = await post(url, { "event-id": eventId }, delivery.body, 5, signal);
    return status >= 200 && status < 300;
  } catch {
    return false; // broken, slow or endless: it counts as not acknowledged
  }
}
