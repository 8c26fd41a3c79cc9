"""The bundled suite of the chart: `python -m proctor.suites` (`make crds`) pins the tasks below `tasks/transfer`.

The chart names packages by digest and the hub packs the very folders of its image at start, so a chart and an image
of the same commit agree. A test says when the file is stale.
"""

import sys
from pathlib import Path
from typing import Final

import yaml

from wire.packing import pack, task_folders
from wire.suite import SuiteTask, TaskSuiteSpec

REPOSITORY: Final = Path(__file__).resolve().parent.parent
FILE: Final = Path("charts/proctor/files/engram-transfer.yaml")


def bundled(tasks: Path) -> TaskSuiteSpec:
    """Return the suite of all transfer tasks."""
    folders = [folder for folder in task_folders(tasks) if folder.parent.name == "transfer"]
    return TaskSuiteSpec(tasks=[SuiteTask(name=folder.name, package=pack(folder).digest) for folder in folders])


def text(repository: Path = REPOSITORY) -> str:
    """Return the file's content."""
    body = yaml.safe_dump(bundled(repository / "tasks").dump(), sort_keys=False)
    return "# Generated from tasks/ by `make crds`; do not edit.\n" + body


def main() -> int:
    """Write the file."""
    (REPOSITORY / FILE).write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
