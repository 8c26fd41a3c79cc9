"""What the container's control group says about memory and processes, version 1 or 2; None where it says nothing."""

from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
# Version 1 writes "no limit" as a number near 2**63.
_UNLIMITED: Final = 1 << 60
_RESERVE_BYTES: Final = 256 << 20


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """Return the container's memory limit."""
    text = _read(root / "memory.max") or _read(root / "memory" / "memory.limit_in_bytes")
    limit = int(text) if text is not None and text.isdigit() else None
    return limit if limit is not None and limit < _UNLIMITED else None


def data_limit_bytes(root: Path = ROOT) -> int | None:
    """Return what one process may hold so that the daemon still fits below the container's limit."""
    limit = memory_limit_bytes(root)
    return None if limit is None else max(limit - _RESERVE_BYTES, limit // 2)


def memory_kills(root: Path = ROOT) -> int | None:
    """Return how many processes of this container the kernel has killed for memory."""
    text = _read(root / "memory.events") or _read(root / "memory" / "memory.oom_control")
    facts = dict(line.split(maxsplit=1) for line in (text or "").splitlines() if " " in line)
    return int(facts["oom_kill"]) if facts.get("oom_kill", "").isdigit() else None


def are_pids_bounded(root: Path = ROOT) -> bool:
    """Tell whether the number of processes is bounded, as far as this container can see.

    A bound on the pod alone (the kubelet's `podPidsLimit`) sits one level above and cannot be seen from inside.
    """
    text = _read(root / "pids.max") or _read(root / "pids" / "pids.max")
    return text is not None and text.isdigit()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
