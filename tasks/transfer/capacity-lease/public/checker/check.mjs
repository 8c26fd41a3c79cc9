// The public check of CapacityLease: speaks HTTP to a running API and nothing else.
//   node checker/check.mjs --url http://host:port --admin-token TOKEN [--json]
// Exit code 0: all checks passed; 1: at least one did not; 2: wrong usage.
// Answers are read with limits of size and time and are never trusted: a wrong one fails its check, nothing more.
import { randomUUID } from "node:crypto";

const largestAnswer = 4 * 1024 * 1024;
const answerSeconds = 10;
const longestOutput = 2000;

const { url, adminToken, json } = readArguments(process.argv.slice(2));
const admin = { authorization: `Bearer ${adminToken}` };
const mark = randomUUID().slice(0, 8);
let serial = 0;

// ---- the checks, in the order of the contract -----------------------------------------------------------------------

const checks = {
  "1.6 health and readiness": async () => {
    expect(await call("GET", "/healthz"), 200, { status: "ok" });
    expect(await call("GET", "/readyz"), 200, { status: "ready" });
  },
  "3.1 the document describes every operation": async () => {
    const { body } = expect(await call("GET", "/openapi.json"), 200);
    require(String(body?.openapi).startsWith("3.1"), "openapi is not 3.1.x");
    for (const [path, methods] of Object.entries(published)) {
      for (const method of methods) require(body?.paths?.[path]?.[method]?.responses, `${method.toUpperCase()} ${path} is not described`);
    }
  },
  "3.2-3.4 envelope of refusals": async () => {
    refused(await call("GET", `/api/v1/nothing-${mark}`), 404, "NOT_FOUND");
    const wrong = refused(await call("DELETE", "/api/v1/pools"), 405, "METHOD_NOT_ALLOWED");
    require(/POST/.test(wrong.headers.get("allow") ?? ""), "405 without a header Allow that names POST");
    refused(await call("POST", "/api/v1/leases", { text: "{", headers: key() }), 400, "MALFORMED_JSON");
    refused(await call("POST", "/api/v1/leases", { text: "{}", type: "text/plain", headers: key() }), 415, "UNSUPPORTED_MEDIA_TYPE");
    refused(await call("GET", `/api/v1/leases/${randomUUID()}`), 404, "LEASE_NOT_FOUND");
  },
  "3.5-3.6 limits of a lease request": async () => {
    const poolId = await pool(5);
    const wrong = [{ units: 0 }, { units: 1.5 }, { units: "1" }, { priority: 10 }, { holdSeconds: 0 }, { ownerId: "" }, { surplus: 1 }];
    wrong.push({ startAt: "tomorrow" }, { endAt: "2031-02-30T00:00:00Z" }, { members: [{ poolId, units: 1 }] });
    for (const change of wrong) {
      refused(await call("POST", "/api/v1/leases", { body: { ...short(poolId, 1), ...change }, headers: key() }), 400, "INVALID_REQUEST");
    }
    const { body } = refused(await call("POST", "/api/v1/leases", { body: { ...gang([[poolId, 0]]) }, headers: key() }), 400, "INVALID_REQUEST");
    require(body.error.details.some((detail) => detail?.field === "members.0.units"), "details do not name members.0.units");
    const backwards = { ...short(poolId, 1), endAt: at(9) };
    refused(await call("POST", "/api/v1/leases", { body: backwards, headers: key() }), 400, "INVALID_INTERVAL");
  },
  "3.7 administrative operations need the token": async () => {
    refused(await call("GET", "/api/v1/verification-snapshot"), 401, "ADMIN_AUTH_REQUIRED");
    refused(await call("GET", "/api/v1/work", { headers: { authorization: "Bearer wrong" } }), 401, "ADMIN_AUTH_REQUIRED");
    refused(await call("POST", "/api/v1/pools", { body: { poolId: `p-${mark}`, name: "p", capacity: 1 }, headers: key() }), 401, "ADMIN_AUTH_REQUIRED");
  },
  "5.1 pools": async () => {
    const poolId = await pool(5);
    const read = expect(await call("GET", `/api/v1/pools/${poolId}`), 200, { poolId, capacity: 5, revision: 1 });
    require(read.headers.get("etag") === '"1"', "ETag is not the quoted revision");
    const again = { poolId, name: "other", capacity: 1 };
    refused(await call("POST", "/api/v1/pools", { body: again, headers: { ...admin, ...key() } }), 409, "POOL_EXISTS");
    const path = `/api/v1/pools/${poolId}`;
    refused(await call("PATCH", path, { body: { capacity: 6 }, headers: { ...admin, ...key() } }), 428, "PRECONDITION_REQUIRED");
    refused(await call("PATCH", path, { body: { capacity: 6 }, headers: { ...admin, ...key(), "if-match": '"9"' } }), 412, "REVISION_MISMATCH");
    expect(await call("PATCH", path, { body: { capacity: 6 }, headers: { ...admin, ...key(), "if-match": '"1"' } }), 200, { capacity: 6, revision: 2 });
  },
  "5.9 a request that fits is held": async () => {
    const poolId = await pool(5);
    const { lease, token } = await request(short(poolId, 3), 201, { state: "held", revision: 1, priority: 0, holdSeconds: 300 });
    require(token.length >= 24, "leaseToken is too short");
    same(lease.members, [{ poolId, units: 3 }], "members");
    expect(await call("GET", `/api/v1/leases/${lease.leaseId}`), 200, { leaseId: lease.leaseId, state: "held", startAt: at(10), endAt: at(12) });
  },
  "5.9 a request that does not fit waits or is refused": async () => {
    const poolId = await pool(5);
    await request(short(poolId, 3), 201, {});
    await request(short(poolId, 3), 202, { state: "waiting", holdExpiresAt: null });
    refused(await call("POST", "/api/v1/leases", { body: { ...short(poolId, 3), wait: false }, headers: key() }), 409, "CAPACITY_UNAVAILABLE");
    refused(await call("POST", "/api/v1/leases", { body: short(poolId, 6), headers: key() }), 409, "EXCEEDS_POOL_CAPACITY");
    const { body } = expect(await call("GET", `/api/v1/waiting?poolId=${poolId}`), 200);
    require(body?.items?.length === 1 && body.items[0]?.position === 1, "the waiting list does not show one lease at position 1");
  },
  "5.10 confirm, renew, release": async () => {
    const poolId = await pool(5);
    const held = await request(short(poolId, 3), 201, {});
    refused(await act(held, "release", 1), 409, "INVALID_STATE");
    refused(await act({ ...held, token: "wrong" }, "confirm", 1), 403, "LEASE_TOKEN_REQUIRED");
    refused(await act(held, "confirm", 2), 412, "REVISION_MISMATCH");
    expect(await act(held, "confirm", 1), 200, { state: "confirmed", revision: 2, holdExpiresAt: null });
    expect(await act(held, "renew", 2, { endAt: at(13) }), 200, { state: "confirmed", revision: 3, endAt: at(13) });
    expect(await act(held, "release", 3), 200, { state: "released", revision: 4 });
    refused(await act(held, "release", 4), 409, "INVALID_STATE");
  },
  "5.10 cancel": async () => {
    const poolId = await pool(5);
    const held = await request(short(poolId, 5), 201, {});
    const waiting = await request(short(poolId, 5), 202, {});
    expect(await act(waiting, "cancel", 1), 200, { state: "cancelled", revision: 2 });
    expect(await act(held, "cancel", 1), 200, { state: "cancelled", revision: 2 });
    await request(short(poolId, 5), 201, { state: "held" });
  },
  "5.7 a lease over several pools": async () => {
    const [a, b] = [await pool(4), await pool(2)];
    const { lease } = await request(gang([[b, 2], [a, 1]]), 201, { state: "held" });
    same(lease.members.map((member) => member?.poolId), [a, b].sort(), "order of members");
    await request(gang([[a, 3], [b, 1]]), 202, { state: "waiting" });
    await request(short(a, 3), 201, { state: "held" });
  },
  "4 a key sent twice has one effect": async () => {
    const poolId = await pool(5);
    const same_key = key();
    const body = short(poolId, 1);
    const first = await call("POST", "/api/v1/leases", { body, headers: same_key });
    const second = await call("POST", "/api/v1/leases", { body, headers: same_key });
    expect(first, 201);
    expect(second, 201);
    require(first.text === second.text, "the second answer differs from the first");
    require(second.headers.get("idempotency-replayed") === "true", "no header Idempotency-Replayed: true");
    refused(await call("POST", "/api/v1/leases", { body: { ...body, units: 2 }, headers: same_key }), 409, "IDEMPOTENCY_KEY_REUSED");
    refused(await call("POST", "/api/v1/leases", { body }), 400, "IDEMPOTENCY_KEY_REQUIRED");
    const { body: list } = expect(await call("GET", `/api/v1/leases?poolId=${poolId}`), 200);
    require(list?.items?.length === 1, "not exactly one lease");
  },
  "3.12 pages": async () => {
    const poolId = await pool(100);
    const made = [];
    for (let i = 0; i < 3; i++) made.push((await request(short(poolId, 1), 201, {})).lease.leaseId);
    const first = expect(await call("GET", `/api/v1/leases?poolId=${poolId}&limit=2`), 200).body;
    require(typeof first?.nextCursor === "string", "no nextCursor after the first page");
    const cursor = encodeURIComponent(first.nextCursor.slice(0, 512));
    const second = expect(await call("GET", `/api/v1/leases?poolId=${poolId}&limit=2&cursor=${cursor}`), 200).body;
    same([...first.items, ...(second?.items ?? [])].map((lease) => lease?.leaseId), made, "leases over two pages");
    require(second?.nextCursor === null, "nextCursor after the last page is not null");
    refused(await call("GET", `/api/v1/leases?limit=2&cursor=nonsense`), 400, "INVALID_CURSOR");
    refused(await call("GET", `/api/v1/leases?limit=101`), 400, "INVALID_REQUEST");
  },
  "5.14 timeline": async () => {
    const poolId = await pool(5);
    await request(short(poolId, 3), 201, {});
    const { body } = expect(await call("GET", `/api/v1/pools/${poolId}/timeline?from=${at(9)}&to=${at(13)}`), 200, { poolId, capacity: 5 });
    const seen = (body?.slices ?? []).map((slice) => [slice?.startAt, slice?.endAt, slice?.usedUnits, slice?.availableUnits]);
    same(seen, [[at(9), at(10), 0, 5], [at(10), at(12), 3, 2], [at(12), at(13), 0, 5]], "slices");
  },
  "9 events": async () => {
    const poolId = await pool(5);
    const held = await request(short(poolId, 1), 201, {});
    expect(await act(held, "confirm", 1), 200);
    const { body } = expect(await call("GET", `/api/v1/leases/${held.lease.leaseId}/events`), 200);
    same((body?.items ?? []).map((event) => [event?.type, event?.revision]), [["lease.held", 1], ["lease.confirmed", 2]], "events of the lease");
    same(Object.keys(body.items[0]).sort(), eventFields, "fields of an event");
    const after = body.items[0].sequence;
    const next = expect(await call("GET", `/api/v1/events?after=${Number(after)}&limit=1`), 200).body;
    require(next?.items?.[0]?.sequence === after + 1, "the feed does not go on with the next sequence");
  },
  "10 verification snapshot": async () => {
    const poolId = await pool(5);
    const { lease } = await request(short(poolId, 1), 201, {});
    const { body } = expect(await call("GET", "/api/v1/verification-snapshot", { headers: admin }), 200);
    require(body?.resources?.pools?.some((item) => item?.poolId === poolId), "the pool is missing");
    require(body?.resources?.leases?.some((item) => item?.leaseId === lease.leaseId), "the lease is missing");
    const work = (body?.work ?? []).filter((item) => item?.aggregateId === lease.leaseId);
    same(work.map((item) => [item.kind, item.state]), [["lease.expireHold", "pending"]], "work of a held lease");
    same((body?.events ?? []).slice(0, 3).map((event) => event?.sequence), [1, 2, 3], "first sequences");
  },
  "13.1 the page": async () => {
    const page = await call("GET", "/");
    require(page.status === 200 && /text\/html/.test(page.headers.get("content-type") ?? ""), "GET / is not an HTML page");
    require(/<script/i.test(page.text), "the page loads no script");
  },
};

