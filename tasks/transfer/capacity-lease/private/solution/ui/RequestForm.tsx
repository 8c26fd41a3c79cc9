import { useState, type FormEvent } from "react";
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
      <label>
        Owner
        <input name="owner" required maxLength={64} autoComplete="off" />
      </label>
      {rows.map((row) => (
        <div className="pair" key={row}>
          <label>
            {`Pool ${row}`}
            <select name={`pool-${row}`} required>
              {pools.map(({ poolId }) => (
                <option key={poolId} value={poolId}>
                  {poolId}
                </option>
              ))}
            </select>
          </label>
          <label>
            {`Units ${row}`}
            <input name={`units-${row}`} type="number" min={1} max={1000000} required defaultValue={1} />
          </label>
        </div>
      ))}
      <label>
        Start (UTC)
        <input name="start" type="datetime-local" step={1} required />
      </label>
      <label>
        End (UTC)
        <input name="end" type="datetime-local" step={1} required />
      </label>
      <label>
        Priority
        <input name="priority" type="number" min={0} max={9} required defaultValue={0} />
      </label>
      <label>
        Hold seconds
        <input name="hold" type="number" min={1} max={3600} required defaultValue={300} />
      </label>
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
