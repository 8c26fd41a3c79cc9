// A person with a browser: what is done on the page is found through the API, after the API was started again.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chromium, type Browser } from "playwright-core";
import { Api, at, freshDatabase } from "./harness.ts";

let api: Api;
let browser: Browser;

before(async () => {
  await freshDatabase();
  [api, browser] = await Promise.all([
    Api.start(),
    chromium.launch({ executablePath: process.env.CHROMIUM_PATH || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] }),
  ]);
});

after(async () => {
  await browser?.close();
  await api?.stop();
});

test("request, confirm, renew and release on the page reach the database", async () => {
  const poolId = await api.pool(2);
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  await page.goto(api.url);
  await page.getByText("No leases yet").waitFor();
  await page.getByLabel("Owner").fill("browser");
  await page.getByLabel("Pool 1").selectOption(poolId);
  await page.getByLabel("Units 1").fill("2");
  await page.getByLabel("Start (UTC)").fill(at(10).slice(0, 16));
  await page.getByLabel("End (UTC)", { exact: true }).fill(at(12).slice(0, 16));
  await page.getByRole("button", { name: "Request lease" }).click();
  await page.getByRole("status").filter({ hasText: "is now held" }).waitFor();

  const { items } = (await api.call("GET", "/api/v1/leases")).body;
  assert.equal(items.length, 1);
  const { leaseId } = items[0];
  assert.deepEqual([items[0].ownerId, items[0].members, items[0].startAt], ["browser", [{ poolId, units: 2 }], at(10)]);

  await page.getByRole("button", { name: `Confirm ${leaseId}` }).click();
  await page.getByRole("status").filter({ hasText: "is now confirmed" }).waitFor();
  await page.getByLabel(`New end (UTC) ${leaseId}`).fill(at(13).slice(0, 16));
  await page.getByRole("button", { name: `Renew ${leaseId}` }).click();
  await page.getByRole("row", { name: new RegExp(leaseId) }).getByText(at(13)).waitFor();

  const { port } = api;
  await api.stop();
  await page.getByRole("button", { name: `Release ${leaseId}` }).click();
  await page.getByRole("alert").filter({ hasText: "Cannot reach the server" }).waitFor();
  api = await Api.start(port);
  const lease = (await api.call("GET", `/api/v1/leases/${leaseId}`)).body;
  assert.deepEqual([lease.state, lease.endAt, lease.revision], ["confirmed", at(13), 3]);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("status").filter({ hasText: "is now released" }).waitFor();
  await page.reload();
  await page.getByRole("row", { name: new RegExp(leaseId) }).getByText("released").waitFor();
  const events = (await api.call("GET", `/api/v1/leases/${leaseId}/events`)).body.items.map((event: any) => event.type);
  assert.deepEqual(events, ["lease.held", "lease.confirmed", "lease.renewed", "lease.released"]);
});
