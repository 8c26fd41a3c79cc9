"""A PostgreSQL server of a driver's own pod, for the submission's databases.

The submission connects over TCP with a role and password made for it; the superuser exists on the Unix socket alone,
which no other pod can reach. Nothing here outlives the pod, so nothing is synced to disk.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from wire.errors import Broken

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
SUPERUSER: Final = "postgres"
_HBA: Final = f"""\
local all all              trust
host  all {SUPERUSER} all  reject
host  all all all          scram-sha-256
"""
_SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "shared_buffers": "64MB",
    "password_encryption": "scram-sha-256",
    "log_min_messages": "fatal",
}


@dataclass(frozen=True)
class Database:
    """A database of the submission's own, and the role that owns it."""

    name: str
    role: str
    password: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Return what the submission is given."""
        return f"postgresql://{self.role}:{self.password}@{self.host}:{self.port}/{self.name}"

    def through(self, port: int) -> str:
        """Return the same URL by way of another port of this pod."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=f"{self.role}:{self.password}@{self.host}:{port}"))


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A running server."""

    host: str
    port: int
    admin: str
    """Connection string of the superuser, over the Unix socket."""

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, host: str) -> Iterator["Postgres"]:
        """Run a server with its data in a new folder, listening on this address, until the block ends.

        Raises:
            Broken: it does not start.
        """
        folder.mkdir(parents=True)
        _initialise(folder)
        port = _free_port(host)
        process = _launch(folder, host, port)
        try:
            admin = f"host={folder} port={port} user={SUPERUSER} dbname=postgres"
            _await(process, admin, folder)
            yield cls(host=host, port=port, admin=admin)
        finally:
            _stop(process)

    def create_database(self, connections: int = -1) -> Database:
        """Make an empty database whose role can do nothing else; -1 = as many connections as it likes."""
        name, role, password = f"d{secrets.token_hex(6)}", f"r{secrets.token_hex(6)}", secrets.token_hex(16)
        with psycopg.connect(self.admin, autocommit=True) as admin:
            admin.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} CONNECTION LIMIT {}").format(
                    sql.Identifier(role), sql.Literal(password), sql.Literal(connections)
                )
            )
            admin.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(role)))
            admin.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
        return Database(name, role, password, self.host, self.port)


def _initialise(folder: Path) -> None:
    options = ["--auth=trust", f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
    done = subprocess.run(
        [*_not_as_root(), _program("initdb"), "-D", str(folder / "pgdata"), *options],
        cwd=folder,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise Broken(f"initdb ended with {done.returncode}: {done.stdout[-500:].decode(errors='replace')}")
    (folder / "pgdata" / "pg_hba.conf").write_text(_HBA)


def _launch(folder: Path, host: str, port: int) -> "subprocess.Popen[bytes]":
    settings = {**_SETTINGS, "listen_addresses": host, "port": str(port), "unix_socket_directories": str(folder)}
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "server.log").open("wb") as output:
        return subprocess.Popen(
            [*_not_as_root(), _program("postgres"), "-D", str(folder / "pgdata"), *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _not_as_root() -> list[str]:
    """Return what lets PostgreSQL run under root, who is refused: only where a test is root, never in a pod."""
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []


def _await(process: "subprocess.Popen[bytes]", admin: str, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(admin, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                words = (folder / "server.log").read_bytes()[-500:].decode(errors="replace")
                raise Broken(f"PostgreSQL does not start: {error}; {words}") from error
            time.sleep(0.05)
        else:
            return


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Broken(f"{name} is not on PATH: this role needs PostgreSQL 16")
    return found


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
