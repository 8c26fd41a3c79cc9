"""Task packages: a manifest whose parts are archives; and those that come bundled with the installation."""

from pathlib import Path

import structlog

from hub import archives
from hub.database import Connection, Database
from hub.records import NotFound, text_of
from hub.store import Store
from wire.digest import Digest
from wire.errors import DigestMismatch, InvalidInput
from wire.package import PARTS, PackageManifest
from wire.packing import Packed, pack, task_folders

log = structlog.get_logger()


def put_package(connection: Connection, digest: Digest, manifest: PackageManifest) -> None:
    """Store a manifest under its digest; its parts must be there.

    Raises:
        DigestMismatch: the manifest has another digest.
        InvalidInput: a part is not named or not stored.
    """
    if manifest.digest() != digest:
        raise DigestMismatch(f"the manifest's digest is {manifest.digest()}, not {digest}")
    for part in PARTS:
        if part not in manifest.parts:
            raise InvalidInput(f"parts: {part} is missing")
        try:
            archives.read_length(connection, manifest.parts[part], owner=None)
        except NotFound as error:
            raise InvalidInput(f"parts.{part}: {error}; upload it first") from None
    connection.execute(
        "INSERT INTO packages (digest, manifest) VALUES (%s, %s) ON CONFLICT (digest) DO NOTHING",
        (digest, text_of(manifest)),
    )


def read_package(connection: Connection, digest: Digest) -> PackageManifest:
    """Return a package's manifest."""
    row = connection.execute("SELECT manifest::text FROM packages WHERE digest = %s", (digest,)).fetchone()
    if row is None:
        raise NotFound(f"there is no package {digest}; upload it with `proctor push`")
    return PackageManifest.model_validate_json(row[0])


def store_bundled(root: Path, database: Database, store: Store) -> None:
    """Pack and store every task below a folder; a malformed one is logged and does not stop the others."""
    for folder in task_folders(root):
        try:
            packed = pack(folder)
        except InvalidInput as error:
            log.error("bundled package refused", task=folder.name, reason=error.reason, message=str(error))
            continue
        _store_packed(packed, database, store)
        log.info("bundled package stored", task=folder.name, digest=packed.digest)


def _store_packed(packed: Packed, database: Database, store: Store) -> None:
    for name, content in packed.parts.items():
        digest = packed.manifest.parts[name]
        with archives.Intake(store) as intake:
            intake.write(content)
            length = intake.finish(digest)
        with database.transaction() as connection:
            archives.record(connection, digest, length, owner=None)
    with database.transaction() as connection:
        put_package(connection, packed.digest, packed.manifest)
