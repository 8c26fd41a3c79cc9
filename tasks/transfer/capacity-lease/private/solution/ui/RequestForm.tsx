import { useState, type FormEvent, type ReactNode } from "react";
import { change, fromField, type Change, type Pool } from "./client.ts";

const most = 10;

/** The form keeps what was typed, whatever became of the request. */
export function RequestForm({ pools, busy, act }: { pools: Pool[]; busy: boolean; act: (request: Change) => Promise<boolean> }) {
  const [count, setCount] = useState(1);
  const rows = Array.from({ length: count }, (_row, index) => index + 1);

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const data = new FormData(event.currentTarget);
    const text = (name: string) => String(data.get(name) ?? "");
    void act(
      change("/api/v1/leases", {
        ownerId: text("owner"),
        members: rows.map((row) => ({ poolId: text(`pool-${row}`), units: Number(text(`units-${row}`)) })),
        startAt: fromField(text("start")),
        endAt: fromField(text("end")),
        priority: Number(text("priority")),
        holdSeconds: Number(text("hold")),
      }),
    );
  }

  return (
    <form aria-labelledby="request-title" onSubmit={submit}>
      <h2 id="request-title">Request a lease</h2>
      <Field name="owner" label="Owner">
        <input id="owner" name="owner" required maxLength={64} autoComplete="off" />
      </Field>
      {rows.map((row) => (
        <div className="pair" key={row}>
          <Field name={`pool-${row}`} label={`Pool ${row}`}>
            <select id={`pool-${row}`} name={`pool-${row}`} required>
              {pools.map(({ poolId }) => (
                <option key={poolId} value={poolId}>
                  {poolId}
                </option>
              ))}
            </select>
          </Field>
          <Field name={`units-${row}`} label={`Units ${row}`}>
            <input id={`units-${row}`} name={`units-${row}`} type="number" min={1} max={1000000} required defaultValue={1} />
          </Field>
        </div>
      ))}
      <Field name="start" label="Start (UTC)">
        <input id="start" name="start" type="datetime-local" step={1} required />
      </Field>
      <Field name="end" label="End (UTC)">
        <input id="end" name="end" type="datetime-local" step={1} required />
      </Field>
      <Field name="priority" label="Priority">
        <input id="priority" name="priority" type="number" min={0} max={9} required defaultValue={0} />
      </Field>
      <Field name="hold" label="Hold seconds">
        <input id="hold" name="hold" type="number" min={1} max={3600} required defaultValue={300} />
      </Field>
      <div className="buttons">
        <button type="button" onClick={() => setCount(count + 1)} disabled={count >= most}>
          Add pool
        </button>
        <button type="button" onClick={() => setCount(count - 1)} disabled={count <= 1}>
          Remove pool
        </button>
        <button type="submit" disabled={busy}>
          Request lease
        </button>
      </div>
    </form>
  );
}

/** A label beside its control, not around it: the options of a select are no part of its name. */
function Field({ name, label, children }: { name: string; label: string; children: ReactNode }) {
  return (
    <div className="field">
      <label htmlFor={name}>{label}</label>
      {children}
    </div>
  );
}
