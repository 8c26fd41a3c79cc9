"""Archives: in only under their own digest, out only unspoilt, and only to whom they belong."""

import gzip
import os
from pathlib import Path

import httpx2
import pytest

from hub.archives import ArchiveSpoilt, Intake, TooLarge, read_verified
from hub.store import ArchiveLost, FolderStore
from tests.hub.builders import PARTS, Hub, a_manifest, bearer
from wire.digest import Digest, of_bytes
from wire.errors import DigestMismatch, NotReady
from wire.package import PackageManifest
from wire.token import Role

LARGE = os.urandom(5 << 20)


def stored_file(hub: Hub, digest: Digest) -> Path:
    """Return where the hub's store keeps an archive."""
    name = digest.removeprefix("sha256:")
    return Path(hub.settings.store) / name[:2] / name


def flip_byte(file: Path, where: float) -> None:
    """Flip one byte of a file, at a fraction of its length."""
    content = bytearray(file.read_bytes())
    content[int(len(content) * where)] ^= 0xFF
    file.write_bytes(content)


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
def test_what_goes_in_comes_out(hub: Hub, content: bytes) -> None:
    """A trial's archive is there for it, with its length, after it has been put: HEAD, GET, and again."""
    trial = hub.put_trial()
    headers = bearer(Role.AGENT, trial, 1)
    path = f"/v1/archives/{of_bytes(content)}"
    for _ in range(2):
        assert hub.client.put(path, content=content, headers=headers).json()["bytes"] == len(content)
    assert hub.client.head(path, headers=headers).headers["Content-Length"] == str(len(content))
    assert hub.client.get(path, headers=headers).content == content


def test_a_trial_sees_what_it_has_sent_and_nothing_else(hub: Hub) -> None:
    """Another trial's archive looks as if it did not exist, until one has shown to hold it."""
    mine, other = hub.put_trial(), hub.put_trial()
    content = os.urandom(100)
    path = f"/v1/archives/{of_bytes(content)}"
    assert hub.client.put(path, content=content, headers=bearer(Role.AGENT, mine, 1)).status_code == 200
    assert hub.client.get(path, headers=bearer(Role.EVALUATOR, mine, 1)).content == content
    assert hub.client.get(path, headers=bearer(Role.AGENT, other, 1)).status_code == 404
    assert hub.client.head(path, headers=bearer(Role.AGENT, other, 1)).status_code == 404
    assert hub.client.put(path, content=content, headers=bearer(Role.AGENT, other, 1)).status_code == 200
    assert hub.client.get(path, headers=bearer(Role.AGENT, other, 1)).content == content


def test_content_under_a_foreign_digest_is_refused_and_not_kept(hub: Hub) -> None:
    """A mismatch is told, leaves no trace, and the digest stays free for its own content."""
    content = os.urandom(100)
    path = f"/v1/archives/{of_bytes(content)}"
    answer = hub.client.put(path, content=content + b"x")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (422, "DigestMismatch")
    assert hub.client.head(path).status_code == 404
    assert list((Path(hub.settings.store) / "incoming").iterdir()) == []
    assert hub.client.put(path, content=content).status_code == 200


@pytest.mark.parametrize("where", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_one_flipped_byte_in_the_store_is_never_delivered(hub: Hub, size: int, where: float) -> None:
    """The reader gets an error or a broken stream; from the second request on an error; a new upload mends it."""
    content = os.urandom(size)
    digest = of_bytes(content)
    path = f"/v1/archives/{digest}"
    assert hub.client.put(path, content=content).status_code == 200
    flip_byte(stored_file(hub, digest), where)
    try:
        first = hub.client.get(path)
    except httpx2.TransportError:
        assert size > 1 << 20
    else:
        assert (first.status_code, first.json()["error"]["reason"]) == (422, "DigestMismatch")
    second = hub.client.get(path)
    assert (second.status_code, second.json()["error"]["reason"]) == (422, "DigestMismatch")
    assert hub.client.put(path, content=content).status_code == 200
    assert hub.client.get(path).content == content


def test_an_equal_length_swap_in_the_store_is_refused(hub: Hub) -> None:
    """Well-formed content of the same length is not the content."""
    digest = of_bytes(b"what was put")
    assert hub.client.put(f"/v1/archives/{digest}", content=b"what was put").status_code == 200
    stored_file(hub, digest).write_bytes(gzip.compress(b"what was PUT"))
    assert hub.client.get(f"/v1/archives/{digest}").json()["error"]["reason"] == "DigestMismatch"


def test_a_lost_archive_is_said_to_be_lost(hub: Hub) -> None:
    """An archive that the store no longer has is an error of its own, not an empty answer."""
    content = os.urandom(100)
    assert hub.client.put(f"/v1/archives/{of_bytes(content)}", content=content).status_code == 200
    stored_file(hub, of_bytes(content)).unlink()
    answer = hub.client.get(f"/v1/archives/{of_bytes(content)}")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (410, "ArchiveLost")


def test_an_intake_over_its_bound_is_refused(tmp_path: Path) -> None:
    """The bound holds for what was sent, whatever was announced, and nothing stays behind."""
    store = FolderStore(tmp_path)
    with pytest.raises(TooLarge), Intake(store, limit_bytes=10) as intake:
        intake.write(b"x" * 11)
    assert list(store.spool.iterdir()) == []


def test_a_bomb_in_the_store_is_cut_short(tmp_path: Path) -> None:
    """Stored content that unpacks to more than the archive's length is refused without unpacking it all."""
    store = FolderStore(tmp_path)
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzip.compress(b"\0" * (64 << 20)))
    store.put(of_bytes(b"x"), bomb)
    with pytest.raises(ArchiveSpoilt):
        list(read_verified(store, of_bytes(b"x"), 1))


def test_a_store_without_its_folder_is_not_ready(tmp_path: Path) -> None:
    """A folder that went away is an absence to wait out; a missing file in it is a loss."""
    store = FolderStore(tmp_path / "store")
    with pytest.raises(ArchiveLost):
        store.open(of_bytes(b"x"))
    store.spool.rmdir()
    with pytest.raises(NotReady):
        store.check()


def test_a_package_needs_its_digest_and_its_parts(hub: Hub) -> None:
    """A manifest is stored under its own digest only, with every part named and uploaded."""
    whole = a_manifest()
    lost: PackageManifest = whole.model_copy(update={"parts": {**whole.parts, "user": of_bytes(b"not uploaded")}})
    few = whole.model_copy(update={"parts": {"public": whole.parts["public"]}})
    answers = [
        hub.client.put(f"/v1/packages/{of_bytes(b'else')}", json=whole.dump()),
        hub.client.put(f"/v1/packages/{lost.digest()}", json=lost.dump()),
        hub.client.put(f"/v1/packages/{few.digest()}", json=few.dump()),
    ]
    assert [answer.status_code for answer in answers] == [422, 422, 422]
    assert answers[0].json()["error"]["reason"] == DigestMismatch.reason
    assert "parts.user" in answers[1].json()["error"]["message"]
    assert "parts: user is missing" in answers[2].json()["error"]["message"]
    assert hub.client.get(f"/v1/packages/{whole.digest()}").json() == whole.dump()


def test_a_part_is_what_was_packed(hub: Hub) -> None:
    """Each role gets the part's very bytes."""
    trial = hub.put_trial()
    answer = hub.client.get(f"/v1/trials/{trial}/parts/user", headers=bearer(Role.USER, trial, 1))
    assert answer.content == PARTS["user"]
