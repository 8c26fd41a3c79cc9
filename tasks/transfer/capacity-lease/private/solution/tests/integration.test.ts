// The real programs on the real database. Whatever is written is read back, from another process where there is one.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Api, at, eventually, freshDatabase, seed, soon, startReceiver, Worker, type Held } from "./harness.ts";

let one: Api;
let two: Api;

before(async () => {
  await freshDatabase();
  [one, two] = await Promise.all([Api.start(), Api.start()]);
});

after(async () => {
  await Promise.all([one, two].map((api) => api?.stop()));
});

const ask = (poolId: string, units: number, more: object = {}) => ({ ownerId: "tester", poolId, units, startAt: at(10), endAt: at(12), ...more });

async function hold(poolId: string, units: number, more: object = {}, status = 201): Promise<Held> {
  const made = await one.call("POST", "/api/v1/leases", ask(poolId, units, more));
  assert.equal(made.status, status, made.text);
  assert.deepEqual((await two.call("GET", `/api/v1/leases/${made.body.lease.leaseId}`)).body, made.body.lease);
  return made.body;
}

/** Act through one process, and find the outcome through the other. */
async function act(held: Held, action: string, body: object = {}): Promise<Held> {
  const answer = await one.act(held, action, body);
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual((await two.call("GET", `/api/v1/leases/${held.lease.leaseId}`)).body, answer.body);
  return { ...held, lease: answer.body };
}

async function eventsOf(held: Held): Promise<string[]> {
  const { body } = await two.call("GET", `/api/v1/leases/${held.lease.leaseId}/events`);
  return body.items.map((event: any) => `${event.type} ${event.revision}`);
}

test("the life of a lease: held, confirmed, renewed, released", async () => {
  const poolId = await one.pool(3);
  let held = await hold(poolId, 3);
  held = await act(held, "confirm");
  held = await act(held, "renew", { endAt: at(14) });
  assert.equal(held.lease.endAt, at(14));
  held = await act(held, "release");
  assert.deepEqual(await eventsOf(held), ["lease.held 1", "lease.confirmed 2", "lease.renewed 3", "lease.released 4"]);
  const { work } = await two.snapshot();
  const own = work.filter((item: any) => item.aggregateId === held.lease.leaseId);
  assert.deepEqual(new Set(own.map((item: any) => item.state)), new Set(["cancelled"]));
  assert.equal((await one.act(held, "release")).body.error.code, "INVALID_STATE");
});

test("capacity is the peak at an instant, and intervals are half-open", async () => {
  const poolId = await one.pool(5);
  await hold(poolId, 3, { startAt: at(8), endAt: at(10) });
  await hold(poolId, 4, { startAt: at(12), endAt: at(14) });
  await hold(poolId, 1, { startAt: at(8), endAt: at(14) });
  await hold(poolId, 4, { startAt: at(10), endAt: at(12) });
  const full = await one.call("POST", "/api/v1/leases", ask(poolId, 1, { startAt: at(11), endAt: at(13), wait: false }));
  assert.equal(full.body.error.code, "CAPACITY_UNAVAILABLE");
  const { body } = await two.call("GET", `/api/v1/pools/${poolId}/timeline?from=${at(8)}&to=${at(15)}`);
  assert.deepEqual(
    body.slices.map((slice: any) => [slice.startAt, slice.usedUnits, slice.availableUnits]),
    [
      [at(8), 4, 1],
      [at(10), 5, 0],
      [at(14), 0, 5],
    ],
  );
});

test("a gang is granted in all of its pools or in none", async () => {
  const [a, b] = [await one.pool(2), await one.pool(1)];
  const members = (units: number) => ({ poolId: undefined, units: undefined, members: [{ poolId: b, units: 1 }, { poolId: a, units }] });
  await hold(a, 1, members(1));
  await hold(a, 1, members(1), 202);
  await hold(a, 1, { wait: false });
});

