"""Trees of an untrusted pod, read and written by a short-lived process that has become the agent's user.

The workspace is hostile, so the daemon never touches it: it starts this module as the user, `python3 -m runner.tree`,
and passes bytes through. Standard library and `wire` only; exit 65 with one line on stderr is a refusal, 66 is one for
the size.

    get [--exclude PATH …] ROOT [ROOT …]    write a deterministic tar to stdout; several roots under their full paths
    put [--clean] ROOT                      unpack a tar from stdin
"""

import argparse
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from wire.archive import BYTES_LIMIT, MEMBERS_LIMIT, extract, write_tree, write_trees
from wire.errors import InvalidInput

EXIT_REFUSED: Final = 65
EXIT_TOO_LARGE: Final = 66
PATH_LIMIT_BYTES: Final = 1024
"""Of a path below its root. A system call takes 4096 bytes, and a tree must be readable under other roots as well."""


class OverLimits(InvalidInput):
    """The folders hold more than an archive may."""


def main(arguments: Sequence[str]) -> int:
    """Do one thing to one tree."""
    options = _parse(arguments)
    try:
        _act(options)
    except OverLimits as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_TOO_LARGE
    except (InvalidInput, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="runner.tree")
    parser.add_argument("action", choices=["get", "put"])
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("roots", nargs="+", type=Path)
    return parser.parse_args(arguments)


def _act(options: argparse.Namespace) -> None:
    roots: list[Path] = options.roots
    if options.action == "put":
        put(sys.stdin.buffer, roots[0], clean=options.clean)
        return
    check(roots)
    get(roots, sys.stdout.buffer, options.exclude)
    sys.stdout.buffer.flush()


def get(roots: Sequence[Path], out: BinaryIO, excluded: Sequence[str]) -> None:
    """Write one tree, or several under their full paths."""
    if len(roots) == 1:
        write_tree(roots[0], out, excluded)
    else:
        write_trees(roots, out)


def put(stream: BinaryIO, root: Path, *, clean: bool) -> None:
    """Unpack a tar below a folder. Links may point anywhere: the user could have made them too."""
    if clean:
        empty(root)
    extract(stream, root, any_links=True)


def empty(root: Path) -> None:
    """Remove everything below a folder, never through a link."""
    # By programs, not `shutil.rmtree`: an agent can nest folders deeper than Python recurses, and lock each of them.
    subprocess.run(["chmod", "-R", "u+rwX", "--", root], check=False, stderr=subprocess.DEVNULL)
    done = subprocess.run(["find", root, "-mindepth", "1", "-delete"], check=False, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise InvalidInput(f"{root} cannot be emptied: {done.stderr[:500].decode(errors='replace')}")


def check(roots: Sequence[Path]) -> None:
    """Make what the user locked against itself readable, and refuse trees over the limits before they are written."""
    members = total = 0
    for root in roots:
        if not root.is_dir():
            raise InvalidInput(f"{root} is no folder")
        open_up(root)
        for folder, folders, files in os.walk(root):
            _check_depth(root, folder, (*folders, *files))
            members += len(folders) + len(files)
            for name in folders:
                open_up(Path(folder, name))
            total += sum(open_up(Path(folder, name)) for name in files)
            if members > MEMBERS_LIMIT or total > BYTES_LIMIT:
                where = " and ".join(map(str, roots))
                raise OverLimits(f"{where}: over {MEMBERS_LIMIT} members or {BYTES_LIMIT} bytes")


def _check_depth(root: Path, folder: str, names: Sequence[str]) -> None:
    above = len(os.fsencode(folder)) - len(os.fsencode(root))
    if above + max((len(os.fsencode(name)) for name in names), default=0) > PATH_LIMIT_BYTES:
        raise OverLimits(f"{root}: a path in it is longer than {PATH_LIMIT_BYTES} bytes")


def open_up(path: Path) -> int:
    """Let the owner read a file or folder of its own, and return its size; modes are not part of a digest."""
    facts = path.lstat()
    is_folder = stat.S_ISDIR(facts.st_mode)
    needed = 0o700 if is_folder else 0o400
    if facts.st_uid == os.geteuid() and facts.st_mode & needed != needed and not path.is_symlink():
        path.chmod(facts.st_mode & 0o777 | needed, follow_symlinks=True)
    return 0 if is_folder else facts.st_size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
