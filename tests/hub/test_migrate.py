"""Migrations: each file once, whoever else tries, and never over a database that we do not understand."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from hub.database import MIGRATIONS, migrate
from wire.errors import Broken, NotReady


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two migrations of which the second fails when it is applied twice."""
    (tmp_path / "0001_one.sql").write_text("CREATE TABLE one (number integer);")
    (tmp_path / "0002_two.sql").write_text("INSERT INTO one VALUES (1); CREATE TABLE two (number integer);")
    return tmp_path


def test_several_at_once_apply_each_file_once(database_url: str, folder: Path) -> None:
    """Of six programs that start together one applies, the others wait and do nothing."""
    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(lambda _: migrate(database_url, folder), range(6))) == [0, 0, 0, 0, 0, 2]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM one").fetchone() == (1,)


def test_a_failing_file_leaves_nothing_of_itself(database_url: str, folder: Path) -> None:
    """What came before stays applied; the broken file is not half there."""
    (folder / "0003_bad.sql").write_text("CREATE TABLE three (number integer); SELECT nonsense;")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        migrate(database_url, folder)
    (folder / "0003_bad.sql").write_text("CREATE TABLE three (number integer);")
    assert migrate(database_url, folder) == 1


def test_a_changed_file_is_refused(database_url: str, folder: Path) -> None:
    """An applied migration is history."""
    migrate(database_url, folder)
    (folder / "0001_one.sql").write_text("CREATE TABLE one (number bigint);")
    with pytest.raises(Broken, match=r"0001_one\.sql was changed"):
        migrate(database_url, folder)


def test_a_newer_database_is_refused(database_url: str, folder: Path) -> None:
    """An old program does not touch what a newer one has made."""
    migrate(database_url, folder)
    (folder / "0002_two.sql").unlink()
    with pytest.raises(Broken, match="upgrade the hub"):
        migrate(database_url, folder)


def test_no_database_means_try_again(tmp_path: Path) -> None:
    """An absent server is not an error of ours."""
    with pytest.raises(NotReady):
        migrate(f"postgresql:///x?host={tmp_path}")


def test_our_own_migrations_are_numbered_without_gaps() -> None:
    """Two files with one number, or a gap, would make the order a matter of luck."""
    numbers = [int(file.name[:4]) for file in sorted(MIGRATIONS.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))