test("one key sent 32 times over two processes has one effect", async () => {
  const poolId = await one.pool(100);
  const headers = { "idempotency-key": randomUUID() };
  const sent = Array.from({ length: 32 }, (_item, index) => (index % 2 ? one : two).call("POST", "/api/v1/leases", ask(poolId, 1), headers));
  const answers = await Promise.all(sent);
  assert.deepEqual(new Set(answers.map((answer) => answer.status)), new Set([201]));
  assert.equal(new Set(answers.map((answer) => answer.text)).size, 1);
  const { resources, events } = await two.snapshot();
  const made = resources.leases.filter((lease: any) => lease.members[0].poolId === poolId);
  assert.deepEqual(made.map((lease: any) => lease.leaseId), [answers[0]!.body.lease.leaseId]);
  assert.equal(events.filter((event: any) => event.aggregateId === made[0].leaseId).length, 1);
  const other = await one.call("POST", "/api/v1/leases", ask(poolId, 2), headers);
  assert.equal(other.body.error.code, "IDEMPOTENCY_KEY_REUSED");
});

test("different keys cannot take more than there is", async () => {
  const poolId = await one.pool(5);
  const sent = Array.from({ length: 20 }, (_item, index) => (index % 2 ? one : two).call("POST", "/api/v1/leases", ask(poolId, 1, { wait: false })));
  const states = (await Promise.all(sent)).map((answer) => answer.status);
  assert.equal(states.filter((status) => status === 201).length, 5);
  assert.equal(states.filter((status) => status === 409).length, 15);
  const { resources } = await two.snapshot();
  assert.equal(resources.leases.filter((lease: any) => lease.members[0].poolId === poolId).length, 5);
});

test("of two changes of one revision, one wins", async () => {
  const held = await hold(await one.pool(1), 1);
  const answers = await Promise.all([one.act(held, "confirm"), two.act(held, "cancel")]);
  assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 412]);
  assert.equal((await eventsOf(held)).length, 2);
});

test("a worker that is killed while it asks is replaced, and the lease becomes active once", async () => {
  const provider = await startReceiver(async (_question, count) => {
    if (count === 1) await new Promise(() => {});
    return { status: 200, body: { grant: `grant-${count}` } };
  });
  const held = await act(await hold(await one.pool(1), 1, { startAt: soon(0), endAt: soon(3600) }), "confirm");
  const first = new Worker({ ADMISSION_URL: provider.url });
  await eventually("the first worker asks", async () => provider.seen.length === 1);
  await first.kill();
  assert.equal((await one.call("GET", `/api/v1/leases/${held.lease.leaseId}`)).body.state, "confirmed");
  const second = new Worker({ ADMISSION_URL: provider.url });
  await eventually("the lease is active", async () => (await one.call("GET", `/api/v1/leases/${held.lease.leaseId}`)).body.state === "active");
  await second.stop();
  provider.close();
  assert.deepEqual(await eventsOf(held), ["lease.held 1", "lease.confirmed 2", "lease.activated 3"]);
  assert.equal((await two.call("GET", `/api/v1/leases/${held.lease.leaseId}`)).body.grant, "grant-2");
  const { work } = await two.snapshot();
  const activation = work.find((item: any) => item.aggregateId === held.lease.leaseId && item.kind === "lease.activate");
  assert.deepEqual([activation.state, activation.attempt], ["succeeded", 2]);
});

