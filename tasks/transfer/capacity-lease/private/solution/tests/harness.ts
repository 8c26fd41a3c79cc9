// What the tests stand on: the real programs, started as the contract says, on the test database alone.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import pg from "pg";

export const adminToken = "test-admin-token";
const root = fileURLToPath(new URL("..", import.meta.url));
const databaseUrl = process.env.TEST_DATABASE_URL ?? "";
const started = new Set<ChildProcess>();

process.on("exit", () => started.forEach((child) => child.kill("SIGKILL")));

/** Empty the test database and migrate it. Fails when the database cannot be reached. */
export async function freshDatabase(): Promise<void> {
  assert.notEqual(databaseUrl, "", "TEST_DATABASE_URL is not set");
  const client = new pg.Client({ connectionString: databaseUrl, connectionTimeoutMillis: 5000 });
  await client.connect();
  try {
    await client.query("drop schema if exists public cascade");
    await client.query("create schema public");
  } finally {
    await client.end();
  }
  const [code] = (await once(run("src/migrate.ts"), "exit")) as [number];
  assert.equal(code, 0, "migrate failed");
}

function run(file: string, env: Record<string, string> = {}, args: string[] = []): ChildProcess {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", file, ...args], {
    cwd: root,
    env: { ...process.env, DATABASE_URL: databaseUrl, ADMIN_TOKEN: adminToken, ...env },
    stdio: ["ignore", "ignore", "inherit"],
  });
  started.add(child);
  child.once("exit", () => started.delete(child));
  return child;
}

export async function seed(file: string): Promise<number> {
  const [code] = (await once(run("src/seed.ts", {}, [file]), "exit")) as [number];
  return code;
}

export class Api {
  readonly url: string;
  private readonly child: ChildProcess;

  private constructor(url: string, child: ChildProcess) {
    this.url = url;
    this.child = child;
  }

  static async start(port?: number): Promise<Api> {
    const chosen = port ?? (await freePort());
    const child = run("src/api.ts", { HOST: "127.0.0.1", PORT: String(chosen) });
    const api = new Api(`http://127.0.0.1:${chosen}`, child);
    await eventually("the API listens", async () => {
      assert.equal(child.exitCode, null, "the API ended at its start");
      return (await fetch(`${api.url}/healthz`).catch(() => null))?.ok ?? false;
    });
    return api;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  async stop(): Promise<void> {
    await stop(this.child);
  }

  async call(method: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<Answer> {
    const sent = new Headers(body ? { "content-type": "application/json", "idempotency-key": randomUUID() } : {});
    for (const [name, value] of Object.entries(headers)) sent.set(name, value);
    const response = await fetch(this.url + path, {
      method,
      headers: sent,
      body: body ? JSON.stringify(body) : undefined,
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, body: JSON.parse(text) };
  }

  /** Create a pool and make sure that it is there. */
  async pool(capacity: number): Promise<string> {
    const poolId = `pool-${randomUUID().slice(0, 18)}`;
    const made = await this.call("POST", "/api/v1/pools", { poolId, name: "Test", capacity }, admin);
    assert.equal(made.status, 201, made.text);
    assert.deepEqual((await this.call("GET", `/api/v1/pools/${poolId}`)).body, made.body);
    return poolId;
  }

  act(held: Held, action: string, body: object = {}): Promise<Answer> {
    const headers = { "if-match": `"${held.lease.revision}"`, "lease-token": held.leaseToken };
    return this.call("POST", `/api/v1/leases/${held.lease.leaseId}/${action}`, body, headers);
  }

  async snapshot(): Promise<any> {
    const { status, body } = await this.call("GET", "/api/v1/verification-snapshot", undefined, admin);
    assert.equal(status, 200);
    return body;
  }
}

export const admin = { authorization: `Bearer ${adminToken}` };

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  body: any;
}

export interface Held {
  lease: any;
  leaseToken: string;
}

export class Worker {
  private readonly child: ChildProcess;

  constructor(env: Record<string, string> = {}) {
    this.child = run("src/worker.ts", { WORK_LEASE_SECONDS: "1", WEBHOOK_URL: "", ADMISSION_URL: "", ...env });
  }

  async stop(): Promise<void> {
    await stop(this.child);
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await once(this.child, "exit");
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  const [code] = (await once(child, "exit")) as [number | null];
  assert.equal(code, 0, "a process did not end well");
}

/** An HTTP server that answers as told and remembers what it was asked. */
export async function startReceiver(answer: (body: any, count: number) => Promise<{ status: number; body?: object }>) {
  const seen: any[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (chunk: Buffer) => (text += chunk.toString()));
    request.on("end", async () => {
      const body = JSON.parse(text);
      seen.push(body);
      const { status, body: out } = await answer(body, seen.length);
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(out ?? {}));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, seen, close };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

export async function eventually(what: string, check: () => Promise<boolean>, seconds = 20): Promise<void> {
  const end = Date.now() + seconds * 1000;
  while (!(await check())) {
    assert.ok(Date.now() < end, `not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Instants around a day far enough ahead, by hour. */
export function at(hour: number): string {
  const day = Math.floor(Date.now() / 86_400_000) + 30;
  return new Date((day * 24 + hour) * 3_600_000).toISOString();
}

export function soon(seconds: number): string {
  return new Date(Date.now() + seconds * 1000).toISOString();
}
