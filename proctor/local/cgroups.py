"""Memory and process limits by control groups, v1 or v2, where this user may make groups; else there are none.

One group for each container, removed with it. Without groups the launcher falls back to `prlimit --data`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HIERARCHY: Final = Path("/sys/fs/cgroup")
PIDS_LIMIT: Final = 2048


@dataclass(frozen=True, kw_only=True)
class Group:
    """One container's groups: one folder on v2, one for each controller on v1."""

    folders: tuple[Path, ...]
    seen_at: tuple[str, ...]
    """Where a container looks for each of them."""

    def enter(self) -> list[str]:
        """Return the words that start a command inside; whatever it starts inherits that."""
        script = 'for g in $0; do echo $$ > "$g/cgroup.procs"; done; exec "$@"'
        return ["sh", "-c", script, " ".join(str(folder) for folder in self.folders)]

    def memory_kills(self) -> int:
        """Return how many processes the memory limit has ended."""
        for name in ("memory.oom_control", "memory.events"):
            file = self.folders[0] / name
            if file.exists():
                counts = dict(line.split() for line in file.read_text().splitlines())
                return int(counts.get("oom_kill", 0))
        return 0

    def remove(self) -> None:
        """Remove the groups; they must be empty. One that is not stays until the next start sweeps it."""
        for folder in self.folders:
            try:
                folder.rmdir()
            except OSError:
                continue


class Groups:
    """Makes groups below `proctor/`; `available` is False where that is not allowed."""

    def __init__(self, hierarchy: Path = HIERARCHY) -> None:
        self._parents = _parents(hierarchy)
        # As in a container of a cluster, which sees its own group and no other.
        names = ("",) if len(self._parents) == 1 else ("/memory", "/pids")
        self._seen_at = tuple(f"{HIERARCHY}{name}" for name in names)

    @property
    def available(self) -> bool:
        """Tell whether memory can be limited here."""
        return bool(self._parents)

    def make(self, name: str, memory_bytes: int | None) -> Group | None:
        """Make the groups of one container."""
        if not self._parents:
            return None
        # With the launcher's number: two launchers never share a group, and a dead one's groups can be told.
        folders = tuple(parent / f"{os.getpid()}-{name}" for parent in self._parents)
        for folder in folders:
            folder.mkdir(exist_ok=True)
            limits = {
                "memory.limit_in_bytes": memory_bytes,
                "memory.max": memory_bytes,
                "memory.swap.max": 0,
                "pids.max": PIDS_LIMIT,
            }
            for file, value in limits.items():
                if value is not None and (folder / file).exists():
                    (folder / file).write_text(str(value))
        return Group(folders=folders, seen_at=self._seen_at)

    def sweep(self) -> None:
        """Remove what a launcher that is no more has left."""
        for parent in self._parents:
            groups = (path for path in parent.iterdir() if path.is_dir())
            left = tuple(path for path in groups if not Path("/proc", path.name.partition("-")[0]).exists())
            Group(folders=left, seen_at=()).remove()


def _parents(hierarchy: Path) -> tuple[Path, ...]:
    """Return the folders to make groups in; none where a write is refused."""
    if os.geteuid() != 0:
        return ()
    unified = (hierarchy / "cgroup.controllers").exists()
    tops = (hierarchy,) if unified else (hierarchy / "memory", hierarchy / "pids")
    try:
        for top in tops:
            (top / "cgroup.procs").resolve(strict=True)
            (top / "proctor").mkdir(exist_ok=True)
            if unified:
                for each in (top, top / "proctor"):
                    (each / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        return ()
    return tuple(top / "proctor" for top in tops)
