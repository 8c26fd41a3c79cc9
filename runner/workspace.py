"""The development workspace over its life: where it starts, its checkpoints, its candidate.

All three are safe to ask for again: a marker command in the sandbox says that the start was made, archives are named by
their content.
"""

import tempfile
from pathlib import Path

from runner.agents.scene import Scene
from runner.hub import Hub
from runner.parts import extract_part, starting_tree
from wire.archive import tree_bytes
from wire.digest import Digest
from wire.journal import Canaries, TurnSealed
from wire.sandbox import CommandSpec


def prepare(scene: Scene, home: str) -> Canaries:
    """Wait for the sandbox and, if it is a new one, put the last checkpoint or the scaffold into it."""
    seen = scene.daemon.canaries()
    marker = f"prepared-{scene.sandbox_attempt}"
    if scene.daemon.status(marker) is None:
        checkpoint = last_checkpoint(scene.hub)
        if checkpoint is None:
            scene.daemon.put_tree(scene.workspace, scaffold(scene), clean=True)
        else:
            restore(scene, home, checkpoint)
        scene.daemon.run(marker, CommandSpec(argv=["true"], cwd="/"))
    return seen


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
        empty = tree_bytes(Path(tempfile.mkdtemp(dir=scratch)))
        for folder in (scene.workspace, home):
            scene.daemon.put_tree(folder, empty, clean=True)
        scene.daemon.put_tree("/", archive)


def store_checkpoint(scene: Scene, home: str) -> Digest:
    """Store workspace and home as they are."""
    return _store(scene, [scene.workspace, home], [])


def store_candidate(scene: Scene) -> Digest:
    """Stop the agent's processes and store the workspace without what the task leaves out."""
    scene.daemon.stop()
    return _store(scene, [scene.workspace], scene.manifest.task.excluded)


def _store(scene: Scene, roots: list[str], excluded: list[str]) -> Digest:
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "tree.tar")
        digest = scene.daemon.get_tree(roots, archive, excluded)
        scene.hub.put_archive(archive, digest)
        return digest
