"""The agent that knows the answer, and the one that knows it with one declared mistake.

The solution is built here, in the trusted pod, and pushed as a tree: neither a patch nor a diff to the intact solution
ever lies in the sandbox.
"""

import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from runner.agents.scene import Reply, Scene
from runner.clock import now
from runner.errors import PackageMalformed
from runner.parts import extract_part, starting_tree
from wire.archive import tree_bytes
from wire.sandbox import CommandSpec
from wire.turn import TurnRequest

BUILD_SECONDS: Final = 1800.0


class Oracle:
    """Puts the reference solution into the workspace in the first turn; later turns only answer."""

    def turn(self, request: TurnRequest, scene: Scene) -> Reply:
        """Apply the solution and build it, once."""
        moment = now()
        if request.turn > 1:
            return Reply(text="Everything the plan asks for is in the workspace.", started_at=moment, ended_at=moment)
        # The command is the proof that the tree was put: it starts only afterwards.
        if scene.daemon.status(scene.command(request.turn)) is None:
            scene.daemon.put_tree(scene.workspace, solution(scene), clean=True)
        operations = scene.manifest.task.operations
        line = f"{shlex.join(operations.install)} && {shlex.join(operations.build)}"
        argv = ["sh", "-c", line]
        done = scene.run(request.turn, CommandSpec(argv=argv, cwd=scene.workspace, timeout_seconds=BUILD_SECONDS))
        return scene.reply(done, moment, f"I wrote the application; `{line}` exited with {done.status.exit_code}.")


def solution(scene: Scene) -> bytes:
    """Return the tree to deliver: the solution in the scaffold's place, with the arm's mistake if it has one."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = extract_part(scene.hub, scene.manifest, "oracle", Path(scratch, "oracle"))
        if not (answer / "solution").is_dir():
            raise PackageMalformed("the package's oracle part holds no solution/")
        mutant = scene.spec.arm.agent.mutant
        if mutant is not None:
            apply(answer / "mutants" / f"{mutant}.patch", answer / "solution")
        public = extract_part(scene.hub, scene.manifest, "public", Path(scratch, "public"))
        return tree_bytes(starting_tree(public, answer / "solution", Path(scratch, "tree")))


def apply(patch: Path, tree: Path) -> None:
    """Apply a mutant's patch.

    Raises:
        PackageMalformed: there is none, or it does not fit.
    """
    if not patch.is_file():
        raise PackageMalformed(f"the package has no mutant {patch.stem!r}")
    # Not in a repository: `git apply` then patches the current folder, and refuses what does not fit exactly.
    done = subprocess.run(
        ["git", "apply", "-p1", "--whitespace=nowarn", str(patch)],
        cwd=tree,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(tree.parent), "HOME": str(tree)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise PackageMalformed(f"the mutant {patch.stem!r} does not apply: {done.stderr[-300:]}")
