// `npm run migrate`: applies what is missing from migrations/, one process at a time.
import { readdirSync, readFileSync } from "node:fs";
import { openDatabase, transaction } from "./database.ts";
import { readSettings } from "./settings.ts";

const folder = new URL("../migrations/", import.meta.url);

async function migrate(databaseUrl: string): Promise<void> {
  const db = openDatabase(databaseUrl);
  try {
    await transaction(db, async (tx) => {
      await tx.query("select pg_advisory_xact_lock(727001)");
      await tx.query("create table if not exists migrations (name text primary key, applied_at timestamptz not null default now())");
      const done = new Set((await tx.query<{ name: string }>("select name from migrations")).rows.map((row) => row.name));
      for (const name of readdirSync(folder).filter((file) => file.endsWith(".sql")).sort()) {
        if (done.has(name)) continue;
        await tx.query(readFileSync(new URL(name, folder), "utf8"));
        await tx.query("insert into migrations (name) values ($1)", [name]);
      }
    });
  } finally {
    await db.end();
  }
}

try {
  await migrate(readSettings(["DATABASE_URL"]).databaseUrl);
} catch (error) {
  console.error(`migrate: ${(error as Error).message || "the database cannot be reached"}`);
  process.exitCode = 1;
}
