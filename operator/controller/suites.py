"""One pass over one TaskSuite: its status says whether its packages are in the hub.

Due when a suite is new or changed, when a run finds a package that was not there before, and again while the hub does
not answer. Runs do not read this status: it is for people.
"""

from controller import execute
from controller.cluster import Kind
from controller.hub import HubUnreachable
from controller.packages import ask
from controller.state import Key, Memory, Ports
from controller.suite_status import verified
from controller.views import suite_of

AGAIN_SECONDS = 5.0


class Suites:
    """Reconciles TaskSuites."""

    def __init__(self, ports: Ports, memory: Memory) -> None:
        self._ports, self._memory = ports, memory

    async def reconcile(self, key: Key) -> None:
        """Do one pass.

        Raises:
            HubUnreachable: the status stays as it is; ask again.
        """
        found = self._memory.store.get(Kind.TaskSuite, key[1], key[2])
        if found is None:
            return
        suite = suite_of(found)
        packages = await ask(self._ports, self._memory, [task.package for task in suite.spec.tasks])
        if packages.unreachable:
            raise HubUnreachable(packages.unreachable, min(AGAIN_SECONDS, self._ports.settings.blocked_retry_seconds))
        status = verified(suite, packages, self._ports.clock())
        current = await execute.set_status(self._ports.cluster, Kind.TaskSuite, found, status)
        self._memory.store.apply(Kind.TaskSuite, current)
