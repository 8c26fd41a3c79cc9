// The end-to-end test belongs here: a browser at $CHROMIUM_PATH, the production page, the real API and database.
import { test } from "node:test";

test("the page can be used", { todo: "not written yet" }, () => {});
