// `npm run start:api`
import { openDatabase } from "./database.ts";
import { buildApp } from "./http.ts";
import { readSettings } from "./settings.ts";

try {
  const settings = readSettings(["DATABASE_URL", "ADMIN_TOKEN"]);
  const db = openDatabase(settings.databaseUrl);
  const app = buildApp(db, settings.adminToken);
  let stopping: Promise<void> | undefined;
  // A signal may come twice: from the process group and again from npm. `on`, because `once` would let the second one kill.
  const stop = () => void (stopping ??= close());
  async function close(): Promise<void> {
    // A connection that was busy when closing began is kept alive after its answer: close it as soon as it is idle.
    const sweep = setInterval(() => app.server.closeIdleConnections(), 50);
    await app.close();
    clearInterval(sweep);
    await db.end();
  }
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  await app.listen({ host: settings.host, port: settings.port });
  console.log(`api listens on ${settings.host}:${settings.port}`);
} catch (error) {
  console.error(`api: ${(error as Error).message}`);
  process.exitCode = 1;
}
