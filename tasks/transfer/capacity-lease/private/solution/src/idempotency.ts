// One effect per key: look-up, effect and stored answer share one transaction, serialised by the key.
import { createHash } from "node:crypto";
import { transaction, type Db, type Tx } from "./database.ts";
import { Refusal } from "./errors.ts";

export interface Answer {
  status: number;
  etag: string;
  body: string;
}

export interface Command {
  /** Method and path. */
  scope: string;
  key: string;
  /** What the request means, after parsing and with defaults. */
  meaning: unknown;
}

export async function once(db: Db, command: Command, effect: (tx: Tx) => Promise<Answer>): Promise<Answer & { replayed: boolean }> {
  const fingerprint = createHash("sha256").update(canonical(command.meaning)).digest("hex");
  return transaction(db, async (tx) => {
    // Held to the end of the transaction, so equal keys come one after the other, over all processes.
    await tx.query("select pg_advisory_xact_lock(hashtextextended($1, 7))", [`${command.scope} ${command.key}`]);
    const stored = await tx.query<Answer & { fingerprint: string }>("select * from answers where scope = $1 and key = $2", [
      command.scope,
      command.key,
    ]);
    const first = stored.rows[0];
    if (first && first.fingerprint !== fingerprint) {
      throw new Refusal(409, "IDEMPOTENCY_KEY_REUSED", "this Idempotency-Key was used for another request");
    }
    if (first) return { status: first.status, etag: first.etag, body: first.body, replayed: true };
    const answer = await effect(tx);
    await tx.query("insert into answers (scope, key, fingerprint, status, etag, body) values ($1, $2, $3, $4, $5, $6)", [
      command.scope,
      command.key,
      fingerprint,
      answer.status,
      answer.etag,
      answer.body,
    ]);
    return { ...answer, replayed: false };
  });
}

/** JSON with sorted fields: equal meanings give equal texts. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    item && typeof item === "object" && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}
