"""What must hold for the repository as a whole: how it is laid out and what never gets into it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Spelled apart, so that this file passes its own test.
REGISTRY_HOSTS = re.compile(
    "|".join(
        [r"registry\.npm" + r"js\.", r"python" + r"hosted\.org", r"py" + r"pi\.org", r"deb\." + r"debian\.org",
         r"proxy\.go" + r"lang\.", r"sum\.go" + r"lang\.", r"registry\.yarn" + r"pkg\.", r"snapshot\.deb" + r"ian\."]
    )
)  # fmt: skip
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(?:wo" + r"rk/|ro" + r"ot/|home/(?!proctor|dev)\w|Users/)|/tmp/(?:v|h\d|brief)/"
)


def tracked() -> list[Path]:
    """Return every file that git knows."""
    told = subprocess.run(["git", "ls-files", "-z"], check=True, cwd=ROOT, capture_output=True, text=True).stdout
    return [path for name in told.split("\0") if name and (path := ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Give every tracked text file by its path in the repository."""
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content:
            yield path.relative_to(ROOT).as_posix(), content.decode()


def hits(pattern: re.Pattern[str]) -> list[str]:
    """Return where a pattern occurs, as `path:line: text`."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_operator_folder_is_not_a_package() -> None:
    """An `__init__.py` there would hide the stdlib module and stop Python from starting."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_stdlib_operator_wins_from_the_repo_root() -> None:
    """Started where a developer or an image starts it, Python finds its own `operator`."""
    code = "import operator; print(operator.itemgetter.__name__)"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "itemgetter\n", done.stderr


def test_tests_are_not_packages_and_shadow_no_module() -> None:
    """A package under tests/ would import as another module than the one it mirrors."""
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert not (ROOT / "tests" / "operator").exists()


def test_no_registry_is_named() -> None:
    """Locks and scripts work with whatever registry the machine is set up for."""
    assert hits(REGISTRY_HOSTS) == []


def test_no_path_of_one_machine_is_named() -> None:
    """A clone works wherever it lies."""
    assert hits(MACHINE_PATHS) == []


def test_the_patterns_find_what_they_are_for() -> None:
    """A pattern that matches nothing would keep nothing out."""
    assert REGISTRY_HOSTS.search("https://files.python" + "hosted.org/packages/x.whl")
    assert MACHINE_PATHS.search("cd /wo" + "rk/main")
    assert not MACHINE_PATHS.search("/opt/proctor/work/main and /home/dev")


def test_every_requirement_is_pinned_by_hash() -> None:
    """What is installed is what was resolved, byte for byte."""
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        blocks = re.split(r"\n(?=[A-Za-z])", path.read_text())
        for block in (block for block in blocks if re.match(r"[A-Za-z]", block)):
            assert re.match(r"\S+==\S+", block), f"{path.name}: {block[:80]}"
            assert "--hash=sha256:" in block, f"{path.name}: {block[:80]}"


def test_big_files_stay_out() -> None:
    """What is built belongs into the cache."""
    assert [path.name for path in tracked() if path.stat().st_size > 1 << 20] == []
