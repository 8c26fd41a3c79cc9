"""The Job controller in memory: Indexed Jobs only, no retries within an index (backoffLimitPerIndex 0).

Makes one pod per index, counts how they end and writes the status fields that the operator reads. A Job's deadline is
given to its pods. Reacts to notices in the same call that caused them.
"""

from typing import Final

from controller.cluster import Kind, Object
from controller.run_status import indexes, intervals
from proctor.local.objects import Clock, Notice, Objects, rfc3339

INDEX: Final = "batch.kubernetes.io/job-completion-index"
ENDED: Final = ("Succeeded", "Failed")


class JobController:
    """Keeps Jobs and their pods in step."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._made = 0

    def notice(self, seen: Notice) -> None:
        """Look again at the Job that a change concerns."""
        name = seen.object["metadata"]["name"] if seen.kind is Kind.Job else _owner(seen.object)
        if seen.kind not in (Kind.Job, Kind.Pod) or name is None:
            return
        job = self._objects.get(Kind.Job, seen.object["metadata"]["namespace"], name)
        if job is not None and not job["metadata"].get("deletionTimestamp"):
            self._sync(job)

    def _sync(self, job: Object) -> None:
        pods = self._pods(job)
        # A lost pod counts as failed once and for all, as the real controller's finalizer sees to.
        status = job.get("status") or {}
        failed = indexes(status.get("failedIndexes", "")) | _with_phase(pods, "Failed")
        done = indexes(status.get("completedIndexes", "")) | _with_phase(pods, "Succeeded")
        begun = status.get("startTime") is not None
        missing = set(range(job["spec"]["completions"])) - {_index(pod) for pod in pods} - done - failed
        if begun:
            failed |= missing
        after = self._status(job, done, failed)
        if _comparable(after) != _comparable(status):
            self._objects.set_status(Kind.Job, job, after)
        if not begun:
            for index in sorted(missing):
                self._objects.create(Kind.Pod, self._pod(job, index))

    def _pods(self, job: Object) -> list[Object]:
        namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
        found = self._objects.all(Kind.Pod, namespace)
        return [p for p in found if any(o["uid"] == uid for o in p["metadata"].get("ownerReferences") or ())]

    def _status(self, job: Object, done: frozenset[int], failed: frozenset[int]) -> Object:
        completions = job["spec"]["completions"]
        now = rfc3339(self._clock())
        status: Object = {
            "startTime": (job.get("status") or {}).get("startTime", now),
            "active": completions - len(done) - len(failed),
            "succeeded": len(done),
            "failed": len(failed),
            "completedIndexes": intervals(done),
        }
        if failed:
            status["failedIndexes"] = intervals(failed)
        if len(done) + len(failed) == completions:
            kind, reason = ("Failed", "FailedIndexes") if failed else ("Complete", "CompletionsReached")
            status["conditions"] = [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now}]
            if not failed:
                status["completionTime"] = now
        return status

    def _pod(self, job: Object, index: int) -> Object:
        """Return the pod of one index, as the template says."""
        self._made += 1
        template = job["spec"]["template"]
        meta = template.get("metadata") or {}
        name = job["metadata"]["name"]
        marks = {INDEX: str(index)}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        told = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
        containers = [{**box, "env": [*(box.get("env") or ()), told]} for box in template["spec"]["containers"]]
        spec = {**template["spec"], "containers": containers}
        if deadline := job["spec"].get("activeDeadlineSeconds"):
            spec["activeDeadlineSeconds"] = deadline
        return {
            "metadata": {
                "name": f"{name}-{index}-{self._made:05x}",
                "namespace": job["metadata"]["namespace"],
                "labels": {**(meta.get("labels") or {}), **marks, "batch.kubernetes.io/job-name": name},
                "annotations": {**(meta.get("annotations") or {}), **marks},
                "ownerReferences": [owner],
            },
            "spec": spec,
        }


def _owner(pod: Object) -> str | None:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner["kind"] == "Job":
            return str(owner["name"])
    return None


def _index(pod: Object) -> int:
    return int(pod["metadata"]["labels"][INDEX])


def _with_phase(pods: list[Object], phase: str) -> frozenset[int]:
    return frozenset(_index(pod) for pod in pods if (pod.get("status") or {}).get("phase") == phase)


def _comparable(status: Object) -> Object:
    """Leave out the times, which would differ on every look."""
    seen = {key: value for key, value in status.items() if key not in ("completionTime", "conditions")}
    return seen | {"ended": [c["type"] for c in status.get("conditions", ())]}
