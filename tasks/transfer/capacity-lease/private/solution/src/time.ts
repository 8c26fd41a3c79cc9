// Instants. Inside they are Dates; the database's clock alone decides what "now" is, so that all processes agree.
import type { Db, Tx } from "./database.ts";
import { Refusal } from "./errors.ts";

const form = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,3}))?(Z|[+-](\d{2}):(\d{2}))$/;

/** Read an RFC 3339 text; refuse dates and times of day that do not exist. */
export function parseInstant(text: string, field: string): Date {
  const parts = form.exec(text);
  const refuse = () => new Refusal(400, "INVALID_REQUEST", "the request is not valid", [{ field, issue: "is not a date and time" }]);
  if (!parts) throw refuse();
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number) as [number, number, number, number, number, number];
  const date = new Date(Date.UTC(year, month - 1, day, hour, minute, second));
  date.setUTCFullYear(year);
  const exists = date.getUTCMonth() === month - 1 && date.getUTCDate() === day && hour < 24 && minute < 60 && second < 60;
  if (!exists || Number(parts[9] ?? 0) > 23 || Number(parts[10] ?? 0) > 59) throw refuse();
  return new Date(text);
}

/** The database's time, to the millisecond; asked after locks were taken, because waiting for them takes time. */
export async function databaseNow(tx: Tx | Db): Promise<Date> {
  const { rows } = await tx.query<{ now: Date }>("select date_trunc('milliseconds', clock_timestamp()) as now");
  return rows[0]!.now;
}

export function addSeconds(instant: Date, seconds: number): Date {
  return new Date(instant.getTime() + seconds * 1000);
}
