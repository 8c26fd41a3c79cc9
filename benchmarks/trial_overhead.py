"""What a trial costs beyond its work, on the cluster of KUBECONFIG where Proctor is installed.

    python -m benchmarks.trial_overhead [--runs 3]

Side by side in one run: the same pods started bare (their containers do nothing), and whole trials of the nop arm.
Prints times, the operator's API calls by verb, everybody else's calls on its behalf, and the operator's memory.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import httpx2

from controller.cluster import Kind
from tests.e2e import objects
from tests.e2e.installation import RUNS, SYSTEM, Installation, forwarded, refs
from tests.e2e.kubectl import Kubectl, Object, fetched, until
from wire.names import LABEL_ROLE, LABEL_TIER, TIER_DRIVER

PROBE_PORT = 8082
DRIVERS = ("session", "gate", "evaluate")


@dataclass
class Watched:
    """When objects appeared and reached their states, by this machine's clock."""

    made: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    last: dict[str, Object] = field(default_factory=dict)

    def see(self, body: Object, now: float) -> None:
        """Take note of a pod's state."""
        name, status = body["metadata"]["name"], body.get("status", {})
        self.last[name] = body
        self.made.setdefault(name, now)
        conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
        if conditions.get("Ready") == "True":
            self.ready.setdefault(name, now)
        if status.get("phase") in {"Succeeded", "Failed"}:
            self.ended.setdefault(name, now)

    def of_role(self, role: str) -> list[str]:
        """Return the names of the pods of a role."""
        return [name for name, body in self.last.items() if body["metadata"]["labels"].get(LABEL_ROLE) == role]


@contextmanager
def watching(kubectl: Kubectl, selector: str) -> Iterator[Watched]:
    """Watch pods in the background for as long as the block lasts."""
    argv = [
        fetched("kubectl"), f"--kubeconfig={kubectl.kubeconfig}", f"--namespace={kubectl.namespace}", "get", "pods",
        f"--selector={selector}", "--watch", "--output=json",
    ]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    watched = Watched()

    def follow() -> None:
        assert process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        for line in process.stdout:
            text += line
            if line.rstrip() == "}":
                body, _ = decoder.raw_decode(text)
                text = ""
                watched.see(body, monotonic())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        process.terminate()
        process.wait()
        thread.join(5)


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """One whole trial."""

    seconds: float
    work_seconds: float
    """What its drivers ran, container start to container end, by the kubelet's clock."""
    driver_count: int
    operator_calls: Counter[str]
    other_calls: Counter[str]


def whole_trial(proctor: Installation, idle: Counter[str]) -> TrialCost:
    """Run one trial of the nop arm and take stock."""
    name = f"cost-{uuid4().hex[:6]}"
    before, all_before = operator_calls(proctor), server_calls(proctor)
    began = monotonic()
    with watching(proctor.runs, f"proctor.dev/run={name},{LABEL_TIER}={TIER_DRIVER}") as pods:
        proctor.runs.apply(objects.run(name))
        created = until("the trial is made", lambda: monotonic() if proctor.trials(name) else None, 60, 0.1)
        proctor.runs(
            "wait", "--for=jsonpath={.status.phase}=Graded", "bmt", "--all", "--timeout=600s", timeout_seconds=620
        )
        graded = monotonic()
    proctor.wait(name)
    took = monotonic() - began
    ours = operator_calls(proctor) - before
    everyone = server_calls(proctor) - all_before
    lease = Counter({key: count for key, count in ours.items() if key.endswith(" Lease")})
    expected_idle = Counter({verb: round(per_minute * took / 60) for verb, per_minute in idle.items()})
    work = sum(_ran(pods.last[pod]) for role in DRIVERS for pod in pods.of_role(role))
    proctor.delete(name)
    return TrialCost(
        seconds=graded - created,
        work_seconds=work,
        driver_count=len(pods.last),
        # The Lease is renewed by the clock, trial or no trial.
        operator_calls=ours - lease,
        other_calls=everyone - _as_server_counts(ours) - expected_idle,
    )


def _ran(pod: Object) -> float:
    """Return how long a driver's containers ran."""
    ends = [box["state"].get("terminated") for box in pod["status"].get("containerStatuses", [])]
    spans = [(one["startedAt"], one["finishedAt"]) for one in ends if one]
    if not spans:
        return 0.0
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def bare_pods(proctor: Installation) -> float:
    """Start the trial's pods with nothing to do, pair after pair as in a trial; the sum of created → finished."""
    return sum(_bare_pair(proctor, role) for role in DRIVERS)


def _bare_pair(proctor: Installation, role: str) -> float:
    name, image = f"bare-{role}-{uuid4().hex[:5]}", proctor.images["sandbox"]
    began = monotonic()
    proctor.runs("create", "-f", "-", given=_bare(f"{name}-untrusted", image, ["sleep", "600"]))
    until("it has an address", lambda: proctor.runs.get("pod", f"{name}-untrusted")["status"].get("podIP"), 60, 0.1)
    pod = _bare(name, image, ["true"])
    proctor.runs("create", "-f", "-", given=_job(pod) if role == "evaluate" else pod)
    done = "condition=Complete" if role == "evaluate" else "jsonpath={.status.phase}=Succeeded"
    target = f"job/{name}" if role == "evaluate" else f"pod/{name}"
    proctor.runs("wait", f"--for={done}", target, "--timeout=60s")
    took = monotonic() - began
    proctor.runs("delete", target, f"pod/{name}-untrusted", "--grace-period=0", "--force", "--wait=false")
    return took


