"""The sandbox image without a container engine: its root file system, its environment, and our own packages.

`images/build.py` makes the root and caches it under a key of its content; the packages are those of this checkout,
bound over the root, so an edit needs no new image.
"""

import importlib.util
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wire.errors import InvalidInput

CHECKOUT = Path(__file__).resolve().parents[2]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Image:
    """What a container needs of the image."""

    root: Path
    env: Mapping[str, str]
    library: Mapping[str, Path]


def find_image() -> Image:
    """Return the image, building its root when it is not there yet. Raises InvalidInput with the fix."""
    builder = [sys.executable, str(CHECKOUT / "images" / "build.py"), "rootfs"]
    done = subprocess.run(builder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise InvalidInput("the sandbox's root file system cannot be built; the lines above say why")
    env = image_env((CHECKOUT / "images" / "sandbox" / "Dockerfile").read_text(), "root")
    return Image(root=Path(done.stdout.strip()), env=env, library=library())


def library() -> dict[str, Path]:
    """Return our packages that run inside pods."""
    found: dict[str, Path] = {}
    for name in ("wire", "runner"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise InvalidInput(f"the package {name} is not installed")
        found[name] = Path(spec.origin).parent
    return found


def image_env(dockerfile: str, stage: str) -> dict[str, str]:
    """Return what the ENV lines of one stage set."""
    env, inside = {"PATH": PATH}, False
    for line in dockerfile.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["FROM"]:
            inside = words[-2:] == ["AS", stage]
        elif words[:1] == ["ENV"] and inside:
            env |= dict(word.split("=", 1) for word in words[1:])
    return env
