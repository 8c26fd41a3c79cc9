// The production build of the user interface, read into memory once.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

export interface Asset {
  type: string;
  body: Buffer;
}

/** Files of `dist/` by address; the page itself is `/`. */
export function readAssets(): Map<string, Asset> {
  const root = fileURLToPath(new URL("../dist/", import.meta.url));
  if (!existsSync(root)) throw new Error("dist/ is missing: run `npm run build` first");
  const found = new Map<string, Asset>();
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const address = "/" + path.slice(root.length);
    found.set(address === "/index.html" ? "/" : address, {
      type: types[extname(path)] ?? "application/octet-stream",
      body: readFileSync(path),
    });
  }
  return found;
}
