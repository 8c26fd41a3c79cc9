// `npm run start:api`
import type { FastifyInstance } from "fastify";
import { openDatabase, type Db } from "./database.ts";
import { buildApp } from "./http.ts";
import { readSettings } from "./settings.ts";

/** Answer what was begun, then go; 4.5 s at most, so that a database that hangs cannot keep the process. */
async function end(app: FastifyInstance, db: Db): Promise<void> {
  setTimeout(() => process.exit(0), 4500).unref();
  // A connection that was busy when the server closed stays open after its answer: it is closed as soon as it is idle.
  const sweep = setInterval(() => app.server.closeIdleConnections(), 50);
  await app.close();
  clearInterval(sweep);
  await db.end();
}

try {
  const settings = readSettings(["DATABASE_URL", "ADMIN_TOKEN"]);
  const db = openDatabase(settings.databaseUrl);
  const app = buildApp(db, settings.adminToken);
  let stopping: Promise<void> | undefined;
  // A signal may come twice: from the process group and again from npm. `on`, because `once` would let the second one kill.
  const stop = () => void (stopping ??= end(app, db));
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  await app.listen({ host: settings.host, port: settings.port });
  console.log(`api listens on ${settings.host}:${settings.port}`);
} catch (error) {
  console.error(`api: ${(error as Error).message}`);
  process.exitCode = 1;
}
