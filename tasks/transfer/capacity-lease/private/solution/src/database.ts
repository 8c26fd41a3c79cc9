// The connection pool and transactions.
import pg from "pg";

export type Tx = pg.PoolClient;
export type Db = pg.Pool;

export function openDatabase(url: string): Db {
  const db = new pg.Pool({ connectionString: url, max: 10, connectionTimeoutMillis: 2500, keepAlive: true });
  db.on("error", () => {}); // an idle connection may be cut; the next query opens another
  return db;
}

/** Run `work` in one transaction: committed when it returns, rolled back when it throws. */
export async function transaction<T>(db: Db, work: (tx: Tx) => Promise<T>, begin = "begin"): Promise<T> {
  const tx = await db.connect();
  let broken: Error | undefined;
  tx.on("error", ignore); // a cut connection also rejects the query that uses it
  try {
    await tx.query(begin);
    const result = await work(tx);
    await tx.query("commit");
    return result;
  } catch (error) {
    await tx.query("rollback").catch((failure: Error) => (broken = failure));
    throw error;
  } finally {
    tx.off("error", ignore);
    tx.release(broken);
  }
}

function ignore(): void {}
