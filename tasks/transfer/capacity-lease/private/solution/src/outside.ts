// Calls that leave the process: the admission provider and the webhook. Answers are hostile until read.
import type { LeaseRow } from "./rows.ts";
import type { Claim } from "./work.ts";

const largest = 64 * 1024;

/** Ask for the grant of one activation; anything but a proper grant is an error. */
export async function askAdmission(url: string, claim: Claim, lease: LeaseRow, signal: AbortSignal): Promise<string> {
  const question = {
    workId: claim.work_id,
    leaseId: claim.aggregate_id,
    attempt: claim.attempt,
    members: lease.members,
    startAt: lease.start_at,
    endAt: lease.end_at,
  };
  const answer = await post(url, { "idempotency-key": claim.work_id }, JSON.stringify(question), 30, signal);
  if (answer.status !== 200) throw new Error(`the admission provider answered ${answer.status}`);
  const { grant } = JSON.parse(answer.text) as { grant?: unknown };
  if (typeof grant !== "string" || grant.length < 1 || grant.length > 128) throw new Error("the admission provider's answer is no grant");
  return grant;
}

export async function post(url: string, headers: Record<string, string>, body: string, seconds: number, signal: AbortSignal) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
    redirect: "manual",
    signal: AbortSignal.any([signal, AbortSignal.timeout(seconds * 1000)]),
  });
  return { status: response.status, text: await readBounded(response) };
}

async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > largest) throw new Error("the answer is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
