"""Archives: equal trees give equal bytes, and a hostile archive is refused."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from wire.archive import extract, tree_bytes, write_trees
from wire.digest import of_bytes
from wire.errors import InvalidInput


def plant(root: Path) -> Path:
    """Make a small tree with every kind of member."""
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.ts").write_text("a")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o700)
    (root / "link").symlink_to("src/a.ts")
    (root / "empty").mkdir()
    return root


def test_equal_trees_give_equal_bytes(tmp_path: Path) -> None:
    """Times, owners, exact modes and the order of creation do not matter."""
    first = plant(tmp_path / "first")
    second = tmp_path / "second"
    (second / "empty").mkdir(parents=True)
    (second / "link").symlink_to("src/a.ts")
    (second / "run.sh").write_text("#!/bin/sh\n")
    (second / "run.sh").chmod(0o755)
    (second / "src").mkdir(0o700)
    (second / "src" / "a.ts").write_text("a")
    os.utime(second / "src" / "a.ts", (1, 1))
    assert tree_bytes(first) == tree_bytes(second)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda root: (root / "src" / "a.ts").write_text("b"), id="content"),
        pytest.param(lambda root: (root / "run.sh").chmod(0o600), id="execute bit"),
        pytest.param(lambda root: (root / "empty").rmdir(), id="empty folder"),
        pytest.param(lambda root: (root / "src" / "a.ts").rename(root / "src" / "b.ts"), id="name"),
    ],
)
def test_any_change_changes_the_digest(tmp_path: Path, change: object) -> None:
    """One changed byte, bit or name gives another digest."""
    root = plant(tmp_path / "tree")
    before = of_bytes(tree_bytes(root))
    assert callable(change)
    change(root)
    assert of_bytes(tree_bytes(root)) != before


def test_extracting_gives_the_tree_back(tmp_path: Path) -> None:
    """A round trip through an archive keeps the digest."""
    packed = tree_bytes(plant(tmp_path / "tree"))
    (tmp_path / "out").mkdir()
    extract(io.BytesIO(packed), tmp_path / "out")
    assert tree_bytes(tmp_path / "out") == packed


def test_excluded_paths_are_anchored_at_the_root(tmp_path: Path) -> None:
    """`src` drops /src alone; a folder of that name further down stays."""
    root = plant(tmp_path / "tree")
    (root / "lib" / "src").mkdir(parents=True)
    (root / "lib" / "src" / "kept.ts").write_text("k")
    with tarfile.open(fileobj=io.BytesIO(tree_bytes(root, ["src"]))) as tar:
        names = tar.getnames()
    assert "lib/src/kept.ts" in names
    assert "src/a.ts" not in names


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "-5"}


def hostile(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", headers: dict[str, str] | None = None
) -> io.BytesIO:
    """Make an archive of one member that nobody honest would write."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.pax_headers = kind, target, headers or {}
        tar.addfile(member, io.BytesIO(b""))
    out.seek(0)
    return out


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(hostile("/etc/passwd"), id="absolute path"),
        pytest.param(hostile("a/../../b"), id="parent folder"),
        pytest.param(hostile("hard", tarfile.LNKTYPE, "/etc/passwd"), id="hard link"),
        pytest.param(hostile("dev", tarfile.CHRTYPE), id="device"),
        pytest.param(hostile("pipe", tarfile.FIFOTYPE), id="pipe"),
        pytest.param(hostile("link", tarfile.SYMTYPE, "/etc"), id="link to an absolute path"),
        pytest.param(hostile("link", tarfile.SYMTYPE, "../../etc"), id="link outside"),
        pytest.param(hostile("link", tarfile.SYMTYPE, "x" * 5000), id="link longer than a path"),
        pytest.param(hostile("link", tarfile.SYMTYPE, "x", {"linkpath": "a\0b"}), id="link with a NUL"),
        pytest.param(hostile("."), id="file without a name"),
        pytest.param(hostile("x" * 256), id="name longer than a name"),
        pytest.param(hostile("d/" * 3000 + "f"), id="deeper than paths reach"),
        pytest.param(hostile("sparse", headers=SPARSE), id="sparse file of a negative size"),
        pytest.param(hostile("sparse", headers={**SPARSE, "GNU.sparse.realsize": "many"}), id="size that is no number"),
    ],
)
def test_a_hostile_archive_is_refused(tmp_path: Path, archive: io.BytesIO) -> None:
    """Whatever could reach outside its folder ends in one InvalidInput and nothing outside."""
    with pytest.raises(InvalidInput):
        extract(archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_may_point_outside_where_asked_but_is_never_followed(tmp_path: Path) -> None:
    """A checkpoint keeps the agent's links; writing through one is refused all the same."""
    (tmp_path / "in").mkdir()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("link/planted"), io.BytesIO(b""))
    out.seek(0)
    with pytest.raises(InvalidInput):
        extract(out, tmp_path / "in", any_links=True)
    assert (tmp_path / "in" / "link").is_symlink()
    assert not (tmp_path / "planted").exists()


