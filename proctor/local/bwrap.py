"""From a container to the words that start it: pure, so that what isolates is read and tested as a list.

launcher ─ nsenter (into the pod) ─ sh (mounts the overlay) ─ bwrap (own processes, files, devices) ─ setpriv ─ command
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from proctor.local.mode import Mode
from proctor.local.podspec import Container
from wire.outcome import TERMINATION_LOG

DAEMON_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETUID", "SETGID")
SWITCH_CAPABILITIES: Final = ("SETUID", "SETGID")  # gone once setpriv has become the user
# Where there is one user id alone, the daemon is told that its commands cannot be another user.
OWN_USER: Final = {"PROCTOR_OWN_USER": "true"}
LIBRARY: Final = "/opt/proctor/lib"
# $1 image root, $2 the container's folder, $3 mount options; the rest is the command. Mounts vanish with the pod.
OVERLAY: Final = (
    'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work$3" "$2/root" && shift 3 && exec "$@"'
)
# bwrap makes these 0755 and root's unless told otherwise.
SCRATCH: Final = (
    *("--proc", "/proc", "--dev", "/dev"),
    *("--perms", "1777", "--tmpfs", "/dev/shm"),
    *("--perms", "1777", "--tmpfs", "/tmp"),
    *("--perms", "755", "--tmpfs", "/run"),
)


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where on the host a container's things are."""

    root: Path
    """The image's root file system."""
    folder: Path
    """The container's own: overlay and termination log."""
    volumes: Mapping[str, Path]
    library: Mapping[str, Path]
    """Our packages by name, bound where the image expects them."""
    groups: Mapping[str, Path]
    """The container's own control groups by where it looks for them; empty = only `prlimit` bounds its memory."""

    @property
    def message(self) -> Path:
        """The file behind /dev/termination-log."""
        return self.folder / "message"


def start_words(box: Container, places: Places, mode: Mode, hostname: str) -> list[str]:
    """Return the words to run inside the pod's namespaces."""
    options = "" if mode is Mode.ROOT else ",userxattr"
    overlay = ["sh", "-c", OVERLAY, "sh", str(places.root), str(places.folder), options]
    bubble = ["bwrap", "--bind", str(places.folder / "root"), "/", "--unshare-pid", "--as-pid-1", "--unshare-ipc"]
    bubble += ["--unshare-uts", "--hostname", hostname[:63], "--die-with-parent", *SCRATCH, *_binds(box, places)]
    env = box.env if mode is not Mode.SINGLE else {**box.env, **OWN_USER}
    bubble += ["--clearenv", *(word for name, value in env.items() for word in ("--setenv", name, value))]
    bubble += ["--chdir", box.cwd or "/"]
    is_bounded = bool(places.groups) or not box.memory_bytes
    limit = [] if is_bounded else ["prlimit", f"--data={box.memory_bytes}", "--"]
    return [*overlay, *bubble, *_rights(box.uid, mode), *limit, *_user(box.uid, mode), *box.argv]


def _binds(box: Container, places: Places) -> list[str]:
    words = ["--bind", str(places.message), TERMINATION_LOG]
    for name, package in places.library.items():
        words += ["--ro-bind", str(package), f"{LIBRARY}/{name}"]
    for target, group in places.groups.items():
        words += [*_parents(target), "--ro-bind", str(group), target]
    for mount in sorted(box.mounts, key=lambda mount: mount.path):
        words += _parents(mount.path)
        words += ["--ro-bind" if mount.read_only else "--bind", str(places.volumes[mount.volume]), mount.path]
    return words


def _parents(target: str) -> list[str]:
    """Return the words that make the folders above a mount; those that bwrap makes itself are for root alone."""
    above = [str(folder) for folder in PurePosixPath(target).parents if folder.name]
    return [word for folder in reversed(above) for word in ("--perms", "755", "--dir", folder)]


def _rights(uid: int, mode: Mode) -> list[str]:
    words = ["--cap-drop", "ALL"]
    if mode is Mode.SINGLE:
        return ["--unshare-user", "--uid", str(uid), "--gid", str(uid), *words, "--"]
    for capability in SWITCH_CAPABILITIES if uid else DAEMON_CAPABILITIES:
        words += ["--cap-add", f"CAP_{capability}"]
    return [*words, "--"]


def _user(uid: int, mode: Mode) -> list[str]:
    if not uid or mode is Mode.SINGLE:
        return []
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--"]
