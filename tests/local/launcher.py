"""FOLDER ROOT MARK: launches a pod full of stubborn processes, says so and waits to be killed by a test."""

import asyncio
import sys
from pathlib import Path

from proctor.local.cgroups import Groups
from proctor.local.kubelet import Kubelet
from proctor.local.memory import MemoryCluster, wall_clock
from proctor.local.nest import Nest, find_mode
from proctor.local.pods import Machine
from tests.local.conftest import Lab


async def main(folder: Path, root: Path, mark: str) -> None:
    """Launch and wait."""
    cluster = MemoryCluster()
    async with Nest(find_mode()) as nest:
        machine = Machine(
            nest=nest, groups=Groups(), root=root, library={}, folder=folder / "pods", logs=folder / "logs"
        )
        async with Kubelet(cluster.objects, machine, {}, {"PATH": "/usr/bin:/bin"}, wall_clock) as kubelet:
            lab = Lab(cluster, kubelet, folder)
            script = f"trap '' TERM HUP INT; setsid sleep {mark} & setsid -f sleep {mark}; echo up; wait"
            lab.pod("stubborn", script)
            await lab.running("stubborn")
            await lab.says("stubborn", "up")
            sys.stdout.write("up\n")
            sys.stdout.flush()
            await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