def test_the_deepest_tree_that_is_taken_is_given_back(tmp_path: Path) -> None:
    """Folders deeper than Python recurses, known by the file at their bottom alone, and a long link."""
    (tmp_path / "in").mkdir()
    extract(hostile("d/" * 1500 + "f"), tmp_path / "in")
    (tmp_path / "in" / "link").symlink_to("x" * 4000)
    packed = tree_bytes(tmp_path / "in")
    (tmp_path / "out").mkdir()
    extract(io.BytesIO(packed), tmp_path / "out")
    assert tree_bytes(tmp_path / "out") == packed
    subprocess.run(["rm", "-r", tmp_path / "in", tmp_path / "out"], check=True)


def test_garbage_is_refused_as_input(tmp_path: Path) -> None:
    """Bytes that are no tar are the sender's mistake, not a crash."""
    with pytest.raises(InvalidInput):
        extract(io.BytesIO(b"no archive at all" * 100), tmp_path)


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("//etc/passwd", id="absolute by two slashes"),
        pytest.param("../outside", id="parent"),
        pytest.param("src/../../outside", id="through a folder"),
        pytest.param("inner/../../x", id="through another link"),
    ],
)
def test_links_that_leave_are_not_written(tmp_path: Path, target: str) -> None:
    """A tree of hostile links gives an archive that can always be read back."""
    root = plant(tmp_path / "tree")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "inner").symlink_to("deep/er")
    (root / "bad").symlink_to(target)
    packed = tree_bytes(root)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        names = tar.getnames()
    assert "bad" not in names
    assert {"link", "inner"} <= set(names)
    (tmp_path / "out").mkdir()
    extract(io.BytesIO(packed), tmp_path / "out")


def test_a_link_planted_at_a_members_place_is_replaced(tmp_path: Path) -> None:
    """Unpacking over a hostile folder writes files there, never through what was planted."""
    packed = tree_bytes(plant(tmp_path / "tree"))
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "victim").write_text("safe")
    (out / "run.sh").symlink_to(tmp_path / "victim")
    extract(io.BytesIO(packed), out)
    assert (tmp_path / "victim").read_text() == "safe"
    assert not (out / "run.sh").is_symlink()


def test_a_link_planted_at_a_folders_place_is_refused(tmp_path: Path) -> None:
    """A planted folder link would take whole subtrees elsewhere."""
    packed = tree_bytes(plant(tmp_path / "tree"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "src").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput):
        extract(io.BytesIO(packed), tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_several_trees_are_restored_to_their_places(tmp_path: Path) -> None:
    """A checkpoint of two folders comes back whole, links that point outside included."""
    for name in ("one", "two"):
        plant(tmp_path / name)
        (tmp_path / name / "out").symlink_to("/somewhere/else")
    out = io.BytesIO()
    write_trees([tmp_path / "two", tmp_path / "one"], out)
    (tmp_path / "one" / "run.sh").unlink()
    (tmp_path / "two" / "out").unlink()
    out.seek(0)
    extract(out, Path("/"), any_links=True)
    assert (tmp_path / "one" / "run.sh").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "two" / "out").is_symlink()
