// The HTTP application. Health, the document and the page work; everything else waits for you.
import fastify, { type FastifyInstance } from "fastify";
import { readAssets } from "./assets.ts";
import { Refusal } from "./errors.ts";
import { documentText, operations } from "./openapi.ts";

export function buildApp(): FastifyInstance {
  const app = fastify({ bodyLimit: 64 * 1024 });
  app.get("/healthz", async () => ({ status: "ok" }));
  app.get("/openapi.json", async (_request, reply) => reply.type("application/json").send(documentText));
  for (const [address, asset] of readAssets()) {
    app.get(address, async (_request, reply) => reply.type(asset.type).send(asset.body));
  }
  for (const { method, path } of operations) {
    if (app.hasRoute({ method, url: path })) continue;
    app.route({
      method,
      url: path,
      handler: async () => {
        throw new Refusal(501, "NOT_IMPLEMENTED", "not implemented yet");
      },
    });
  }
  app.setErrorHandler(async (error, _request, reply) => {
    const refusal = error instanceof Refusal ? error : new Refusal(500, "INTERNAL", "something went wrong");
    return reply.code(refusal.status).send(refusal.envelope());
  });
  return app;
}
