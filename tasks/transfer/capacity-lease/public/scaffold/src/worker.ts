// `npm run start:worker`: starts and stops; does no work yet.
import { readSettings } from "./settings.ts";

try {
  const settings = readSettings(["DATABASE_URL"]);
  const alive = setInterval(() => {}, 60_000);
  process.on("SIGTERM", () => clearInterval(alive)); // may come twice: from the group and again from npm
  console.log(`worker ${settings.workerId} runs`);
} catch (error) {
  console.error(`worker: ${(error as Error).message}`);
  process.exitCode = 1;
}
