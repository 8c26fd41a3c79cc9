"""The keys under which images are kept: same content, same key; any content that matters, another."""

from pathlib import Path

import pytest

from images.build import Keys, keys

KEYS = ("base", "locks", "root", "sandbox", "proctor")
TASK = "tasks/transfer/first"
FILES = {
    "images/sandbox/Dockerfile": "FROM a",
    "images/proctor/Dockerfile": "FROM b",
    "requirements/runner.txt": "one==1",
    "requirements/proctor.txt": "two==2",
    f"{TASK}/public/scaffold/package.json": "{}",
    f"{TASK}/public/scaffold/package-lock.json": "{}",
    f"{TASK}/private/solution/a.ts": "1",
    "wire/run.py": "",
    "runner/__main__.py": "",
    "hub/app.py": "",
    "proctor/cli.py": "",
    "operator/controller/plan.py": "",
}


def write(root: Path, name: str, text: str) -> None:
    """Write a file of the repository."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Lay out a small repository."""
    for name, text in FILES.items():
        write(tmp_path, name, text)
    return tmp_path


def changed(before: Keys, after: Keys) -> set[str]:
    """Return the names of the keys that differ."""
    return {
        name
        for name in ("base", "locks", "root", "sandbox", "proctor")
        if getattr(before, name) != getattr(after, name)
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("wire/run.py", {"sandbox", "proctor"}, id="what every program shares"),
        pytest.param("runner/new.py", {"sandbox"}, id="the runner alone: the root file system stays"),
        pytest.param("operator/controller/plan.py", {"proctor"}, id="the operator"),
        pytest.param("requirements/runner.txt", {"root", "sandbox"}, id="the runner's packages"),
        pytest.param("requirements/proctor.txt", {"proctor"}, id="the services' packages"),
        pytest.param(f"{TASK}/public/scaffold/package-lock.json", set(KEYS) - {"base"}, id="a task's lock"),
        pytest.param(f"{TASK}/private/solution/a.ts", {"proctor"}, id="hidden content: no part of the sandbox"),
        pytest.param("wire/__pycache__/run.pyc", set(), id="what Python leaves behind"),
        pytest.param("README.md", set(), id="what goes into no image"),
    ],
)
def test_a_key_follows_from_what_goes_in(repository: Path, name: str, expected: set[str]) -> None:
    """A change rebuilds what it belongs to and nothing else."""
    before = keys(repository)
    write(repository, name, "changed")
    assert changed(before, keys(repository)) == expected


def test_a_clone_has_the_same_keys(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither the place nor the age of a file matters."""
    other = tmp_path_factory.mktemp("clone")
    for name, text in reversed(FILES.items()):
        write(other, name, text)
    assert keys(other) == keys(repository)
