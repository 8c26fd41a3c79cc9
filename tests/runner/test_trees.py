"""Trees of a hostile workspace: what the agent plants makes nobody read or write anything else."""

import io
import socket
import tarfile
import time
from pathlib import Path

import pytest

from runner.errors import TooLarge, Unprocessable
from tests.runner.processes import BEARER, Box, box
from wire.archive import tree_bytes
from wire.digest import of_bytes
from wire.errors import Broken
from wire.sandbox import CommandSpec


@pytest.fixture
def workspace(sandbox: Box) -> Path:
    """The sandbox's workspace, empty."""
    sandbox.client().put_tree(str(sandbox.workspace), empty_tar(), clean=True)
    return sandbox.workspace


def empty_tar() -> bytes:
    """Return an archive of nothing."""
    return tar({})


def tar(files: dict[str, bytes]) -> bytes:
    """Return an archive of some files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def as_agent(sandbox: Box, line: str) -> None:
    """Do something as the agent would."""
    name = f"plant-{time.monotonic_ns()}"
    done = sandbox.client().run(name, CommandSpec(argv=["sh", "-ec", line], cwd=str(sandbox.workspace)))
    assert done.passed, done.tail


def outside(sandbox: Box) -> Path:
    """Return a folder beside the workspace where the agent might write, so that only care keeps it from harm."""
    folder = sandbox.folder / "outside"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return folder


def names(archive: Path) -> set[str]:
    """Return what an archive holds."""
    with tarfile.open(archive) as content:
        return set(content.getnames())


def test_a_tree_comes_back_as_it_went(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """Out, in again, the same digest; and the digest asked for alone is that of the archive."""
    as_agent(sandbox, "mkdir -p src empty; echo a > src/a.ts; echo '#!' > run; chmod 700 run; ln -s src/a.ts link")
    daemon = sandbox.client()
    digest = daemon.get_tree([str(workspace)], tmp_path / "tree.tar")
    assert digest == of_bytes((tmp_path / "tree.tar").read_bytes()) == daemon.digest(str(workspace))
    as_agent(sandbox, "rm -r src; echo other > new")
    daemon.put_tree(str(workspace), tmp_path / "tree.tar", clean=True)
    assert daemon.digest(str(workspace)) == digest


def test_excluded_paths_are_left_out(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """At the root alone."""
    as_agent(sandbox, "mkdir -p node_modules src/node_modules; touch node_modules/a src/node_modules/b")
    sandbox.client().get_tree([str(workspace)], tmp_path / "tree.tar", ["node_modules"])
    assert names(tmp_path / "tree.tar") == {"src", "src/node_modules", "src/node_modules/b"}


def test_planted_links_show_nothing(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """Links are never followed, and those that leave the tree are not even stored."""
    as_agent(sandbox, f"ln -s {sandbox.folder}/secrets/daemon key; ln -s {sandbox.folder}/secrets folder; touch ok")
    sandbox.client().get_tree([str(workspace)], tmp_path / "tree.tar")
    assert names(tmp_path / "tree.tar") == {"ok"}
    assert BEARER.encode() not in (tmp_path / "tree.tar").read_bytes()


def test_a_link_at_a_files_place_is_replaced_and_not_written_through(sandbox: Box, workspace: Path) -> None:
    """The archive's file takes the link's place; what the link named stays as it was."""
    victim = outside(sandbox) / "victim"
    victim.write_text("safe")
    victim.chmod(0o666)
    as_agent(sandbox, f"ln -s {victim} package.json")
    sandbox.client().put_tree(str(workspace), tar({"package.json": b"new"}))
    assert victim.read_text() == "safe"
    assert (workspace / "package.json").read_text() == "new"


def test_a_link_at_a_folders_place_is_refused(sandbox: Box, workspace: Path) -> None:
    """Nothing is written below it."""
    elsewhere = outside(sandbox)
    as_agent(sandbox, f"ln -s {elsewhere} src")
    with pytest.raises(Unprocessable, match="src"):
        sandbox.client().put_tree(str(workspace), tar({"src/a.ts": b"x"}))
    assert not (elsewhere / "a.ts").exists()


def test_cleaning_goes_through_no_link(sandbox: Box, workspace: Path) -> None:
    """What a link names outlives the link."""
    kept = outside(sandbox)
    (kept / "file").write_text("x")
    as_agent(sandbox, f"ln -s {kept} gone; mkdir locked; touch locked/x; chmod 500 locked")
    sandbox.client().put_tree(str(workspace), empty_tar(), clean=True)
    assert list(workspace.iterdir()) == []
    assert (kept / "file").exists()


def test_pipes_and_sockets_hold_nobody_up(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """They are left out; reading one would wait for ever."""
    as_agent(sandbox, "mkfifo pipe; touch ok")
    sandbox.client().get_tree([str(workspace)], tmp_path / "tree.tar")
    assert names(tmp_path / "tree.tar") == {"ok"}


def test_hard_links_are_two_files(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """An archive never refers to another place."""
    as_agent(sandbox, "echo x > a; ln a b")
    sandbox.client().get_tree([str(workspace)], tmp_path / "tree.tar")
    with tarfile.open(tmp_path / "tree.tar") as archive:
        assert [(member.name, member.isreg()) for member in archive] == [("a", True), ("b", True)]


def test_what_the_user_locked_against_itself_is_read_all_the_same(sandbox: Box, workspace: Path) -> None:
    """A mode of 000 is no way to keep a candidate from being taken."""
    as_agent(sandbox, "mkdir d; echo x > d/f; chmod 000 d/f; chmod 000 d")
    locked = sandbox.client().digest(str(workspace))
    assert locked == of_bytes(tree_bytes(workspace))


def test_a_tree_over_the_limit_is_refused_before_it_is_sent(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """A sparse file of any size costs nobody a disk."""
    as_agent(sandbox, "truncate -s 100G big")
    with pytest.raises(Unprocessable, match="bytes"):
        sandbox.client().get_tree([str(workspace)], tmp_path / "tree.tar")


@pytest.mark.parametrize(
    ("levels", "name"), [pytest.param(1100, "d", id="many folders"), pytest.param(60, "d" * 100, id="long names")]
)
def test_a_tree_deeper_than_paths_reach_is_over_the_limit(
    sandbox: Box, workspace: Path, tmp_path: Path, levels: int, name: str
) -> None:
    """It is the agent's doing and said so, not an error of ours; and it can be cleared away, locked as it is."""
    step = f"(os.mkdir('{name}'), os.chdir('{name}'))"
    as_agent(sandbox, f'python3 -c "import os; [{step} for _ in range({levels})]"')
    as_agent(sandbox, "mkdir -p a/b/c; touch a/b/c/d; chmod 000 a/b/c a/b a")
    with pytest.raises(TooLarge, match="longer"):
        sandbox.client().get_tree([str(workspace)], tmp_path / "tree.tar")
    sandbox.client().put_tree(str(workspace), empty_tar(), clean=True)
    assert list(workspace.iterdir()) == []