const eventFields = ["aggregateId", "aggregateType", "data", "eventId", "occurredAt", "revision", "sequence", "type"];

const published = {
  "/healthz": ["get"],
  "/readyz": ["get"],
  "/openapi.json": ["get"],
  "/": ["get"],
  "/api/v1/pools": ["get", "post"],
  "/api/v1/pools/{poolId}": ["get", "patch"],
  "/api/v1/pools/{poolId}/timeline": ["get"],
  "/api/v1/leases": ["get", "post"],
  "/api/v1/leases/{leaseId}": ["get"],
  "/api/v1/leases/{leaseId}/confirm": ["post"],
  "/api/v1/leases/{leaseId}/renew": ["post"],
  "/api/v1/leases/{leaseId}/release": ["post"],
  "/api/v1/leases/{leaseId}/cancel": ["post"],
  "/api/v1/leases/{leaseId}/events": ["get"],
  "/api/v1/waiting": ["get"],
  "/api/v1/events": ["get"],
  "/api/v1/work": ["get"],
  "/api/v1/verification-snapshot": ["get"],
};

// ---- what the checks are made of ------------------------------------------------------------------------------------

/** The given hour of a day in the future, as the contract writes it. */
function at(hour) {
  const day = new Date(Date.now() + 40 * 86_400_000);
  return new Date(Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), day.getUTCDate(), hour)).toISOString();
}

