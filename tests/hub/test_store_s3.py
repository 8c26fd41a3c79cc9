"""The store in a real S3 service: SeaweedFS, started, spoilt and killed for the occasion."""

import os
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from proctor.local.postgres import Postgres
from tests.hub.builders import Hub, prepare, running_hub, wait_until
from tests.hub.conftest import new_database
from wire.digest import of_bytes

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [
    pytest.mark.local,
    # Said by `six`, which a dependency of boto3 brings, at its first import.
    pytest.mark.filterwarnings("ignore:_SixMetaPathImporter:ImportWarning"),
]
BUCKET = "proctor"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "proctor-test", "AWS_SECRET_ACCESS_KEY": "proctor-test-secret"}


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and whose number plus 10000 is free too: the server takes both."""
    found: list[int] = []
    for port in range(21000, 32000, 7):
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError("no free ports")


@dataclass(kw_only=True)
class Weed:
    """One S3 server with one bucket."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(5))
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        """Start it and wait for the bucket."""
        s3, filer, master, volume, admin = self.ports
        logs, objects = self.folder / "logs", self.folder / "objects"
        for folder in (logs, objects):
            folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [
                str(Path(sysconfig.get_path("scripts")) / "weed"),
                f"-logdir={logs}",
                "mini",
                f"-dir={objects}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-master.telemetry=false",
                "-admin.ui=false",
                "-webdav=false",
                f"-bucket={BUCKET}",
                f"-s3.port={s3}",
                f"-filer.port={filer}",
                f"-master.port={master}",
                f"-volume.port={volume}",
                f"-admin.port={admin}",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
            ],
            env={"PATH": os.defpath, "HOME": str(self.folder), "TMPDIR": str(self.folder), **CREDENTIALS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._has_bucket, seconds=60)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=20)

    def client(self) -> "S3Client":
        """Return a client of it."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def _has_bucket(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.ports[0]), timeout=1):
                pass
        except OSError:
            return False
        return any(bucket["Name"] == BUCKET for bucket in self.client().list_buckets()["Buckets"])


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    """One server for this module."""
    server = Weed(folder=tmp_path_factory.mktemp("weed"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def s3_hub(weed: Weed, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub whose store is the bucket."""
    told = {**CREDENTIALS, "AWS_DEFAULT_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("s3hub")
        database = new_database(postgres, "s3")
        with running_hub(folder, database, store=f"s3://{BUCKET}", store_endpoint=weed.endpoint) as hub:
            prepare(hub)
            yield hub


@pytest.mark.parametrize("size", [0, 1000, 20 << 20], ids=["empty", "small", "in several parts"])
def test_what_goes_in_comes_out(s3_hub: Hub, size: int) -> None:
    """The bucket gives back what was put, in one part or several."""
    content = os.urandom(size)
    path = f"/v1/archives/{of_bytes(content)}"
    for _ in range(2):
        assert s3_hub.client.put(path, content=content).json()["bytes"] == size
    assert s3_hub.client.get(path).content == content


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_one_flipped_byte_in_the_bucket_is_never_delivered(s3_hub: Hub, weed: Weed, size: int) -> None:
    """As with a folder: an error or a broken stream, then an error, and a new upload mends it."""
    content = os.urandom(size)
    name = of_bytes(content).removeprefix("sha256:")
    path, key = f"/v1/archives/{of_bytes(content)}", f"archives/{name[:2]}/{name}"
    assert s3_hub.client.put(path, content=content).status_code == 200
    client = weed.client()
    stored = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    stored[len(stored) // 2] ^= 1
    client.put_object(Bucket=BUCKET, Key=key, Body=bytes(stored))
    try:
        assert s3_hub.client.get(path).status_code == 422
    except httpx2.TransportError:
        assert size > 1 << 20
    assert s3_hub.client.get(path).json()["error"]["reason"] == "DigestMismatch"
    assert s3_hub.client.put(path, content=content).status_code == 200
    assert s3_hub.client.get(path).content == content


def test_an_object_that_is_gone_is_said_to_be_lost(s3_hub: Hub, weed: Weed) -> None:
    """A bucket without the object is a loss, not an absence."""
    content = os.urandom(100)
    name = of_bytes(content).removeprefix("sha256:")
    assert s3_hub.client.put(f"/v1/archives/sha256:{name}", content=content).status_code == 200
    weed.client().delete_object(Bucket=BUCKET, Key=f"archives/{name[:2]}/{name}")
    answer = s3_hub.client.get(f"/v1/archives/sha256:{name}")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (410, "ArchiveLost")


def test_a_dead_service_is_waited_out(s3_hub: Hub, weed: Weed) -> None:
    """While it is dead archives are answered 503; afterwards all is there again."""
    kept, late = os.urandom(100), os.urandom(100)
    assert s3_hub.client.put(f"/v1/archives/{of_bytes(kept)}", content=kept).status_code == 200
    weed.kill()
    answers = [
        s3_hub.client.put(f"/v1/archives/{of_bytes(late)}", content=late),
        s3_hub.client.get(f"/v1/archives/{of_bytes(kept)}"),
        s3_hub.client.get("/readyz"),
    ]
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert s3_hub.client.head(f"/v1/archives/{of_bytes(late)}").status_code == 404
    weed.start()
    wait_until(lambda: s3_hub.client.get("/readyz").status_code == 200)
    # A bucket answers before its objects do: like every caller, ask again while the answer is 503.
    wait_until(lambda: s3_hub.client.get(f"/v1/archives/{of_bytes(kept)}").status_code != 503)
    assert s3_hub.client.get(f"/v1/archives/{of_bytes(kept)}").content == kept
    wait_until(lambda: s3_hub.client.put(f"/v1/archives/{of_bytes(late)}", content=late).status_code != 503)
    assert s3_hub.client.get(f"/v1/archives/{of_bytes(late)}").content == late