test("holds expire, the queue moves by priority, and events arrive in order although the receiver refuses first", async () => {
  const receiver = await startReceiver(async (_event, count) => ({ status: count <= 2 ? 503 : 204 }));
  const poolId = await one.pool(1);
  const first = await hold(poolId, 1, { holdSeconds: 1 });
  const low = await hold(poolId, 1, {}, 202);
  const high = await hold(poolId, 1, { priority: 5 }, 202);
  const queue = (await two.call("GET", `/api/v1/waiting?poolId=${poolId}`)).body.items.map((item: any) => item.lease.leaseId);
  assert.deepEqual(queue, [high.lease.leaseId, low.lease.leaseId]);
  const worker = new Worker({ WEBHOOK_URL: receiver.url });
  await eventually("the important one is promoted", async () => (await one.call("GET", `/api/v1/leases/${high.lease.leaseId}`)).body.state === "held");
  assert.deepEqual(await eventsOf(first), ["lease.held 1", "lease.expired 2"]);
  assert.deepEqual(await eventsOf(high), ["lease.queued 1", "lease.promoted 2"]);
  assert.deepEqual(await eventsOf(low), ["lease.queued 1"]);
  await eventually("every event is delivered", async () => (await two.snapshot()).events.every((event: any) => event.delivery.state === "delivered"));
  await worker.stop();
  receiver.close();
  const stored = (await two.snapshot()).events.map(({ delivery: _delivery, ...event }: any) => event);
  assert.deepEqual(stored.map((event: any) => event.sequence), stored.map((_event: any, index: number) => index + 1));
  const unique = [...new Map(receiver.seen.map((event) => [event.eventId, event])).values()];
  assert.deepEqual(unique.toSorted((a, b) => a.sequence - b.sequence), stored);
  const order = receiver.seen.filter((event) => event.aggregateId === high.lease.leaseId).map((event) => event.revision);
  assert.deepEqual(order, order.toSorted());
});

test("a waiting lease is bypassed three times at most, and then has its turn", async () => {
  const poolId = await one.pool(2);
  const first = await hold(poolId, 1);
  const patient = await hold(poolId, 2, {}, 202);
  for (const turn of [1, 2, 3]) {
    await act(await hold(poolId, 1), "cancel");
    assert.equal((await two.call("GET", `/api/v1/leases/${patient.lease.leaseId}`)).body.bypassCount, turn);
  }
  const late = await hold(poolId, 1, {}, 202);
  await hold(poolId, 1, { startAt: at(12), endAt: at(13) });
  await act(first, "cancel");
  const worker = new Worker();
  const stateOf = async (held: Held) => (await one.call("GET", `/api/v1/leases/${held.lease.leaseId}`)).body.state;
  await eventually("the patient one is promoted", async () => (await stateOf(patient)) === "held");
  assert.equal(await stateOf(late), "waiting");
  const promoted = (await one.call("GET", `/api/v1/leases/${patient.lease.leaseId}`)).body;
  await act({ ...patient, lease: promoted }, "cancel");
  await eventually("the late one is promoted", async () => (await stateOf(late)) === "held");
  await worker.stop();
});

test("an import is all or nothing, and may be repeated", async () => {
  const folder = mkdtempSync(join(tmpdir(), "seed-"));
  const poolId = `seed-${randomUUID()}`.slice(0, 40);
  const lease = { leaseId: randomUUID(), leaseToken: randomUUID(), ownerId: "imported", members: [{ poolId, units: 2 }], startAt: at(1), endAt: at(2), priority: 0 };
  const write = (name: string, document: object) => {
    writeFileSync(join(folder, name), JSON.stringify(document));
    return join(folder, name);
  };
  const pools = [{ poolId, name: "Imported", capacity: 3 }];
  assert.equal(await seed(write("crowded.json", { pools, leases: [lease, { ...lease, leaseId: randomUUID() }] })), 1);
  assert.equal((await one.call("GET", `/api/v1/pools/${poolId}`)).status, 404);
  const good = write("good.json", { pools, leases: [lease] });
  assert.equal(await seed(good), 0);
  await act({ lease: (await one.call("GET", `/api/v1/leases/${lease.leaseId}`)).body, leaseToken: lease.leaseToken }, "release");
  assert.equal(await seed(good), 0);
  const { items } = (await two.call("GET", `/api/v1/leases/${lease.leaseId}/events`)).body;
  assert.deepEqual(items.map((event: any) => event.type), ["lease.imported", "lease.released"]);
});
