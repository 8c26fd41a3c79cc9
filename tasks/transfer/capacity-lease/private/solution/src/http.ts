// The HTTP application: routes from the document, checks in the contract's order, one form of refusal.
import { createHash, timingSafeEqual } from "node:crypto";
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { readAssets } from "./assets.ts";
import { changePool, createPool, type PoolCreate } from "./pools.ts";
import type { Db, Tx } from "./database.ts";
import { Refusal } from "./errors.ts";
import { once, type Answer } from "./idempotency.ts";
import { cancelLease, confirmLease, releaseLease, renewLease, requestLease, type Holder } from "./leases.ts";
import { documentText, operations, type Operation } from "./openapi.ts";
import { parseInstant } from "./time.ts";
import { readRequest } from "./request.ts";
import { validate, invalid, type Given } from "./validation.ts";
import * as views from "./views.ts";

type Reader = (db: Db, given: Given) => Promise<object>;

const readers: Record<string, Reader> = {
  listPools: (db, { query }) => views.listPools(db, query),
  getPool: (db, { params }) => views.readPool(db, params.poolId!),
  getTimeline: (db, { params, query }) => views.readTimeline(db, params.poolId!, query),
  listLeases: (db, { query }) => views.listLeases(db, query),
  getLease: (db, { params }) => views.readLease(db, params.leaseId!.toLowerCase()),
  listLeaseEvents: (db, { params }) => views.listLeaseEvents(db, params.leaseId!.toLowerCase()),
  listWaiting: (db, { query }) => views.listWaiting(db, query),
  listEvents: (db, { query }) => views.listEvents(db, query),
  listWork: (db, { query }) => views.listWork(db, query),
  getSnapshot: (db) => views.readSnapshot(db),
};

interface Change {
  /** What the request asks for, in one spelling: the basis of the fingerprint. */
  meaning: object;
  effect: (tx: Tx) => Promise<Answer>;
}

type Writer = (given: Given, revision: number, token: string | undefined) => Change;

const writers: Record<string, Writer> = {
  createPool: ({ body }) => ({ meaning: body, effect: (tx) => createPool(tx, body as unknown as PoolCreate) }),
  changePool: ({ params, body }, revision) => ({
    meaning: { body, revision },
    effect: (tx) => changePool(tx, params.poolId!, revision, body as Partial<PoolCreate>),
  }),
  requestLease: ({ body }) => {
    const request = readRequest(body);
    return { meaning: request, effect: (tx) => requestLease(tx, request) };
  },
  confirmLease: onLease(confirmLease),
  releaseLease: onLease(releaseLease),
  cancelLease: onLease(cancelLease),
  renewLease: (given, revision, token) => {
    const endAt = parseInstant(given.body.endAt as string, "endAt");
    return onLease((tx, holder) => renewLease(tx, holder, endAt), { endAt })(given, revision, token);
  },
};

function onLease(effect: (tx: Tx, holder: Holder) => Promise<Answer>, meaning: object = {}): Writer {
  return ({ params }, revision, token) => {
    const leaseId = params.leaseId!.toLowerCase();
    return { meaning: { ...meaning, revision }, effect: (tx) => effect(tx, { leaseId, token, revision }) };
  };
}

export function buildApp(db: Db, adminToken: string): FastifyInstance {
  const app = fastify({ bodyLimit: 64 * 1024, forceCloseConnections: "idle", routerOptions: { maxParamLength: 512 } });
  app.removeContentTypeParser("text/plain");
  app.get("/healthz", async () => ({ status: "ok" }));
  app.get("/readyz", async () => readiness(db));
  app.get("/openapi.json", async (_request, reply) => reply.type("application/json").send(documentText));
  for (const [address, asset] of readAssets()) app.get(address, async (_request, reply) => reply.type(asset.type).send(asset.body));
  for (const operation of operations) {
    const { method, path: url, id, admin } = operation;
    const reader = readers[id];
    const writer = writers[id];
    if (!reader && !writer) continue;
    app.route({
      method,
      url,
      onRequest: async (request) => {
        if (admin) requireAdmin(request.headers.authorization, adminToken);
      },
      handler: (request, reply) => (reader ? read(db, operation, reader, request, reply) : write(db, operation, writer!, request, reply)),
    });
  }
  app.setNotFoundHandler(answerUnknownRoute);
  app.setErrorHandler((error, _request, reply) => answerFailure(error as Error & { code?: string; statusCode?: number }, reply));
  return app;
}

