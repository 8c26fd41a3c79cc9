import { defineConfig } from "vite";

export default defineConfig({
  root: "ui",
  base: "/",
  cacheDir: "../node_modules/.vite",
  build: { outDir: "../dist", emptyOutDir: true },
});