function key() {
  return { "idempotency-key": randomUUID() };
}

function short(poolId, units) {
  return { ownerId: "checker", poolId, units, startAt: at(10), endAt: at(12) };
}

function gang(members) {
  return { ownerId: "checker", members: members.map(([poolId, units]) => ({ poolId, units })), startAt: at(10), endAt: at(12) };
}

async function pool(capacity) {
  const poolId = `check-${mark}-${++serial}`;
  const answer = await call("POST", "/api/v1/pools", { body: { poolId, name: "Check", capacity }, headers: { ...admin, ...key() } });
  expect(answer, 201, { poolId, name: "Check", capacity, revision: 1 });
  return poolId;
}

async function request(body, status, expected) {
  const answer = expect(await call("POST", "/api/v1/leases", { body, headers: key() }), status);
  const { lease, leaseToken } = answer.body ?? {};
  require(typeof lease?.leaseId === "string" && /^[0-9a-f-]{36}$/i.test(lease.leaseId), "the answer has no lease with a UUID");
  require(typeof leaseToken === "string" && Array.isArray(lease.members), "the answer has no leaseToken or no members");
  matches(lease, expected);
  return { lease, token: leaseToken.slice(0, 200) };
}

function act({ lease, token }, action, revision, body = {}) {
  const headers = { ...key(), "if-match": `"${revision}"`, "lease-token": /^[!-~]+$/.test(token) ? token : "unprintable" };
  return call("POST", `/api/v1/leases/${lease.leaseId}/${action}`, { body, headers });
}

