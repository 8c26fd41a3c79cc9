"""From a task's folder to a package: what goes to whom, and what is refused."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.packages import write_package
from wire.digest import of_bytes
from wire.packing import PackageMalformed, pack, task_folders


def names(content: bytes) -> set[str]:
    """Return the files of an archive."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name for member in tar if member.isreg()}


def test_each_audience_gets_its_part(tmp_path: Path) -> None:
    """Parts hold what their audience may see, rooted there, without what was installed, built or cached."""
    packed = pack(write_package(tmp_path))
    assert {part: names(content) for part, content in packed.parts.items()} == {
        "public": {"README.md", "plan.md", "scaffold/package.json", "checker/check.mjs"},
        "user": {"scenario.toml"},
        "evaluator": {"test_a.py"},
        "oracle": {"solution/package.json", "mutants/one.patch", "evidence.toml"},
    }
    assert packed.manifest.parts == {part: of_bytes(content) for part, content in packed.parts.items()}
    assert packed.manifest.task.suite.scheduled == 3
    assert packed.manifest.mutants == ["one"]


def test_the_same_folder_has_the_same_digest_wherever_it_lies(tmp_path: Path) -> None:
    """Neither place, times nor leftovers of a build change a package; any file of it does."""
    one = pack(write_package(tmp_path / "one")).digest
    other = pack(write_package(tmp_path / "other", {"public/scaffold/dist/more.js": "built"})).digest
    changed = {
        pack(write_package(tmp_path / str(number), {name: "changed"})).digest
        for number, name in enumerate(("public/plan.md", "private/evaluator/test_a.py", "private/mutants/one.patch"))
    }
    assert one == other
    assert len({one, *changed}) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"task.toml": None}, "small-task/task.toml: is missing", id="no task.toml"),
        pytest.param({"task.toml": "id ="}, "small-task/task.toml: ", id="no TOML"),
        pytest.param({"task.toml": "id = 'small-task'"}, "task.toml: title: Field required", id="a missing field"),
        pytest.param({"public/README.md": None}, "small-task/public/README.md: is missing", id="no contract"),
        pytest.param({"private/evaluator/test_a.py": None}, "private/evaluator/: is missing", id="no hidden suite"),
        pytest.param({"private/mutants/Two Words.patch": ""}, "private/mutants/Two Words.patch: ", id="a bad name"),
        pytest.param({"user/scenario.toml": "opening = 'x'"}, "scenario.toml: milestones", id="a bad scenario"),
    ],
)
def test_a_malformed_package_is_refused_naming_file_and_field(
    tmp_path: Path, changes: dict[str, str | None], message: str
) -> None:
    """One clear error, before anything is stored."""
    if changes.get("private/evaluator/test_a.py", "") is None:
        changes = {**changes, "private/evaluator/__pycache__/test_a.pyc": None}
    with pytest.raises(PackageMalformed, match=message):
        pack(write_package(tmp_path, changes))


def test_a_folder_under_another_name_is_refused(tmp_path: Path) -> None:
    """A package is named by its folder and by its id; they must agree."""
    folder = write_package(tmp_path).rename(tmp_path / "other")
    with pytest.raises(PackageMalformed, match="id: is 'small-task', but the folder is named 'other'"):
        pack(folder)


@pytest.mark.parametrize("target", ["../../private/evaluator/test_a.py", "/etc/passwd", "README.md"])
def test_links_are_refused(tmp_path: Path, target: str) -> None:
    """A link in a part could reach what another audience alone may see."""
    folder = write_package(tmp_path)
    (folder / "public" / "scaffold" / "link").symlink_to(target)
    with pytest.raises(PackageMalformed, match="link: is a symbolic link"):
        pack(folder)


def test_task_folders_are_found(tmp_path: Path) -> None:
    """Whatever has a task.toml two levels down is a task."""
    folder = write_package(tmp_path)
    (tmp_path / "transfer" / "notes").mkdir()
    assert task_folders(tmp_path) == [folder]
