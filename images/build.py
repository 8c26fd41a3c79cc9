#!/usr/bin/env python3
"""Build the images with buildah from package registries alone, skipping whatever is there already.

Standard library only: it runs before anything of ours is installed. What it makes is kept outside the checkout under
a key made of the content that went in (`PROCTOR_CACHE`, else /var/cache/proctor for root, ~/.cache/proctor for users).
Results go to standard output, progress to standard error, so that callers can use what is printed.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("sandbox", "proctor")
REGISTRY = "proctor.test"  # a reserved domain: nothing can be pulled from there by mistake
CERTIFICATES = Path("/etc/ssl/certs")
BASE_PACKAGES = ("ca-certificates",)
NEEDED = {
    "bwrap": "bubblewrap",  # runs what is built here
    "buildah": "buildah",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "unshare": "util-linux",
}
NEEDED_BY_USERS = {"newuidmap": "uidmap"}
CODE = {"sandbox": ("wire", "runner"), "proctor": ("wire", "hub", "proctor", "operator/controller", "tasks")}
IGNORED = {"__pycache__", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What each result depends on, as short hashes."""

    base: str
    locks: str
    root: str
    """The sandbox image without our code."""
    sandbox: str
    proctor: str

    def image(self, image: str) -> str:
        """Return the key of an image."""
        return self.sandbox if image == "sandbox" else self.proctor


def keys(root: Path = ROOT) -> Keys:
    """Compute every key from the files of the repository."""
    base = _key([], BASE_PACKAGES)
    scaffolds = sorted(root.glob("tasks/*/*/public/scaffold"))
    locks = _key([folder / name for folder in scaffolds for name in ("package.json", "package-lock.json", ".npmrc")])
    dockerfile = {image: root / "images" / image / "Dockerfile" for image in IMAGES}
    sandbox_root = _key([dockerfile["sandbox"], root / "requirements" / "runner.txt"], (base, locks))
    code = {image: _key([root / folder for folder in CODE[image]]) for image in IMAGES}
    proctor = _key([dockerfile["proctor"], root / "requirements" / "proctor.txt"], (base, code["proctor"]))
    return Keys(
        base=base, locks=locks, root=sandbox_root, sandbox=_key([], (sandbox_root, code["sandbox"])), proctor=proctor
    )


def _key(paths: list[Path], words: tuple[str, ...] = ()) -> str:
    """Hash files and folders by relative name, executable bit and content, with some words added."""
    state = hashlib.sha256(repr(words).encode())
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
        for file in files:
            if file.is_file() and not IGNORED & set(file.parts):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                name = file.relative_to(path.parent).as_posix()
                state.update(repr((name, os.access(file, os.X_OK), content)).encode())
    return state.hexdigest()[:12]


def cache_root() -> Path:
    """Return the folder that outlives checkouts."""
    if told := os.environ.get("PROCTOR_CACHE"):
        return Path(told)
    return Path("/var/cache/proctor") if os.geteuid() == 0 else Path.home() / ".cache" / "proctor"


def say(line: str) -> None:
    """Report progress where it does not mix with results."""
    print(line, file=sys.stderr, flush=True)


# Device nodes stay out: an ordinary user's tar cannot make them, and a pod gets a /dev of its own.
PACK = """set -e; tag=$1; shift
container=$("$@" from --pull-never "$tag")
tar --numeric-owner --exclude='./dev/*' -C "$("$@" mount "$container")" -cf - .
"$@" umount "$container" >&2
"$@" rm "$container" >&2
"""


