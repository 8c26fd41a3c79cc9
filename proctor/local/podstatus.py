"""Pod status as a kubelet writes it: pure, from what became of each container."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.cluster import Object

SIGKILL_EXIT: Final = 137


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Not started yet."""

    reason: str = "PodInitializing"
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Started:
    """Runs."""

    at: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Has ended."""

    exit_code: int
    message: str
    out_of_memory: bool
    started: str
    at: str


State = Waiting | Started | Ended


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """What the kubelet knows of a pod."""

    address: str
    started: str
    inits: Mapping[str, State]
    containers: Mapping[str, State]
    reason: str = ""
    """Why the pod itself failed, such as `DeadlineExceeded`; it is then over whatever its containers say."""
    message: str = ""


def phase(facts: PodFacts) -> str:
    """Derive the phase."""
    if facts.reason or any(isinstance(state, Ended) and state.exit_code for state in facts.inits.values()):
        return "Failed"
    if not all(isinstance(state, Ended) for state in facts.inits.values()):
        return "Pending"
    states = list(facts.containers.values())
    if all(isinstance(state, Ended) for state in states):
        return "Succeeded" if all(s.exit_code == 0 for s in states if isinstance(s, Ended)) else "Failed"
    return "Pending" if any(isinstance(state, Waiting) for state in states) else "Running"


def pod_status(facts: PodFacts) -> Object:
    """Return the whole status."""
    now_phase = phase(facts)
    ready = now_phase == "Running" and all(isinstance(state, Started) for state in facts.containers.values())
    initialized = all(isinstance(state, Ended) and state.exit_code == 0 for state in facts.inits.values())
    conditions = {"PodScheduled": True, "Initialized": initialized, "ContainersReady": ready, "Ready": ready}
    status: Object = {
        "phase": now_phase,
        "startTime": facts.started,
        "hostIP": "127.0.0.1",
        "conditions": [{"type": name, "status": str(value)} for name, value in conditions.items()],
        "containerStatuses": _statuses(facts.containers),
    }
    if facts.address:
        status |= {"podIP": facts.address, "podIPs": [{"ip": facts.address}]}
    if facts.inits:
        status["initContainerStatuses"] = _statuses(facts.inits)
    if facts.reason:
        status |= {"reason": facts.reason, "message": facts.message}
    return status


def _statuses(states: Mapping[str, State]) -> Sequence[Object]:
    return [
        {"name": name, "ready": isinstance(state, Started), "restartCount": 0, "state": _state(state)}
        for name, state in states.items()
    ]


def _state(state: State) -> Object:
    match state:
        case Waiting(reason=reason, message=message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Started(at=at):
            return {"running": {"startedAt": at}}
        case Ended():
            killed = state.out_of_memory and state.exit_code == SIGKILL_EXIT
            reason = "OOMKilled" if killed else "Completed" if state.exit_code == 0 else "Error"
            ended: Object = {
                "exitCode": state.exit_code,
                "reason": reason,
                "startedAt": state.started,
                "finishedAt": state.at,
            }
            return {"terminated": ended | ({"message": state.message} if state.message else {})}
