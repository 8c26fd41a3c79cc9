"""Deterministic tars: the one form in which trees travel, are stored and are hashed.

Members are sorted by path, times and owners are zeroed, modes are 0644, 0755 or a link's; equal trees give equal
bytes, so the digest of the bytes is the digest of the tree. Reading is strict: what a hostile archive could use to
leave its folder (absolute paths, `..`, devices, links that point outside, hard links) is refused, not repaired.
"""

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from wire.errors import InvalidInput

MEMBERS_LIMIT: Final = 200_000
BYTES_LIMIT: Final = 4 << 30


def write_tree(root: Path, out: BinaryIO, excluded: Iterable[str] = ()) -> None:
    """Write a folder as a deterministic tar.

    `excluded` holds paths relative to `root`, anchored there: `dist` drops `/dist` and never `/src/dist`. Sockets,
    pipes and devices are left out. Links are stored as links, never followed.
    """
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _walk(root, frozenset(excluded)):
            _add(tar, path, path.relative_to(root).as_posix())


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
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                members, total = members + 1, total + member.size
                if members > MEMBERS_LIMIT or total > BYTES_LIMIT:
                    raise InvalidInput(f"the archive has over {MEMBERS_LIMIT} members or {BYTES_LIMIT} bytes")
                _check(member)
                tar.extract(member, root, filter="tar" if any_links else "data")
    except tarfile.TarError as error:
        raise InvalidInput(f"the archive cannot be unpacked: {error}") from error


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


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidInput(f"the archive member {member.name!r} leaves its folder")
    if not (member.isreg() or member.isdir() or member.issym()):
        raise InvalidInput(f"the archive member {member.name!r} is neither file, folder nor symbolic link")
