// Opaque cursors: where a page ended, bound to the list and its filters.
import { createHash } from "node:crypto";
import { Refusal } from "./errors.ts";

export function writeCursor(list: string, filters: object, after: string): string {
  return Buffer.from(JSON.stringify([after, seal(list, filters, after)])).toString("base64url");
}

/** The number after which the page begins; undefined for the first page. */
export function readCursor(list: string, filters: object, cursor: string | undefined): string | undefined {
  if (cursor === undefined) return undefined;
  try {
    const [after, sealed] = JSON.parse(Buffer.from(cursor, "base64url").toString("utf8")) as [unknown, unknown];
    if (typeof after === "string" && sealed === seal(list, filters, after) && cursor === writeCursor(list, filters, after)) return after;
  } catch {
    // not even JSON: the same refusal
  }
  throw new Refusal(400, "INVALID_CURSOR", "this cursor does not belong to this list");
}

/** Not a secret, a check: a cursor of another list or other filters is refused. */
function seal(list: string, filters: object, after: string): string {
  return createHash("sha256").update(JSON.stringify([list, filters, after])).digest("base64url").slice(0, 12);
}
