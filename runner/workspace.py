"""The development workspace over its life: where it starts, its checkpoints, its candidate, its rolling back.

All are safe to ask for again: a marker command in the sandbox says that the start was made, archives are named by
their content.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import structlog

from runner.agents.scene import Scene
from runner.errors import SandboxLost, TooLarge
from runner.hub import Hub
from runner.parts import extract_part, starting_tree
from wire.archive import tree_bytes
from wire.digest import Digest
from wire.errors import Broken
from wire.journal import Canaries, TurnSealed
from wire.sandbox import CommandSpec
from wire.turn import Stored

log = structlog.get_logger()


def prepare(scene: Scene, home: str) -> Canaries:
    """Wait for the sandbox and, if it is a new one, put the last checkpoint or the scaffold into it."""
    seen = scene.daemon.canaries()
    marker = f"prepared-{scene.sandbox_attempt}"
    if scene.daemon.status(marker) is None:
        start(scene, home)
        scene.daemon.run(marker, CommandSpec(argv=["true"], cwd="/"))
    return seen


def start(scene: Scene, home: str) -> None:
    """Put the last checkpoint into the sandbox, or the scaffold."""
    checkpoint = last_checkpoint(scene.hub)
    if checkpoint is None:
        scene.daemon.put_tree(scene.workspace, scaffold(scene), clean=True)
    else:
        restore(scene, home, checkpoint)


def last_checkpoint(hub: Hub) -> Digest | None:
    """Return the checkpoint of the last turn that will never be executed again."""
    sealed = [entry for entry in hub.entries("turnSealed") if isinstance(entry, TurnSealed)]
    return max(sealed, key=lambda entry: entry.turn).checkpoint if sealed else None


def scaffold(scene: Scene) -> bytes:
    """Return the tree that development starts from."""
    with tempfile.TemporaryDirectory() as scratch:
        public = extract_part(scene.hub, scene.manifest, "public", Path(scratch, "public"))
        return tree_bytes(starting_tree(public, public / "scaffold", Path(scratch, "tree")))


def restore(scene: Scene, home: str, checkpoint: Digest) -> None:
    """Roll a new sandbox back to a checkpoint."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "checkpoint.tar")
        scene.hub.get_archive(checkpoint, archive)
        for folder in (scene.workspace, home):
            clear(scene, folder)
        scene.daemon.put_tree("/", archive)


def clear(scene: Scene, folder: str) -> None:
    """Empty a folder of the sandbox."""
    with tempfile.TemporaryDirectory() as nothing:
        scene.daemon.put_tree(folder, tree_bytes(Path(nothing)), clean=True)


def store_checkpoint(scene: Scene, home: str) -> Stored:
    """Store workspace and home as they are; what the agent left running goes on, unless it gets in the way."""

    def store() -> Digest:
        try:
            return _store(scene, [scene.workspace, home], [])
        except (Broken, SandboxLost) as error:
            # Trees are read as the agent's user, whose other processes can kill or halt the one that reads.
            log.warning("what the agent left running is ended", error=str(error))
            scene.daemon.stop()
            return _store(scene, [scene.workspace, home], [])

    return _bounded(scene, home, store)


def store_candidate(scene: Scene, home: str) -> Stored:
    """Stop the agent's processes and store the workspace without what the task leaves out."""
    scene.daemon.stop()
    return _bounded(scene, home, lambda: _store(scene, [scene.workspace], scene.manifest.task.excluded))


def _bounded(scene: Scene, home: str, store: Callable[[], Digest]) -> Stored:
    """Store a tree; when it is over the limits, give it up for the last sealed state, for the rest of this sandbox."""
    # Decided once, and before anything is touched: a new container must not take half a state for a whole one.
    marker = f"rolled-back-{scene.sandbox_attempt}"
    if scene.daemon.status(marker) is None:
        try:
            return Stored(digest=store())
        except TooLarge as error:
            log.warning("rolled back to the last sealed state", error=str(error))
            scene.daemon.run(marker, CommandSpec(argv=["true"], cwd="/"))
    scene.daemon.stop()
    clear(scene, home)
    start(scene, home)
    return Stored(digest=store(), rolled_back=True)


def _store(scene: Scene, roots: list[str], excluded: list[str]) -> Digest:
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "tree.tar")
        digest = scene.daemon.get_tree(roots, archive, excluded)
        scene.hub.put_archive(archive, digest)
        return digest
