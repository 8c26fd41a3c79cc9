"""A small task package on disk, for tests of packing and of whoever stores packages."""

from pathlib import Path

TASK = """
id = "small-task"
title = "A small task"
version = "1.0.0"
tags = ["idempotency"]
excluded = ["node_modules"]

[operations]
install = ["npm", "ci"]
build = ["npm", "run", "build"]
migrate = ["npm", "run", "migrate"]
api = ["npm", "run", "start:api"]
worker = ["npm", "run", "start:worker"]
test = ["npm", "test"]

[suite]
applicable = 2
scheduled = 3
"""
SCENARIO = """
opening = "hello"
gate_failed = "no: {report}"

[[milestones]]
id = "first"
message = "begin"
"""
FILES = {
    "task.toml": TASK,
    "public/README.md": "the contract",
    "public/plan.md": "the plan",
    "public/scaffold/package.json": "{}",
    "public/scaffold/node_modules/x/index.js": "installed",
    "public/scaffold/dist/index.js": "built",
    "public/checker/check.mjs": "process.exit(0)",
    "user/scenario.toml": SCENARIO,
    "private/evaluator/test_a.py": "def test(): pass",
    "private/evaluator/__pycache__/test_a.pyc": "cached",
    "private/solution/package.json": "{}",
    "private/mutants/one.patch": "a patch",
    "private/evidence.toml": "",
}


def write_package(root: Path, changes: dict[str, str | None] | None = None) -> Path:
    """Write a package's folder below `root` and return it; `changes` replaces files, None leaves one out."""
    folder = root / "transfer" / "small-task"
    for name, content in {**FILES, **(changes or {})}.items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    return folder
