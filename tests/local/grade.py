"""Runs inside a pod of the sandbox image: grades the solution, the scaffold and mutants of a task, one after the other.

    python3 -m tests.local.grade TASK SUBJECTS

SUBJECTS is a JSON object: name of a subject → ids of the cases to run, [] for all. One JSON line for each subject.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.local.grading import Grader, Tools
from wire.package import TaskInfo

AGENT_UID = 1000


def main(task: Path, subjects: dict[str, list[str]], place: Path) -> None:
    """Grade every subject and print what became of its cases."""
    info = TaskInfo.model_validate(tomllib.loads((task / "task.toml").read_text()))
    grader = Grader(task=task, info=info, tools=Tools(), agent_uid=AGENT_UID, driver="nobody")
    place.mkdir(parents=True)
    place.chmod(0o755)
    modules: Path | None = None
    for name, cases in subjects.items():
        tree = compose(task, name, place / name / "workspace")
        before, modules = modules, prepare(tree, info, modules)
        if before is not None:
            shutil.rmtree(before.parents[1])
        found = grader.grade(tree, place / name / "scratch", cases)
        lines = {case: [ran.outcome, ran.message[:600]] for case, ran in found.items()}
        sys.stdout.write(json.dumps({"subject": name, "cases": lines}) + "\n")
        sys.stdout.flush()


def compose(task: Path, name: str, tree: Path) -> Path:
    """Write a subject's source tree."""
    source = task / "public" / "scaffold" if name == "scaffold" else task / "private" / "solution"
    shutil.copytree(source, tree)
    if name not in ("scaffold", "solution"):
        patch = (task / "private" / "mutants" / f"{name}.patch").read_bytes()
        subprocess.run(["git", "apply"], cwd=tree, input=patch, check=True)
    return tree


def prepare(tree: Path, info: TaskInfo, modules: Path | None) -> Path:
    """Install (the first time; afterwards the same modules are copied) and build, as the agent's user."""
    installed = tree / "node_modules"
    if modules is not None:
        subprocess.run(["cp", "-a", str(modules), str(installed)], check=True)
    subprocess.run(["chown", "-R", f"{AGENT_UID}:{AGENT_UID}", str(tree)], check=True)
    for command in ([] if modules else [info.operations.install]) + [info.operations.build]:
        become = ["setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups"]
        subprocess.run([*become, *command], cwd=tree, check=True, stdout=sys.stderr)
    return installed


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), Path("/srv/grade"))  # /tmp is memory, and would count as the pod's
