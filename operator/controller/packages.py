"""What the hub says about packages. They never change, so one that is there is asked for once."""

from collections.abc import Iterable

from controller.accept import Packages
from controller.hub import HubUnreachable
from controller.state import Memory, Ports
from wire.package import PackageManifest


async def ask(ports: Ports, memory: Memory, digests: Iterable[str]) -> Packages:
    """Return the manifests as far as the hub answers."""
    found: dict[str, PackageManifest | None] = {}
    unreachable = ""
    for digest in digests:
        try:
            found[digest] = memory.manifests.get(digest) or await ports.hub.manifest(digest)
        except HubUnreachable as error:
            unreachable = str(error)
            break
    memory.manifests |= {digest: manifest for digest, manifest in found.items() if manifest}
    return Packages(manifests=found, unreachable=unreachable)
