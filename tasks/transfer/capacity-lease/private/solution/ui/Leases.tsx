import { useState } from "react";
import { change, fromField, tokenOf, type Change, type Lease, type Shown } from "./client.ts";

type Act = (request: Change) => Promise<boolean>;

const actions: Record<string, string[]> = {
  waiting: ["Cancel"],
  held: ["Confirm", "Cancel"],
  confirmed: ["Renew", "Release"],
  active: ["Renew", "Release"],
};

export function Leases({ leases, busy, act }: { leases: Lease[]; busy: boolean; act: Act }) {
  return (
    <section>
      <h2 id="leases-title">Leases</h2>
      {leases.length === 0 && <p>No leases yet</p>}
      <div className="scroll" tabIndex={0} role="group" aria-label="Leases, scrollable">
        <table aria-labelledby="leases-title">
          <thead>
            <tr>
              {["Lease", "Owner", "State", "Members", "Start", "End", "Revision", "Actions"].map((title) => (
                <th scope="col" key={title}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {leases.map((lease) => (
              <tr key={lease.leaseId}>
                <td>{lease.leaseId}</td>
                <td>{lease.ownerId}</td>
                <td>{lease.state}</td>
                <td>{lease.members.map(({ poolId, units }) => `${poolId}: ${units}`).join(", ")}</td>
                <td>{lease.startAt}</td>
                <td>{lease.endAt}</td>
                <td>{lease.revision}</td>
                <td>
                  <Actions lease={lease} busy={busy} act={act} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Actions({ lease, busy, act }: { lease: Lease; busy: boolean; act: Act }) {
  const [end, setEnd] = useState("");
  const token = tokenOf(lease.leaseId);
  const possible = actions[lease.state] ?? [];
  if (!token) return <span>Not yours</span>;

  function run(action: string) {
    const body = action === "Renew" ? { endAt: fromField(end) } : {};
    const headers = { "if-match": `"${lease.revision}"`, "lease-token": token! };
    void act(change(`/api/v1/leases/${lease.leaseId}/${action.toLowerCase()}`, body, headers));
  }

  return (
    <div className="buttons">
      {possible.includes("Renew") && (
        <input type="datetime-local" step={1} aria-label={`New end (UTC) ${lease.leaseId}`} value={end} onChange={(event) => setEnd(event.target.value)} />
      )}
      {possible.map((action) => (
        <button type="button" key={action} aria-label={`${action} ${lease.leaseId}`} onClick={() => run(action)} disabled={busy}>
          {action}
        </button>
      ))}
    </div>
  );
}

export function Waiting({ entries }: { entries: Shown["waiting"] }) {
  return (
    <section>
      <h2 id="waiting-title">Waiting list</h2>
      <div className="scroll" tabIndex={0} role="group" aria-label="Waiting list, scrollable">
        <table aria-labelledby="waiting-title">
          <thead>
            <tr>
              {["Position", "Lease", "Owner", "Priority", "Bypasses"].map((title) => (
                <th scope="col" key={title}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {entries.map(({ position, lease }) => (
              <tr key={lease.leaseId}>
                <td>{position}</td>
                <td>{lease.leaseId}</td>
                <td>{lease.ownerId}</td>
                <td>{lease.priority}</td>
                <td>{lease.bypassCount}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
