// The arithmetic of capacity, without anything else.
import assert from "node:assert/strict";
import { test } from "node:test";
import { peakOf, slicesOf, type Booking } from "../src/capacity.ts";
import { parseInstant } from "../src/time.ts";

const t = (minute: number) => new Date(Date.UTC(2030, 0, 1, 0, minute));
const booking = (start: number, end: number, units: number): Booking => ({ start: t(start), end: t(end), units });

test("the peak is what meets at an instant, not what overlaps the interval", () => {
  const bookings = [booking(0, 10, 3), booking(10, 20, 4), booking(15, 30, 2)];
  assert.equal(peakOf(bookings, { start: t(0), end: t(30) }), 6);
  assert.equal(peakOf(bookings, { start: t(0), end: t(15) }), 4);
  assert.equal(peakOf(bookings, { start: t(30), end: t(40) }), 0);
});

test("slices cover the interval, and neighbours differ", () => {
  const slices = slicesOf([booking(0, 10, 3), booking(10, 20, 3)], { start: t(5), end: t(30) });
  assert.deepEqual(slices, [
    { start: t(5), end: t(20), used: 3 },
    { start: t(20), end: t(30), used: 0 },
  ]);
});

test("a date that does not exist is refused", () => {
  assert.equal(parseInstant("2028-02-29T23:00:00+02:00", "x").toISOString(), "2028-02-29T21:00:00.000Z");
  for (const text of ["2030-02-29T00:00:00Z", "2030-01-01T24:00:00Z", "2030-01-01T00:00:60Z", "2030-01-01", "2030-01-01T00:00:00.1234Z"]) {
    assert.throws(() => parseInstant(text, "x"), /not valid/);
  }
});
