import { useCallback, useEffect, useState } from "react";
import { keepToken, readAll, Refused, send, Unreachable, type Change, type Lease, type Shown } from "./client.ts";
import { Leases, Waiting } from "./Leases.tsx";
import { RequestForm } from "./RequestForm.tsx";

interface Problem {
  text: string;
  again?: () => void;
}

const outdated = ["REVISION_MISMATCH", "INVALID_STATE"];

export function App() {
  const [shown, setShown] = useState<Shown | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [success, setSuccess] = useState("");
  const [busy, setBusy] = useState(false);

  const refresh = useCallback(async (): Promise<boolean> => {
    try {
      setShown(await readAll());
      return true;
    } catch (error) {
      setProblem(problemOf(error, () => void refreshAnew()));
      return false;
    }
  }, []);

  const refreshAnew = useCallback(async () => {
    setProblem(null);
    setSuccess("");
    await refresh();
  }, [refresh]);

  useEffect(() => void refresh(), [refresh]);

  /** Send one change, then read what has become of it; true when it was accepted. */
  async function act(request: Change): Promise<boolean> {
    setBusy(true);
    setProblem(null);
    setSuccess("");
    try {
      const answer = await send<Lease | { lease: Lease; leaseToken: string }>(request);
      const lease = "lease" in answer ? answer.lease : answer;
      if ("leaseToken" in answer) keepToken(lease.leaseId, answer.leaseToken);
      if (await refresh()) setSuccess(`Lease ${lease.leaseId} is now ${lease.state}.`);
      return true;
    } catch (error) {
      setProblem(problemOf(error, () => void act(request)));
      if (error instanceof Refused && outdated.includes(error.code)) await refresh();
      return false;
    } finally {
      setBusy(false);
    }
  }

  return (
    <main>
      <header>
        <h1>CapacityLease</h1>
        <button type="button" onClick={() => void refreshAnew()} disabled={busy}>
          Refresh
        </button>
      </header>
      {problem && (
        <div role="alert">
          <span>{problem.text}</span>
          {problem.again && (
            <button type="button" onClick={problem.again}>
              Try again
            </button>
          )}
        </div>
      )}
      <div role="status">{shown === null && problem === null ? "Loading" : success}</div>
      <RequestForm pools={shown?.pools ?? []} busy={busy} act={act} />
      {shown && <Leases leases={shown.leases} busy={busy} act={act} />}
      {shown && <Waiting entries={shown.waiting} />}
    </main>
  );
}

function problemOf(error: unknown, again: () => void): Problem {
  if (error instanceof Refused) return { text: `${error.code}: ${error.message}` };
  if (error instanceof Unreachable) return { text: "Cannot reach the server", again };
  return { text: "The server's answer could not be read" };
}
