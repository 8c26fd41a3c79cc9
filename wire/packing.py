"""From a task folder to a package: one archive per audience, the manifest that pins them, what a folder must hold.

    public      public/                 README.md, plan.md, scaffold/, checker/ at the archive's root
    user        user/                   scenario.toml at the root
    evaluator   private/evaluator/      the hidden suite at the root
    oracle      private/ without that   solution/, mutants/, …

Installed packages, builds and caches are left out wherever they lie. The same folder gives the same bytes.
"""

import io
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from wire.archive import write_tree
from wire.digest import Digest, of_bytes
from wire.errors import InvalidInput
from wire.package import Mutants, PackageManifest, PartName, Scenario, TaskInfo

LEFT_OUT: Final = frozenset(
    {"node_modules", "dist", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".cache", ".vite", ".git"}
)
Model = TypeVar("Model", bound=BaseModel)
_FOLDERS: Final = ("public/scaffold", "public/checker", "private/evaluator", "private/solution")
_FILES: Final = ("public/README.md", "public/plan.md")


class PackageMalformed(InvalidInput):
    """A task's folder is not a package; the message names the file and the field."""

    reason = "PackageMalformed"


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A package ready to be uploaded: parts first, then the manifest."""

    manifest: PackageManifest
    parts: dict[PartName, bytes]

    @property
    def digest(self) -> Digest:
        """Return the package digest."""
        return self.manifest.digest()


def pack(folder: Path) -> Packed:
    """Validate a task's folder and pack it.

    Raises:
        PackageMalformed: something is missing, of the wrong kind or out of bounds.
    """
    task = read_model(folder, "task.toml", TaskInfo)
    if task.id != folder.name:
        raise PackageMalformed(f"{folder.name}/task.toml: id: is {task.id!r}, but the folder is named {folder.name!r}")
    read_model(folder, "user/scenario.toml", Scenario)
    _check_layout(folder)
    parts: dict[PartName, bytes] = {
        "public": _part(folder / "public"),
        "user": _part(folder / "user"),
        "evaluator": _part(folder / "private" / "evaluator"),
        "oracle": _part(folder / "private", "evaluator"),
    }
    digests = {name: of_bytes(content) for name, content in parts.items()}
    return Packed(manifest=PackageManifest(task=task, parts=digests, mutants=_mutants(folder)), parts=parts)


def task_folders(root: Path) -> list[Path]:
    """Return the task folders below a `tasks/` folder: `<kind>/<name>/` with a task.toml."""
    return sorted(path.parent for path in root.glob("*/*/task.toml"))


def read_model(folder: Path, name: str, model: type[Model]) -> Model:
    """Return a TOML file of a package as a model."""
    shown = f"{folder.name}/{name}"
    try:
        return model.model_validate(tomllib.loads((folder / name).read_text("utf-8")))
    except FileNotFoundError:
        raise PackageMalformed(f"{shown}: is missing") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PackageMalformed(f"{shown}: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"]) or "the file"
        raise PackageMalformed(f"{shown}: {field}: {first['msg']}") from error


def _check_layout(folder: Path) -> None:
    for name in _FILES:
        if not (folder / name).is_file():
            raise PackageMalformed(f"{folder.name}/{name}: is missing")
    for name in _FOLDERS:
        if not (folder / name).is_dir():
            raise PackageMalformed(f"{folder.name}/{name}/: is missing")


def _mutants(folder: Path) -> list[str]:
    """Return the names of a task's mutants, as runs name them."""
    names = sorted(path.stem for path in (folder / "private" / "mutants").glob("*.patch"))
    try:
        return TypeAdapter(Mutants).validate_python(names)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        bad = next((f"{names[step]}.patch" for step in first["loc"] if isinstance(step, int)), "")
        raise PackageMalformed(f"{folder.name}/private/mutants/{bad}: {first['msg']}") from error


def _part(root: Path, *without: str) -> bytes:
    excluded = [*without]
    for path in _left_out(root):
        excluded.append(path.relative_to(root).as_posix())
    for path in root.rglob("*"):
        # Links could point at what another audience may read; no package needs one.
        if path.is_symlink() and not _is_below(path.relative_to(root).as_posix(), excluded):
            raise PackageMalformed(f"{path.relative_to(root.parent)}: is a symbolic link; packages hold none")
    out = io.BytesIO()
    write_tree(root, out, excluded)
    return out.getvalue()


def _left_out(root: Path) -> Iterator[Path]:
    for path in root.iterdir():
        if path.name in LEFT_OUT or path.name.endswith((".pyc", ".tsbuildinfo")):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _left_out(path)


def _is_below(path: str, excluded: list[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in excluded)
