// `npm run start:api`
import { openDatabase } from "./database.ts";
import { buildApp } from "./http.ts";
import { readSettings } from "./settings.ts";

try {
  const settings = readSettings(["DATABASE_URL", "ADMIN_TOKEN"]);
  const db = openDatabase(settings.databaseUrl);
  const app = buildApp(db, settings.adminToken);
  const stop = () => void app.close().then(() => db.end());
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  await app.listen({ host: settings.host, port: settings.port });
  console.log(`api listens on ${settings.host}:${settings.port}`);
} catch (error) {
  console.error(`api: ${(error as Error).message}`);
  process.exitCode = 1;
}
