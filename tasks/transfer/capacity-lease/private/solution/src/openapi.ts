// The public contract as data: openapi.json is served as it is, and the routes are made from it.
import { readFileSync } from "node:fs";

export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  schema: Record<string, unknown>;
}

export interface Operation {
  id: string;
  method: string;
  path: string;
  parameters: Parameter[];
  bodySchema: string | null;
  admin: boolean;
}

interface Documented {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: { $ref: string } }> };
  security?: unknown[];
}

export interface Document {
  openapi: string;
  paths: Record<string, Record<string, Documented>>;
  components: { schemas: Record<string, object> };
}

export const documentText = readFileSync(new URL("../openapi.json", import.meta.url), "utf8");
export const document: Document = JSON.parse(documentText);

/** All operations; paths in the router's spelling (`/pools/:poolId`). */
export const operations: Operation[] = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, documented]) => ({
    id: documented.operationId,
    method: method.toUpperCase(),
    path: path.replace(/\{(\w+)\}/g, ":$1"),
    parameters: documented.parameters ?? [],
    bodySchema: documented.requestBody?.content["application/json"]?.schema.$ref ?? null,
    admin: documented.security !== undefined,
  })),
);