def test_several_folders_come_back_to_their_places(sandbox: Box, workspace: Path, tmp_path: Path) -> None:
    """A checkpoint restores workspace and home, links that leave included."""
    as_agent(sandbox, f"echo w > w; ln -sfn /etc out; echo h > {sandbox.home}/h")
    daemon = sandbox.client()
    both = [str(workspace), str(sandbox.home)]
    daemon.get_tree(both, tmp_path / "both.tar")
    for folder in both:
        daemon.put_tree(folder, empty_tar(), clean=True)
    daemon.put_tree("/", tmp_path / "both.tar")
    assert (workspace / "w").read_text() == "w\n"
    assert (sandbox.home / "h").read_text() == "h\n"
    assert (workspace / "out").readlink() == Path("/etc")


@pytest.mark.parametrize(
    ("root", "archive"),
    [
        pytest.param("workspace", empty_tar(), id="relative folder"),
        pytest.param("/nowhere/at/all", tar({"a": b""}), id="no such folder"),
        pytest.param("WORKSPACE", b"no tar" * 1000, id="no tar"),
        pytest.param("WORKSPACE", tar({"../up": b""}), id="parent folder"),
    ],
)
def test_what_cannot_be_unpacked_is_refused(sandbox: Box, workspace: Path, root: str, archive: bytes) -> None:
    """One clear error, also when the sender has not sent everything when it is clear."""
    with pytest.raises(Unprocessable):
        sandbox.client().put_tree(root.replace("WORKSPACE", str(workspace)), archive + bytes(8 << 20))


def test_a_cut_upload_leaves_the_daemon_well(sandbox: Box, workspace: Path) -> None:
    """A driver that dies in the middle of an upload is no reason to hang."""
    with socket.create_connection(("127.0.0.1", sandbox.port)) as line:
        head = f"PUT /v1/tree?root={workspace} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {BEARER}"
        line.sendall(f"{head}\r\nContent-Length: 10000000\r\n\r\n".encode() + tar({"a": b"x"})[:700])
        time.sleep(0.3)
    sandbox.client().put_tree(str(workspace), tar({"a": b"whole"}), clean=True)
    assert (workspace / "a").read_text() == "whole"


def test_root_lends_its_rights_to_nobody(root_sandbox: Box) -> None:
    """Folders that only root may read stay closed to trees, whichever way they are asked for."""
    closed = root_sandbox.folder / "spool"
    assert closed.stat().st_uid == 0
    with pytest.raises(Unprocessable):
        root_sandbox.client().digest(str(closed))
    with pytest.raises(Unprocessable):
        root_sandbox.client().put_tree(str(closed), tar({"planted": b""}))
    assert list(closed.glob("planted")) == []


def test_a_reading_process_that_is_halted_is_given_up(tmp_path: Path) -> None:
    """The agent's other processes may stop it; nobody waits for it for long."""
    with box(tmp_path / "box", stall_seconds=1) as sandbox:
        as_agent(sandbox, "mkdir many; cd many; seq 20000 | xargs touch")
        halt = f"while :; do pkill -STOP -f '[r]unner.tree get.*{sandbox.workspace}'; done"
        sandbox.client().put_command("halt", CommandSpec(argv=["sh", "-c", halt], cwd="/"))
        with pytest.raises(Broken, match="nothing"):
            sandbox.client().get_tree([str(sandbox.workspace)], tmp_path / "tree.tar")
        sandbox.client().stop()
        sandbox.client().get_tree([str(sandbox.workspace)], tmp_path / "tree.tar")
