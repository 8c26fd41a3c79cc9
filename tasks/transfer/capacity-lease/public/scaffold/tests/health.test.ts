// An example of a test; section 12 of the contract says what yours have to prove.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operations } from "../src/openapi.ts";

test("the document describes the operations", () => {
  assert.equal(operations.length, 21);
});
