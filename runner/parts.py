"""Parts of a task package on the driver's disk, and the tree that development starts from."""

import shutil
from pathlib import Path

from runner.errors import PackageMalformed
from runner.hub import Hub
from wire.archive import extract
from wire.package import PackageManifest, PartName

GIVEN = ("README.md", "plan.md", "checker")
"""What lies beside the scaffold in the workspace, and stays when a solution takes the scaffold's place."""


def extract_part(hub: Hub, manifest: PackageManifest, part: PartName, folder: Path) -> Path:
    """Fetch a part, unpack it into a new folder and return that.

    Raises:
        PackageMalformed: the package has no such part.
    """
    digest = manifest.parts.get(part)
    if digest is None:
        raise PackageMalformed(f"the package of {manifest.task.id} has no part `{part}`")
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    hub.get_part(part, digest, archive)
    with archive.open("rb") as stream:
        extract(stream, folder)
    archive.unlink()
    return folder


def starting_tree(public: Path, scaffold: Path, target: Path) -> Path:
    """Compose the workspace: a scaffold (or a solution in its place) with contract, plan and checker beside it."""
    if not scaffold.is_dir():
        raise PackageMalformed(f"the package's public part holds no {scaffold.name}/")
    shutil.copytree(scaffold, target, symlinks=True)
    for name in GIVEN:
        given = public / name
        if given.is_dir():
            shutil.rmtree(target / name, ignore_errors=True)
            shutil.copytree(given, target / name, symlinks=True)
        elif given.is_file():
            shutil.copy(given, target / name)
        else:
            raise PackageMalformed(f"the package's public part holds no {name}")
    return target
