// What a process reads from its environment, once, at start. Nothing else reads process.env.

export interface Settings {
  databaseUrl: string;
  host: string;
  port: number;
  adminToken: string;
  webhookUrl: string;
  admissionUrl: string;
  workLeaseSeconds: number;
  workerId: string;
  retentionSeconds: number;
}

type Name = "DATABASE_URL" | "ADMIN_TOKEN";

/** Read the settings; `required` names what this process cannot do without. */
export function readSettings(required: Name[], env: NodeJS.ProcessEnv = process.env): Settings {
  for (const name of required) if (!env[name]) throw new Error(`${name} is not set`);
  if (env.DATABASE_URL && !/^postgres(ql)?:\/\//.test(env.DATABASE_URL)) throw new Error("DATABASE_URL is not a PostgreSQL address");
  return {
    databaseUrl: env.DATABASE_URL ?? "",
    host: env.HOST || "127.0.0.1",
    port: number(env, "PORT", 3000, 0, 65535),
    adminToken: env.ADMIN_TOKEN ?? "",
    webhookUrl: address(env, "WEBHOOK_URL"),
    admissionUrl: address(env, "ADMISSION_URL"),
    workLeaseSeconds: number(env, "WORK_LEASE_SECONDS", 10, 0.1, 86400),
    workerId: env.WORKER_ID || `worker-${process.pid}-${Math.random().toString(36).slice(2, 8)}`,
    retentionSeconds: number(env, "RETENTION_SECONDS", 604800, 0, 1e9),
  };
}

function number(env: NodeJS.ProcessEnv, name: string, fallback: number, low: number, high: number): number {
  const text = env[name];
  if (!text) return fallback;
  const value = Number(text);
  if (!(value >= low && value <= high)) throw new Error(`${name} is not a number from ${low} to ${high}`);
  return value;
}

function address(env: NodeJS.ProcessEnv, name: string): string {
  const text = env[name] ?? "";
  if (text && !/^https?:\/\//.test(text)) throw new Error(`${name} is not an HTTP address`);
  return text;
}