def _bare(name: str, image: str, command: list[str]) -> Object:
    box = {"name": "box", "image": image, "imagePullPolicy": "IfNotPresent", "command": command}
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [box]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _job(pod: Object) -> Object:
    spec = {"completions": 1, "completionMode": "Indexed", "backoffLimit": 0, "template": {"spec": pod["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": pod["metadata"], "spec": spec}


def operator_calls(proctor: Installation) -> Counter[str]:
    """Return the operator's own count of its API calls, by verb and kind."""
    # The kubelet forwards from the pod's own node, which no policy shuts out.
    with forwarded(proctor.system, "deployment/proctor-operator", PROBE_PORT) as url:
        text = httpx2.get(f"{url}/metrics").text
    return _counted(text, "proctor_api_calls_total", ("verb", "kind"))


def server_calls(proctor: Installation) -> Counter[str]:
    """Return everybody's requests as the API server counts them, by verb and resource; watches left out."""
    text = proctor.system("get", "--raw=/metrics")
    found = _counted(text, "apiserver_request_total", ("verb", "resource"))
    return Counter({key: count for key, count in found.items() if not key.startswith(("WATCH", "CONNECT"))})


def _as_server_counts(ours: Counter[str]) -> Counter[str]:
    """Return the operator's calls under the server's names for verbs and resources."""
    verbs = {"create": "POST", "delete": "DELETE", "get": "GET", "patch": "PATCH", "list": "LIST"}
    found: Counter[str] = Counter()
    for key, count in ours.items():
        verb, kind = key.split(" ")
        found[f"{verbs[verb]} {Kind[kind].plural}"] += count
    return found


def _counted(text: str, metric: str, labels: tuple[str, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith(metric + "{"):
            told = dict(re.findall(r'(\w+)="([^"]*)"', line))
            found[" ".join(told.get(label, "") for label in labels)] += int(float(line.rsplit(" ", 1)[1]))
    return found


def idle_calls(proctor: Installation, seconds: float = 30) -> Counter[str]:
    """Return what the server is asked per minute while nothing runs."""
    before = server_calls(proctor)
    sleep(seconds)
    return Counter({verb: round(count * 60 / seconds) for verb, count in (server_calls(proctor) - before).items()})


def memory_mib(proctor: Installation) -> float:
    """Return the operator's resident memory."""
    script = "import glob\nprint(sum(int(l.split()[1]) for f in glob.glob('/proc/[0-9]*/status') for l in open(f)"
    script += " if l.startswith('VmRSS') and 'controller' in open(f.replace('status','cmdline')).read()))"
    return int(proctor.system("exec", "deploy/proctor-operator", "--", "python3", "-c", script)) / 1024


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="trial_overhead", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (default: 3)")
    count = parser.parse_args().runs
    proctor = found()
    idle = idle_calls(proctor)
    bare = [bare_pods(proctor) for _ in range(count)]
    trials = [whole_trial(proctor, idle) for _ in range(count)]
    show(bare, trials, memory_mib(proctor))
    return 0


def found() -> Installation:
    """Return the installation of KUBECONFIG."""
    kubeconfig = os.environ.get("KUBECONFIG")  # noqa: TID251  (a program's start)
    if not kubeconfig:
        sys.exit("trial_overhead: set KUBECONFIG to a cluster where Proctor is installed")
    system, runs = (Kubectl(kubeconfig=kubeconfig, namespace=name) for name in (SYSTEM, RUNS))
    return Installation(system=system, runs=runs, images=refs())


def show(bare: list[float], trials: list[TrialCost], memory: float) -> None:
    """Print the figures, medians first."""
    seconds, work = median(one.seconds for one in trials), median(one.work_seconds for one in trials)
    pods = median(bare)
    say(f"same pods, bare, created → finished       {pods:7.1f} s   {_all(bare)}")
    say(f"work: the drivers' own time in a trial    {work:7.1f} s   {_all([one.work_seconds for one in trials])}")
    say(f"whole trial, created → graded             {seconds:7.1f} s   {_all([one.seconds for one in trials])}")
    say(f"whole trial ÷ (bare + work)               {seconds / (pods + work):7.2f}     aim: at most 1.15")
    _show_calls("operator", [one.operator_calls for one in trials])
    _show_calls("others", [one.other_calls for one in trials])
    say(f"operator's resident memory                {memory:7.0f} MiB")


def _show_calls(title: str, calls: list[Counter[str]]) -> None:
    totals = [one.total() for one in calls]
    say(f"API calls per trial, {title:9}            {median(totals):7.0f}     {_all(totals)}")
    for verb, number in sorted(_medians(calls).items()):
        say(f"    {verb:42} {number:5.0f}")


def _medians(calls: list[Counter[str]]) -> dict[str, float]:
    keys = {key for one in calls for key in one}
    found = {key: median(one[key] for one in calls) for key in keys}
    return {key: value for key, value in found.items() if value >= 1}


def _all(values: list[Any]) -> str:
    return "(" + ", ".join(f"{value:.1f}" if isinstance(value, float) else str(value) for value in values) + ")"


def say(line: str) -> None:
    """Print one line."""
    print(line, flush=True)  # noqa: T201  (a program's output)


if __name__ == "__main__":
    sys.exit(main())