async function call(method, path, { body, text, type, headers = {} } = {}) {
  const content = text ?? (body === undefined ? undefined : JSON.stringify(body));
  const response = await fetch(new URL(path, url), {
    method,
    headers: content === undefined ? headers : { "content-type": type ?? "application/json", ...headers },
    body: content,
    redirect: "manual",
    signal: AbortSignal.timeout(answerSeconds * 1000),
  });
  const answer = { what: `${method} ${path.slice(0, 120)}`, status: response.status, headers: response.headers, text: await readBounded(response), body: undefined };
  try {
    answer.body = JSON.parse(answer.text);
  } catch {
    // not JSON: a check that expects JSON says so
  }
  return answer;
}

async function readBounded(response) {
  const chunks = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    require(size <= largestAnswer, "the answer is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

class Failed extends Error {}

function require(condition, message) {
  if (!condition) throw new Failed(message);
}

function expect(answer, status, expected = {}) {
  require(answer.status === status, `${answer.what}: expected ${status}, got ${answer.status}: ${answer.text.slice(0, 300)}`);
  matches(answer.body, expected);
  return answer;
}

function refused(answer, status, code) {
  expect(answer, status);
  const error = answer.body?.error;
  require(error?.code === code, `${answer.what}: expected the code ${code}, got ${answer.text.slice(0, 300)}`);
  same(Object.keys(answer.body), ["error"], "fields of a refusal");
  same(Object.keys(error).sort(), ["code", "details", "message"], "fields of error");
  require(typeof error.message === "string" && Array.isArray(error.details), "message or details have the wrong type");
  return answer;
}

function matches(value, expected) {
  for (const [field, wanted] of Object.entries(expected)) same(value?.[field], wanted, field);
}

function same(value, wanted, what) {
  const [got, want] = [JSON.stringify(value), JSON.stringify(wanted)];
  require(got === want, `${what}: expected ${want}, got ${String(got).slice(0, 500)}`);
}

function readArguments(given) {
  const value = (name) => (given.includes(name) ? given[given.indexOf(name) + 1] : undefined);
  const [url, adminToken] = [value("--url"), value("--admin-token")];
  if (!url || !adminToken || !URL.canParse(url)) {
    console.error("usage: node checker/check.mjs --url http://host:port --admin-token TOKEN [--json]");
    process.exit(2);
  }
  return { url, adminToken, json: given.includes("--json") };
}

async function run(name, check) {
  const started = performance.now();
  let output = "";
  try {
    await check();
  } catch (error) {
    const cause = error?.cause?.code ?? error?.cause?.message ?? "";
    const text = error instanceof Failed ? error.message : `${error?.name}: ${error?.message} ${cause}`;
    output = [...text].slice(0, longestOutput).join("") || "failed";
  }
  return { name, passed: output === "", seconds: Math.round(performance.now() - started) / 1000, output };
}

const results = [];
for (const [name, check] of Object.entries(checks)) {
  const result = await run(name, check);
  results.push(result);
  if (!json) console.log(`${result.passed ? "pass" : "FAIL"}  ${name}${result.output ? `: ${JSON.stringify(result.output)}` : ""}`);
}
if (json) console.log(JSON.stringify(results));
process.exit(results.every((result) => result.passed) ? 0 : 1);
