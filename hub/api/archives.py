"""Archives and task packages."""

from collections.abc import Iterator
from itertools import chain

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from hub import archives, packages
from hub.access import require_alive, require_part
from hub.api.request import (
    Admin,
    ArchivesToken,
    DigestPath,
    Given,
    RecordBody,
    Services,
    Uid,
    alive_state,
    owner_of,
)
from hub.api.trials import as_json
from hub.records import NotFound, read_state
from wire.archive import BYTES_LIMIT
from wire.digest import Digest
from wire.errors import ProctorError, Refused
from wire.package import PackageManifest, PartName
from wire.token import Role, Token

router = APIRouter(prefix="/v1")


@router.put("/archives/{digest}")
async def put_archive(digest: DigestPath, request: Request, token: ArchivesToken, given: Given) -> dict[str, object]:
    if int(request.headers.get("Content-Length") or 0) > BYTES_LIMIT:
        raise archives.TooLarge(f"the archive is larger than {BYTES_LIMIT} bytes")
    try:
        await run_in_threadpool(_require_alive, given, token)
    except ProctorError:
        # To the end: closing on a sender who is still at it would tear the refusal from its hands.
        async for _ in request.stream():
            pass
        raise
    with archives.Intake(given.store) as intake:
        pending = bytearray()
        async for piece in request.stream():
            pending += piece
            # In large pieces: each is a trip to a thread, since compressing and writing block.
            if len(pending) >= archives.PIECE_BYTES:
                await run_in_threadpool(intake.write, bytes(pending))
                pending.clear()
        await run_in_threadpool(intake.write, bytes(pending))
        length = await run_in_threadpool(intake.finish, digest)
    await run_in_threadpool(_record, given, token, digest, length)
    return {"digest": digest, "bytes": length}


@router.head("/archives/{digest}")
def head_archive(digest: DigestPath, token: ArchivesToken, given: Given) -> Response:
    return Response(headers={"Content-Length": str(_length(given, token, digest))}, media_type="application/x-tar")


@router.get("/archives/{digest}")
def get_archive(digest: DigestPath, token: ArchivesToken, given: Given) -> Response:
    return _stream(given, digest, _length(given, token, digest))


@router.get("/trials/{uid}/parts/{part}")
def get_part(uid: Uid, part: PartName, token: ArchivesToken, given: Given) -> Response:
    with given.database.transaction() as connection:
        state = alive_state(connection, token, uid)
        if state is None:
            raise NotFound(f"trial {uid} is not known here")
        require_part(token, part, state.agent)
        digest = packages.read_package(connection, state.package).parts[part]
        length = archives.read_length(connection, digest, owner=None)
    return _stream(given, digest, length)


@router.put("/packages/{digest}")
def put_package(digest: DigestPath, token: Admin, body: RecordBody, given: Given) -> Response:
    manifest = PackageManifest.model_validate_json(body)
    with given.database.transaction() as connection:
        packages.put_package(connection, digest, manifest)
    return as_json(manifest)


@router.get("/packages/{digest}")
def get_package(digest: DigestPath, token: ArchivesToken, given: Given) -> Response:
    with given.database.transaction() as connection:
        if token.role is not Role.OPERATOR:
            state = alive_state(connection, token, token.trial)
            if state is None or state.package != digest:
                raise Refused(f"{digest} is not the package of this trial")
        return as_json(packages.read_package(connection, digest))


def _require_alive(given: Services, token: Token) -> None:
    if token.role is not Role.OPERATOR:
        with given.database.transaction() as connection:
            require_alive(token, read_state(connection, token.trial))


def _record(given: Services, token: Token, digest: Digest, length: int) -> None:
    """Make an archive known, unless the attempt has died while it came in."""
    with given.database.transaction() as connection:
        if token.role is not Role.OPERATOR:
            require_alive(token, read_state(connection, token.trial, lock=True))
        archives.record(connection, digest, length, owner_of(token))


def _length(given: Services, token: Token, digest: Digest) -> int:
    with given.database.transaction() as connection:
        if token.role is not Role.OPERATOR:
            require_alive(token, read_state(connection, token.trial))
        return archives.read_length(connection, digest, owner_of(token))


def _stream(given: Services, digest: Digest, length: int) -> Response:
    if digest in given.suspects:
        for _ in archives.read_verified(given.store, digest, length):
            pass
        given.suspects.discard(digest)
    pieces = archives.read_verified(given.store, digest, length)
    # The first piece before the answer begins: a store that is away, or a small spoilt archive, is still told clearly.
    first = next(pieces)
    return StreamingResponse(
        _watched(chain([first], pieces), digest, given.suspects),
        media_type="application/x-tar",
        headers={"Content-Length": str(length)},
    )


def _watched(pieces: Iterator[bytes], digest: Digest, suspects: set[Digest]) -> Iterator[bytes]:
    try:
        yield from pieces
    except archives.ArchiveSpoilt:
        suspects.add(digest)
        raise
