// Events: written in the transaction of the change they report, numbered without gaps, delivered by the worker.
import { randomUUID } from "node:crypto";
import type { Tx } from "./database.ts";

export interface Change {
  type: string;
  aggregateType: "pool" | "lease";
  aggregateId: string;
  revision: number;
  data: object;
}

/**
 * Append an event. The last thing of a transaction: from here to the commit every other writer waits, and a
 * transaction that took other locks afterwards could wait for one of them for ever.
 */
export async function appendEvent(tx: Tx, change: Change, occurredAt: Date): Promise<void> {
  const counter = await tx.query<{ value: string }>("update event_counter set value = value + 1 returning value");
  const sequence = Number(counter.rows[0]!.value);
  const { type, aggregateType, aggregateId, revision, data } = change;
  const event = { eventId: randomUUID(), sequence, type, aggregateType, aggregateId, revision, occurredAt, data };
  await tx.query("insert into events (sequence, aggregate_type, aggregate_id, body) values ($1, $2, $3, $4)", [
    sequence,
    aggregateType,
    aggregateId,
    JSON.stringify(event),
  ]);
}