class Builder:
    """Images and root file systems in one cache folder; every verb does nothing when its result is there."""

    def __init__(self, cache: Path, key: Keys) -> None:
        self.cache, self.key = cache, key
        store = cache / "buildah"
        self.buildah = ["buildah", "--root", str(store / "root"), "--runroot", str(store / "run")]

    def ref(self, image: str) -> str:
        """Return an image's name; its tag is its content, so a node never runs a stale one."""
        return f"{REGISTRY}/{image}:{self.key.image(image)}"

    def base(self) -> str:
        """Make the minimal Debian both images start from."""
        tag = f"localhost/proctor-base:{self.key.base}"
        if self._has(tag):
            return tag
        tar = self.cache / f"base-{self.key.base}.tar"
        excludes = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale")]
        # mmdebstrap copies the build host's name and resolver into what it makes.
        clean = '--customize-hook=rm -f "$1/etc/hostname" "$1/etc/resolv.conf"'
        include = f"--include={','.join(BASE_PACKAGES)}"
        with timed("base layer"):
            self._run(
                "mmdebstrap", "--variant=minbase", include, *excludes, clean, "bookworm", str(tar), *apt_sources()
            )
            container = self._output("from", "scratch")
            self._run(*self.buildah, "add", container, str(tar), "/")
            self._run(*self.buildah, "config", "--cmd", "/bin/bash", container)
            self._run(*self.buildah, "commit", "--rm", container, tag)
        tar.unlink()
        return tag

    def image(self, image: str, *, stage: str | None = None) -> str:
        """Build an image, or one stage of it, and return its name in the store."""
        tag = self.ref(image) if stage is None else f"{REGISTRY}/{image}-{stage}:{self.key.root}"
        if self._has(tag):
            return tag
        arguments = {"BASE": self.base(), "LOCKS": self.key.locks if image == "sandbox" else ""}
        # Behind a proxy that opens TLS a build needs the host's certificates; they are mounted, never copied in.
        if extra := os.environ.get("NODE_EXTRA_CA_CERTS"):
            arguments["NODE_EXTRA_CA_CERTS"] = extra
        with timed(f"image {image}" + (f", stage {stage}" if stage else "")):
            self._run(
                *self.buildah, "bud", "--layers", "--pull-never", "--isolation=chroot",
                *([f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.is_dir() else []),
                *[f"--build-arg={name}={value}" for name, value in arguments.items() if value],
                *([f"--target={stage}"] if stage else []),
                f"--tag={tag}", f"--file=images/{image}/Dockerfile", ".",
            )  # fmt: skip
        return tag

    def archive(self, image: str) -> Path:
        """Write an image as an OCI archive; archives of earlier content go away."""
        path = self.cache / "archives" / f"{image}-{self.key.image(image)}.tar"
        if path.exists():
            return path
        tag = self.image(image)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with timed(f"archive of {image}"):
            self._run(
                *self.buildah, "push", "--quiet", "--compression-format=zstd", tag, f"oci-archive:{partial}:{tag}"
            )
        for old in path.parent.glob(f"{image}-*.tar"):
            old.unlink()
        self._forget_others(tag)
        partial.rename(path)
        return path

    def rootfs(self) -> Path:
        """Unpack the sandbox image without our own code, for pods without a cluster."""
        path = self.rootfs_path
        if path.exists():
            return path
        tag = self.image("sandbox", stage="root")
        partial = path.with_name(path.name + ".partial")
        self._run(*in_user_namespace(), "rm", "-rf", str(partial))
        partial.mkdir(parents=True)
        with timed("root file system"):
            self._unpack(tag, partial)
        partial.rename(path)
        return path

    @property
    def rootfs_path(self) -> Path:
        """Where the root file system is, once it is built."""
        return self.cache / "rootfs" / self.key.root

    def _unpack(self, tag: str, folder: Path) -> None:
        """Copy an image's files, owners as they are inside, through a pipe between two user namespaces."""
        outer = [] if os.geteuid() == 0 else ["buildah", "unshare"]
        pack = [*outer, "sh", "-c", PACK, "sh", tag, *self.buildah]
        unpack = [*in_user_namespace(), "tar", "-xp", "--numeric-owner", "-C", str(folder)]
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
            subprocess.run(unpack, stdin=packing.stdout, check=True)
        if packing.returncode != 0:
            raise subprocess.CalledProcessError(packing.returncode, pack)

    def prune(self) -> None:
        """Remove root file systems of earlier content, and what the store keeps to build faster."""
        self._forget_others(f"{REGISTRY}/sandbox-root:{self.key.root}")
        self._run(*self.buildah, "rmi", "--prune", "--force")
        for old in (self.cache / "rootfs").glob("*"):
            if old != self.rootfs_path:
                self._run(*in_user_namespace(), "rm", "-rf", str(old))

    def _forget_others(self, tag: str) -> None:
        """Remove an image's earlier content from the store."""
        name = tag.rsplit(":", 1)[0]
        for other in self._output("images", "--format={{.Name}}:{{.Tag}}").splitlines():
            if other.startswith(f"{name}:") and other != tag:
                self._run(*self.buildah, "rmi", "--force", other)

    def _has(self, tag: str) -> bool:
        return subprocess.run([*self.buildah, "inspect", "--type=image", tag], capture_output=True).returncode == 0

    def _run(self, *argv: str) -> None:
        subprocess.run(argv, check=True, cwd=ROOT, stdout=sys.stderr)

    def _output(self, *argv: str) -> str:
        return subprocess.run([*self.buildah, *argv], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def apt_sources() -> list[str]:
    """Return the host's own package sources where they are those of the base's release; else mmdebstrap knows some."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    same = release.get("ID") == "debian" and release.get("VERSION_CODENAME") == "bookworm"
    known = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
    return [str(path) for path in known if same and path.exists()][:1]


def in_user_namespace() -> list[str]:
    """Return the prefix under which an ordinary user may own files of several ids."""
    return [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--map-auto"]


def packages() -> list[str]:
    """Return the Debian packages that this machine lacks."""
    needed = NEEDED if os.geteuid() == 0 else {**NEEDED, **NEEDED_BY_USERS}
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = {package for program, package in needed.items() if shutil.which(program, path=path) is None}
    own_debian = os.access("/usr/share/keyrings/debian-archive-keyring.gpg", os.R_OK)
    return sorted(found if own_debian else found | {"debian-archive-keyring"})


def missing() -> list[str]:
    """Say in words what this machine lacks for building."""
    lines = [f"apt-get install {' '.join(lacking)}"] if (lacking := packages()) else []
    if os.geteuid() != 0 and not has_id_range():
        lines.append("give this user a range in /etc/subuid and /etc/subgid (usermod --add-subuids 100000-165535 "
                     "--add-subgids 100000-165535 USER), or build as root")  # fmt: skip
    return lines


def has_id_range() -> bool:
    """Tell whether this user may map a range of ids."""
    import pwd

    user = pwd.getpwuid(os.geteuid())
    for file in (Path("/etc/subuid"), Path("/etc/subgid")):
        lines = file.read_text().splitlines() if file.exists() else []
        if not any(line.split(":")[0] in (user.pw_name, str(user.pw_uid)) for line in lines):
            return False
    return True


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Report what is being made and how long it took."""
    began = time.monotonic()
    say(f"building {what} …")
    yield
    say(f"built {what} in {time.monotonic() - began:.0f} s")


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """Keep two builds from working on one cache at once; the second finds the first one's results."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Do what the command line says."""
    cache, key = cache_root(), keys()
    builder = Builder(cache, key)
    verb = parser().parse_args().verb
    if verb == "packages":
        print(" ".join(packages()))
    elif verb == "refs":
        print(json.dumps({image: builder.ref(image) for image in IMAGES}))
    elif verb == "rootfs" and builder.rootfs_path.exists():
        print(builder.rootfs_path)
    elif lacking := missing():
        say("cannot build images: " + "; ".join(lacking))
        return 2
    else:
        with alone(cache):
            make(verb, builder)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = top.add_subparsers(dest="verb", required=True)
    verbs.add_parser("rootfs", help="print the path of the sandbox's root file system")
    verbs.add_parser("archives", help="print names and OCI archives of the images as JSON")
    verbs.add_parser("refs", help="print the images' names as JSON, building nothing")
    verbs.add_parser("packages", help="print the Debian packages that this machine lacks")
    verbs.add_parser("prune", help="remove what belongs to earlier content")
    return top


def make(verb: str, builder: Builder) -> None:
    """Build what is asked for and print where it is."""
    if verb == "rootfs":
        print(builder.rootfs())
    elif verb == "archives":
        told = {image: {"ref": builder.ref(image), "archive": str(builder.archive(image))} for image in IMAGES}
        print(json.dumps(told))
    else:
        builder.prune()


if __name__ == "__main__":
    sys.exit(main())
