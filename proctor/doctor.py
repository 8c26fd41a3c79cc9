"""What is missing, broken or left behind: on this machine, in its home, in a cluster. Looks, never repairs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from controller.cluster import Kind
from proctor.local.cgroups import Groups
from proctor.local.home import Home
from proctor.local.image import CHECKOUT
from proctor.local.mode import Mode
from proctor.local.nest import find_mode, lacking
from proctor.remote import Remote
from proctor.settings import Settings
from proctor.where import hub_of, is_local
from wire.errors import ProctorError
from wire.names import GROUP, MANAGED_BY, VERSION

MODES = {
    Mode.ROOT: "root: full isolation",
    Mode.RANGE: "an ordinary user with a range of ids: full isolation",
    Mode.SINGLE: "an ordinary user without a range of ids: an agent could end its own daemon; never formal. "
    "Install uidmap and add a line to /etc/subuid and /etc/subgid",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    said: str

    def dump(self) -> dict[str, object]:
        """Return it as plain data."""
        return asdict(self)


def examine(settings: Settings, *, local: bool) -> list[Finding]:
    """Look at this machine, or at the cluster of the settings."""
    here = is_local(settings, asked=local)
    found = [*_machine(settings)] if here else [*_cluster(settings)]
    return [*found, _hub(settings, local=local)]


def _machine(settings: Settings) -> Iterator[Finding]:
    missing = lacking()
    fix = f"apt-get install {' '.join(missing)}" if missing else "all there"
    yield Finding(what="system packages", good=not missing, said=fix)
    mode = find_mode()
    yield Finding(what="isolation", good=mode is not Mode.SINGLE, said=MODES[mode])
    bounded = "per container, by control groups" if Groups().available else "per process, by prlimit"
    yield Finding(what="memory limits", good=True, said=bounded)
    builder = CHECKOUT / "images" / "build.py"
    yield Finding(what="image recipe", good=builder.exists(), said=str(builder))
    left = sorted(path.name for path in Home(settings.home).pods.glob("*"))
    said = f"{len(left)} pod folders in {Home(settings.home).pods}: a run is going on, or the next one removes them"
    yield Finding(what="left behind", good=not left, said=said if left else "nothing")


def _cluster(settings: Settings) -> Iterator[Finding]:
    try:
        remote = Remote(settings)
        served = {crd["name"] for crd in remote.served()}
    except ProctorError as error:
        yield Finding(what="cluster", good=False, said=str(error))
        return
    yield Finding(what="cluster", good=True, said="answers")
    wanted = {kind.plural for kind in (Kind.BenchmarkRun, Kind.Trial, Kind.TaskSuite)}
    fix = f"{GROUP}/{VERSION} lacks {', '.join(sorted(wanted - served))}: kubectl apply --server-side -f crds/"
    yield Finding(what="CRDs", good=wanted <= served, said="all served" if wanted <= served else fix)
    if not wanted <= served:
        return
    left = remote.orphans(f"{MANAGED_BY[0]}={MANAGED_BY[1]}")
    said = f"{len(left)} objects of trials that are over or gone: {', '.join(left[:10])}"
    yield Finding(what="left behind", good=not left, said=said if left else "nothing")


def _hub(settings: Settings, *, local: bool) -> Finding:
    try:
        with hub_of(settings, local=local) as hub:
            ready = hub.is_ready()
    except ProctorError as error:
        return Finding(what="hub", good=False, said=str(error))
    return Finding(what="hub", good=ready, said="ready" if ready else "answers but is not ready; see its log")
