// The page's way to the API. A request that may be sent again keeps its Idempotency-Key.

export interface Member {
  poolId: string;
  units: number;
}

export interface Lease {
  leaseId: string;
  ownerId: string;
  members: Member[];
  startAt: string;
  endAt: string;
  priority: number;
  state: string;
  revision: number;
  bypassCount: number;
}

export interface Pool {
  poolId: string;
  name: string;
  capacity: number;
}

export interface Shown {
  pools: Pool[];
  leases: Lease[];
  waiting: { position: number; lease: Lease }[];
}

export class Refused extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** The answer did not come: nobody knows whether the request had its effect. */
export class Unreachable extends Error {}

export interface Change {
  path: string;
  body: object;
  headers: Record<string, string>;
}

/** A random key. Not `randomUUID`: browsers offer that only on HTTPS and localhost, and this page is also plain HTTP. */
function freshKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Describe a change; its key is made here, so that trying again repeats the same request. */
export function change(path: string, body: object, headers: Record<string, string> = {}): Change {
  return { path, body, headers: { ...headers, "content-type": "application/json", "idempotency-key": freshKey() } };
}

export function send<T>({ path, body, headers }: Change): Promise<T> {
  return call<T>(path, { method: "POST", headers, body: JSON.stringify(body) });
}

export async function readAll(): Promise<Shown> {
  const [pools, leases, waiting] = await Promise.all([
    readPages<Pool>("/api/v1/pools"),
    call<{ items: Lease[] }>("/api/v1/leases?order=newest&limit=100", {}),
    call<{ items: Shown["waiting"] }>("/api/v1/waiting?limit=500", {}),
  ]);
  return { pools, leases: leases.items, waiting: waiting.items };
}

async function readPages<T>(path: string): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = "";
  do {
    const address: string = `${path}?limit=100${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
    const page: { items: T[]; nextCursor: string | null } = await call(address, {});
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor);
  return items;
}

async function call<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, { ...init, cache: "no-store" });
    text = await response.text();
  } catch {
    throw new Unreachable();
  }
  if (response.ok) return JSON.parse(text) as T;
  if (response.status >= 500) throw new Unreachable();
  const { error } = JSON.parse(text) as { error: { code: string; message: string } };
  throw new Refused(error.code, error.message);
}

// Tokens live in this browser alone.
const place = (leaseId: string) => `lease-token:${leaseId}`;

export function tokenOf(leaseId: string): string | null {
  return localStorage.getItem(place(leaseId));
}

export function keepToken(leaseId: string, token: string): void {
  localStorage.setItem(place(leaseId), token);
}

/** `2030-01-01T10:00` as typed into a field, which is UTC by contract. */
export function fromField(text: string): string {
  return text.length === 16 ? `${text}:00Z` : `${text}Z`;
}
