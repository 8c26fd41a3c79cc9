"""Deterministic tars: the one form in which trees travel, are stored and are hashed.

Members are sorted by path, times and owners are zeroed, modes are 0644, 0755 or a link's; equal trees give equal
bytes, so the digest of the bytes is the digest of the tree. Reading is strict: what a hostile archive could use to
leave its folder (absolute paths, `..`, devices, links that point outside, hard links, sparse files) is refused, not
repaired.
"""

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from wire.errors import InvalidInput

MEMBERS_LIMIT: Final = 200_000
BYTES_LIMIT: Final = 4 << 30
# What Linux takes; for paths with a thousand bytes to spare for the folder that they are unpacked below.
PATH_LIMIT_BYTES: Final = 3072
PART_LIMIT_BYTES: Final = 255
LINK_LIMIT_BYTES: Final = 4095
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def write_tree(root: Path, out: BinaryIO, excluded: Iterable[str] = ()) -> None:
    """Write a folder as a deterministic tar.

    `excluded` holds paths relative to `root`, anchored there: `dist` drops `/dist` and never `/src/dist`. Sockets,
    pipes and devices are left out, and so are links that leave the tree: whatever is written can be read back. Other
    links are stored as links, never followed.
    """
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in _walk(root, frozenset(excluded)):
            if not (path.is_symlink() and _leaves(root, path)):
                _add(tar, path, path.relative_to(root).as_posix())


def write_trees(roots: Iterable[Path], out: BinaryIO) -> None:
    """Write several folders under their full paths, with all their links; `extract` below `/` restores them."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for root in sorted(roots):
            for path in _walk(root, frozenset()):
                _add(tar, path, path.relative_to("/").as_posix())


def tree_bytes(root: Path, excluded: Iterable[str] = ()) -> bytes:
    """Return a small folder's deterministic tar."""
    out = io.BytesIO()
    write_tree(root, out, excluded)
    return out.getvalue()


def extract(stream: BinaryIO, root: Path, *, any_links: bool = False) -> None:
    """Unpack a tar into an existing folder.

    `any_links` also lets symbolic links point outside, as a checkpoint of a home folder needs; nothing is ever written
    through one. Only for a reader who has no more rights than the writer had.

    Raises:
        InvalidInput: no tar, a member that could reach outside or is neither file, folder nor link, or over the limits.
    """
    total = members = 0
    made: set[Path] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                members, total = members + 1, total + member.size
                if members > MEMBERS_LIMIT or total > BYTES_LIMIT:
                    raise InvalidInput(f"the archive has over {MEMBERS_LIMIT} members or {BYTES_LIMIT} bytes")
                _check(member, any_links)
                _place(tar, member, root, made)
    except (tarfile.TarError, ValueError) as error:
        # ValueError: a number in an extended header that is none.
        raise InvalidInput(f"the archive cannot be unpacked: {error}") from error


# By hand, not `tar.extract(…, filter="data")`: the image's Python 3.11.2 has no filters, and they follow a link
# that lay at a member's place before.
def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path, made: set[Path]) -> None:
    """Write one member without going through any link."""
    target = root / member.name
    _make_folders(root, target if member.isdir() else target.parent, made)
    if member.isdir():
        return
    if target.is_dir() and not target.is_symlink():
        raise InvalidInput(f"the archive member {member.name!r} would replace a folder")
    target.unlink(missing_ok=True)
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        target.symlink_to(member.linkname)
        return
    with os.fdopen(os.open(target, _NEW_FILE, 0o755 if member.mode & 0o111 else 0o644), "wb") as out:
        shutil.copyfileobj(content, out, 1 << 20)


def _make_folders(root: Path, folder: Path, made: set[Path]) -> None:
    """Make a folder below root and its parents; a link or file in the way is refused. `made` saves asking again."""
    missing: list[Path] = []
    while folder != root and folder not in made:
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        if one.is_symlink() or (one.exists() and not one.is_dir()):
            raise InvalidInput(f"the archive goes through {one.relative_to(root).as_posix()!r}, which is no folder")
        one.mkdir(exist_ok=True)
        made.add(one)


def _walk(root: Path, excluded: frozenset[str]) -> Iterator[Path]:
    """Yield everything below root in the order of the sorted relative paths, parents first."""
    pending = [root]
    found: list[Path] = []
    while pending:
        for entry in os.scandir(pending.pop()):
            path = Path(entry.path)
            if path.relative_to(root).as_posix() in excluded:
                continue
            found.append(path)
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
    return iter(sorted(found, key=lambda path: path.relative_to(root).as_posix().encode("utf-8", "surrogateescape")))


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    facts = path.lstat()
    member = tarfile.TarInfo(name)
    if stat.S_ISLNK(facts.st_mode):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        tar.addfile(member)
    elif stat.S_ISDIR(facts.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(member)
    elif stat.S_ISREG(facts.st_mode):
        member.size, member.mode = facts.st_size, 0o755 if facts.st_mode & 0o111 else 0o644
        with path.open("rb") as content:
            tar.addfile(member, content)


def _check(member: tarfile.TarInfo, any_links: bool) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise InvalidInput(f"the archive member {member.name!r} leaves its folder")
    if not _is_path(member.name) or not (path.parts or member.isdir()):
        raise InvalidInput(f"the archive member {member.name[:200]!r} has a name that no file can have")
    if member.issym() and not (
        0 < len(os.fsencode(member.linkname)) <= LINK_LIMIT_BYTES and "\0" not in member.linkname
    ):
        raise InvalidInput(f"the archive member {member.name!r} is a link to what cannot be a path")
    if member.issparse() or not (member.isreg() or member.isdir() or member.issym()):
        raise InvalidInput(f"the archive member {member.name!r} is neither file, folder nor symbolic link")
    if member.issym() and not any_links and _is_outside(path.parent, member.linkname):
        raise InvalidInput(f"the archive member {member.name!r} is a link that leaves its folder")


def _is_path(name: str) -> bool:
    """Tell whether a system call takes this name, also below another folder."""
    long = any(len(os.fsencode(part)) > PART_LIMIT_BYTES for part in name.split("/"))
    return "\0" not in name and not long and len(os.fsencode(name)) <= PATH_LIMIT_BYTES


def _is_outside(folder: PurePosixPath, link: str) -> bool:
    """Tell whether a link in `folder` (relative to the root) names a place outside the root, going by its words."""
    depth = len(folder.parts)
    for part in PurePosixPath(link).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return link.startswith("/")


def _leaves(root: Path, path: Path) -> bool:
    """Tell whether a link on disk leaves its root by its words, or could by way of another link."""
    link = str(path.readlink())
    if _is_outside(PurePosixPath(path.relative_to(root).as_posix()).parent, link):
        return True
    place = path.parent
    parts = PurePosixPath(link).parts
    for part in parts[:-1]:
        place = place.parent if part == ".." else place / part
        if place.is_symlink() and ".." in parts:
            return True
    return False
