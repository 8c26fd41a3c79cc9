"""The programs as they are started: settings, bundled packages, and one clear line for what is wrong."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from hub.app import open_store
from hub.settings import read_key
from tests.hub.builders import KEY, bearer, prepare, running_hub, wait_until
from wire.errors import InvalidInput
from wire.package import PackageManifest
from wire.packing import pack
from wire.token import Role


def start(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing but these settings in its environment."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={"PATH": os.defpath, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("hub", "serve"), {"HUB_CONNECTIONS": "0"}, "HUB_DATABASE_URL"),
        (
            ("hub", "serve"),
            {"HUB_DATABASE_URL": "postgresql:///x", "HUB_STORE": "/tmp", "HUB_INSTALLATION_KEY": "/nonexistent"},
            "installation key cannot be read",
        ),
        (("hub.gateway",), {}, "GATEWAY_INSTALLATION_KEY"),
    ],
)
def test_bad_settings_stop_a_program_naming_the_field(
    arguments: tuple[str, ...], settings: dict[str, str], message: str
) -> None:
    """Exit code 2 and one line."""
    done = start(*arguments, **settings)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "prefix"), [pytest.param(("hub", "serve"), "HUB", id="hub"), (("hub.gateway",), "GATEWAY")]
)
def test_bad_settings_are_told_without_the_password_in_others(arguments: tuple[str, ...], prefix: str) -> None:
    """A program's last words end in logs; what is wrong with one field is no reason to show another."""
    done = start(*arguments, **{f"{prefix}_DATABASE_URL": "postgresql://hub:hunter2@db/proctor"})
    assert (done.returncode, f"{prefix}_INSTALLATION_KEY" in done.stderr) == (2, True)
    assert "hunter2" not in done.stderr


def test_migrate_without_a_database_says_try_again(tmp_path: Path) -> None:
    """Exit code 75 is for what waiting mends."""
    (tmp_path / "key").write_bytes(KEY)
    settings = {"HUB_DATABASE_URL": f"postgresql:///x?host={tmp_path}", "HUB_STORE": str(tmp_path / "store")}
    assert start("hub", "migrate", **settings, HUB_INSTALLATION_KEY=str(tmp_path / "key")).returncode == 75


def test_the_hub_serves_as_a_program(database_url: str, tmp_path: Path) -> None:
    """`python -m hub serve` on a Unix socket becomes ready, answers, and ends on SIGTERM with code 0."""
    (tmp_path / "key").write_bytes(KEY)
    environment = {
        "PATH": os.defpath,
        "HUB_DATABASE_URL": database_url,
        "HUB_STORE": str(tmp_path / "store"),
        "HUB_INSTALLATION_KEY": str(tmp_path / "key"),
        "HUB_LISTEN": f"unix:{tmp_path}/hub.sock",
    }
    program = subprocess.Popen([sys.executable, "-m", "hub", "serve"], env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_until((tmp_path / "hub.sock").exists)
        transport = httpx2.HTTPTransport(uds=f"{tmp_path}/hub.sock", retries=5)
        with httpx2.Client(transport=transport, base_url="http://hub", headers=bearer(Role.OPERATOR)) as client:
            wait_until(lambda: client.get("/readyz").status_code == 200)
            assert client.get("/v1/runs").json() == []
            assert 'hub_requests_total{method="GET",route="/v1/runs",status="200"} 1.0' in client.get("/metrics").text
    finally:
        program.send_signal(signal.SIGTERM)
    assert program.wait(timeout=20) == 0


def test_keys_are_trimmed_and_never_short(tmp_path: Path) -> None:
    """A line end after the key does not change it; a key that can be guessed is refused."""
    (tmp_path / "key").write_bytes(KEY + b"\n")
    assert read_key(tmp_path / "key") == KEY
    (tmp_path / "key").write_bytes(b"short\n")
    with pytest.raises(InvalidInput, match="shorter"):
        read_key(tmp_path / "key")


def test_bundled_packages_are_stored_and_a_malformed_one_stops_none(
    database_url: str, tmp_path: Path, package_folder: Path
) -> None:
    """Every good task below the folder is there after the start; storing again changes nothing."""
    (package_folder.parent / "broken").mkdir()
    (package_folder.parent / "broken" / "task.toml").write_text("id = 3")
    with running_hub(tmp_path / "hub", database_url, bundled_tasks=package_folder.parent.parent) as hub:
        prepare(hub)
        digest = pack(package_folder).digest
        answer = hub.client.get(f"/v1/packages/{digest}")
        assert PackageManifest.model_validate(answer.json()).digest() == digest


def test_readiness_says_what_is_missing(tmp_path: Path) -> None:
    """A hub without its database says so, and not that it is still starting."""
    with running_hub(tmp_path, f"postgresql:///x?host={tmp_path}") as hub:
        wait_until(lambda: "database does not answer" in hub.client.get("/readyz").json()["error"]["message"])


@pytest.mark.parametrize("store", ["/dev/null/store", "s3://", "s3://bucket/below"])
def test_a_store_that_cannot_be_is_refused(store: str) -> None:
    """A place that is neither a usable folder nor a bucket is named at the start."""
    with pytest.raises(InvalidInput, match="HUB_STORE"):
        open_store(store, None)
