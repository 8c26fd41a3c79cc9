// `npm run start:worker`: claims and does background work and deliveries until SIGTERM.
import { perform } from "./background.ts";
import { openDatabase, type Db } from "./database.ts";
import { claimDeliveries, deliver } from "./delivery.ts";
import { readSettings, type Settings } from "./settings.ts";
import { claimWork, ClaimLost, giveBack, type Claim } from "./work.ts";

const slots = 16;
const idleMilliseconds = 200;

/** Keep up to `slots` pieces going; a piece that hangs takes one slot and stops nothing else. */
async function pump<T>(signal: AbortSignal, claim: (limit: number) => Promise<T[]>, work: (piece: T) => Promise<void>): Promise<void> {
  const running = new Set<Promise<void>>();
  while (!signal.aborted) {
    const free = slots - running.size;
    const pieces = free > 0 ? await claim(free).catch(report) : [];
    for (const piece of pieces ?? []) {
      const task: Promise<void> = work(piece)
        .catch(report)
        .then(() => void running.delete(task));
      running.add(task);
    }
    if (pieces?.length !== free || free === 0) await Promise.race([pause(signal), ...(free === 0 ? running : [])]);
  }
  await Promise.all(running);
}

async function runWork(settings: Settings, db: Db, signal: AbortSignal, claim: Claim): Promise<void> {
  try {
    await perform({ db, admissionUrl: settings.admissionUrl, signal }, claim);
  } catch (error) {
    if (error instanceof ClaimLost) return; // somebody else has it, or it has become pointless
    report(error);
    await giveBack(db, claim);
  }
}

async function tidy(db: Db, retentionSeconds: number): Promise<void> {
  await db.query("delete from work where finished_at < clock_timestamp() - make_interval(secs => $1)", [retentionSeconds]);
  await db.query("delete from answers where created_at < clock_timestamp() - make_interval(secs => $1)", [retentionSeconds]);
}

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, idleMilliseconds);
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done);
  });
}

function report(error: unknown): undefined {
  console.error(`worker: ${(error as Error).message || "failed"}`);
}

async function run(settings: Settings): Promise<void> {
  const db = openDatabase(settings.databaseUrl);
  const stop = new AbortController();
  // A signal may come twice: from the process group and again from npm. `on`, because `once` would let the second one kill.
  process.on("SIGTERM", () => stop.abort());
  process.on("SIGINT", () => stop.abort());
  // A database that hangs cannot keep the process.
  stop.signal.addEventListener("abort", () => setTimeout(() => process.exit(0), 4500).unref());
  const cleaning = setInterval(() => void tidy(db, settings.retentionSeconds).catch(report), 1000 * Math.min(60, Math.max(1, settings.retentionSeconds / 2)));
  console.log(`worker ${settings.workerId} runs`);
  const pumps = [
    pump(stop.signal, (limit) => claimWork(db, settings.workerId, settings.workLeaseSeconds, limit), (claim) => runWork(settings, db, stop.signal, claim)),
  ];
  if (settings.webhookUrl) {
    const work = (delivery: Awaited<ReturnType<typeof claimDeliveries>>[number]) => deliver(db, settings.webhookUrl, delivery, stop.signal);
    pumps.push(pump(stop.signal, (limit) => claimDeliveries(db, settings.workLeaseSeconds, limit), work));
  }
  await Promise.all(pumps);
  clearInterval(cleaning);
  await db.end();
}

try {
  await run(readSettings(["DATABASE_URL"]));
} catch (error) {
  console.error(`worker: ${(error as Error).message}`);
  process.exitCode = 1;
}
