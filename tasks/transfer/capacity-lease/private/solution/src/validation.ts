// Requests against the document: one compiled validator per body and per set of parameters.
import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";
import { Refusal } from "./errors.ts";
import { document, operations, type Operation } from "./openapi.ts";

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const options = { strict: false, allErrors: true, useDefaults: true, formats: { uuid, "date-time": true as const } };
const strict = new Ajv2020(options).addSchema(document, "contract");
// Addresses carry texts only: there, and only there, "20" is the number 20.
const lenient = new Ajv2020({ ...options, coerceTypes: true }).addSchema(document, "contract");

const bodies = new Map<string, ValidateFunction>();
const queries = new Map<string, ValidateFunction>();
const paths = new Map<string, ValidateFunction>();
for (const operation of operations) {
  if (operation.bodySchema) bodies.set(operation.id, strict.compile({ $ref: `contract${operation.bodySchema}` }));
  queries.set(operation.id, lenient.compile(parametersSchema(operation, "query")));
  paths.set(operation.id, lenient.compile(parametersSchema(operation, "path")));
}

function parametersSchema(operation: Operation, place: "query" | "path"): object {
  const own = operation.parameters.filter((parameter) => parameter.in === place);
  return {
    type: "object",
    additionalProperties: false,
    required: own.filter((parameter) => parameter.required).map((parameter) => parameter.name),
    properties: Object.fromEntries(own.map(({ name, schema }) => [name, absolute(schema)])),
  };
}

/** References of a parameter's schema, seen from outside the document. */
function absolute(schema: Record<string, unknown>): object {
  return typeof schema.$ref === "string" ? { $ref: `contract${schema.$ref}` } : schema;
}

export interface Given {
  params: Record<string, string>;
  query: Record<string, unknown>;
  body: Record<string, unknown>;
}

/** Check a request's parts; the parts come back with defaults filled in. */
export function validate(operation: Operation, given: { params: unknown; query: unknown; body: unknown }): Given {
  const params = { ...(given.params as Given["params"]) };
  const query = { ...(given.query as Given["query"]) };
  check(paths.get(operation.id)!, params);
  check(queries.get(operation.id)!, query);
  const body = bodies.get(operation.id);
  if (body) check(body, given.body ?? null);
  else if (given.body !== undefined) throw invalid([{ field: "", issue: "this operation takes no body" }]);
  return { params, query, body: (given.body ?? {}) as Given["body"] };
}

function check(validator: ValidateFunction, value: unknown): void {
  if (!validator(value)) throw invalid((validator.errors ?? []).slice(0, 20).map(detailOf));
}

function detailOf(error: ErrorObject) {
  const extra = (error.params.additionalProperty ?? error.params.missingProperty ?? "") as string;
  return { field: [...error.instancePath.split("/").slice(1), ...(extra ? [extra] : [])].join("."), issue: error.message ?? "is not valid" };
}

export function invalid(details: { field: string; issue: string }[]): Refusal {
  return new Refusal(400, "INVALID_REQUEST", "the request is not valid", details);
}