async function read(db: Db, operation: Operation, reader: Reader, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const result = await reader(db, validate(operation, request));
  if ("revision" in result) reply.header("etag", `"${String(result.revision)}"`);
  return reply.type("application/json").send(JSON.stringify(result));
}

async function write(db: Db, operation: Operation, writer: Writer, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const key = request.headers["idempotency-key"];
  if (typeof key !== "string" || !/^[!-~]{1,128}$/.test(key)) {
    throw new Refusal(400, "IDEMPOTENCY_KEY_REQUIRED", "an Idempotency-Key of 1 to 128 visible ASCII characters is needed");
  }
  const given = validate(operation, request);
  const conditional = operation.parameters.some((parameter) => parameter.name === "If-Match");
  const revision = conditional ? readRevision(request.headers["if-match"]) : 0;
  const token = request.headers["lease-token"];
  const change = writer(given, revision, typeof token === "string" ? token : undefined);
  const path = operation.path.replace(/:(\w+)/g, (_match, name: string) => given.params[name]!.toLowerCase());
  const answer = await once(db, { scope: `${operation.method} ${path}`, key, meaning: change.meaning }, change.effect);
  if (answer.replayed) reply.header("idempotency-replayed", "true");
  return reply.code(answer.status).header("etag", answer.etag).type("application/json").send(answer.body);
}

function readRevision(header: string | undefined): number {
  if (header === undefined) throw new Refusal(428, "PRECONDITION_REQUIRED", "If-Match with the revision is needed");
  const match = /^"([1-9][0-9]{0,8})"$/.exec(header);
  if (!match) throw invalid([{ field: "If-Match", issue: "is not a quoted revision" }]);
  return Number(match[1]);
}

function requireAdmin(header: string | undefined, adminToken: string): void {
  const hash = (text: string) => createHash("sha256").update(text).digest();
  if (!timingSafeEqual(hash(header ?? ""), hash(`Bearer ${adminToken}`))) {
    throw new Refusal(401, "ADMIN_AUTH_REQUIRED", "this operation needs the administrator's token");
  }
}

async function readiness(db: Db): Promise<object> {
  const late = new Promise<never>((_resolve, reject) => setTimeout(reject, 2500, new Error("no answer")).unref());
  try {
    await Promise.race([db.query("select 1"), late]);
  } catch {
    throw new Refusal(503, "NOT_READY", "the database does not answer");
  }
  return { status: "ready" };
}

const shapes = operations.map(({ method, path }) => ({ method, shape: new RegExp(`^${path.replace(/:\w+/g, "[^/]+")}$`) }));

async function answerUnknownRoute(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const path = request.url.split("?")[0]!;
  const allowed = shapes.filter(({ shape }) => shape.test(path)).map(({ method }) => method);
  const refusal = allowed.length
    ? new Refusal(405, "METHOD_NOT_ALLOWED", "this path has other methods")
    : new Refusal(404, "NOT_FOUND", "there is nothing here");
  if (allowed.length) reply.header("allow", allowed.join(", "));
  return reply.code(refusal.status).send(refusal.envelope());
}

async function answerFailure(error: Error & { code?: string; statusCode?: number }, reply: FastifyReply): Promise<FastifyReply> {
  const refusal = refusalOf(error);
  if (refusal.status >= 500 && !(error instanceof Refusal)) console.error(`api: ${error.message || error.code || "failed"}`);
  return reply.code(refusal.status).type("application/json").send(JSON.stringify(refusal.envelope()));
}

function refusalOf(error: Error & { code?: string; statusCode?: number }): Refusal {
  if (error instanceof Refusal) return error;
  const code = error.code ?? "";
  if (error.statusCode === 413) return new Refusal(413, "PAYLOAD_TOO_LARGE", "the body is larger than 64 KiB");
  if (error.statusCode === 415) return new Refusal(415, "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json");
  if (code.startsWith("FST_ERR_CTP") || error instanceof SyntaxError) return new Refusal(400, "MALFORMED_JSON", "the body is not JSON");
  if (error.statusCode === 400) return invalid([{ field: "", issue: "cannot be read" }]);
  // Cut connections and databases that start or stop; the request may be sent again with its key.
  if (/^(ECONN|ENOTFOUND|EPIPE|ETIMEDOUT|57P|08)/.test(code) || /connect|terminat/i.test(error.message)) {
    return new Refusal(503, "NOT_READY", "the database does not answer");
  }
  return new Refusal(500, "INTERNAL", "something went wrong");
}
