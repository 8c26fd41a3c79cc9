// `npm run start:api`
import { buildApp } from "./http.ts";
import { readSettings } from "./settings.ts";

try {
  const settings = readSettings(["DATABASE_URL", "ADMIN_TOKEN"]);
  const app = buildApp();
  process.on("SIGTERM", () => void app.close()); // may come twice: from the group and again from npm
  await app.listen({ host: settings.host, port: settings.port });
  console.log(`api listens on ${settings.host}:${settings.port}`);
} catch (error) {
  console.error(`api: ${(error as Error).message}`);
  process.exitCode = 1;
}
