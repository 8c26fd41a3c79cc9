"""The store in an S3 bucket. Credentials come from where boto3 looks for them."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hub.store import ArchiveLost
from wire.digest import Digest
from wire.errors import NotReady

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

_ABSENT: Final = frozenset({"NoSuchKey", "404", "NotFound"})


class S3Store:
    """A bucket: `archives/<first two digits>/<digest>`."""

    def __init__(self, client: "S3Client", bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self.spool = Path(tempfile.mkdtemp(prefix="proctor-spool-"))

    def put(self, digest: Digest, file: Path) -> None:
        try:
            # In parts above 8 MiB; an object is visible only when all of them are there.
            self._client.upload_file(str(file), self._bucket, _key(digest))
        except (BotoCoreError, ClientError, boto3.exceptions.S3UploadFailedError) as error:
            raise NotReady(f"the object store does not answer: {error}") from error
        file.unlink()

    def open(self, digest: Digest) -> BinaryIO:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=_key(digest))
            return cast(BinaryIO, _Body(answer["Body"]))
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _ABSENT:
                raise ArchiveLost(f"the store has lost {digest}") from None
            raise NotReady(f"the object store does not answer: {error}") from error
        except BotoCoreError as error:
            raise NotReady(f"the object store does not answer: {error}") from error

    def check(self) -> None:
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except (BotoCoreError, ClientError) as error:
            raise NotReady(f"the object store does not answer: {error}") from error


class _Body:
    """An object's bytes, whose loss on the way is told like every other absence of the store."""

    def __init__(self, body: "StreamingBody") -> None:
        self._body = body

    def read(self, size: int = -1) -> bytes:
        try:
            return self._body.read(None if size < 0 else size)
        except BotoCoreError as error:
            raise NotReady(f"the object store does not answer: {error}") from error

    def close(self) -> None:
        self._body.close()


def open_bucket(bucket: str, endpoint: str | None) -> S3Store:
    """Return the store in a bucket; the service need not be there yet."""
    config = Config(
        connect_timeout=3,
        read_timeout=20,
        retries={"max_attempts": 2},
        # Buckets as paths: object stores in a cluster rarely have a wildcard name.
        s3={"addressing_style": "path"} if endpoint else {},
        request_checksum_calculation="when_required",
    )
    return S3Store(boto3.client("s3", endpoint_url=endpoint, config=config), bucket)


def _key(digest: Digest) -> str:
    name = digest.removeprefix("sha256:")
    return f"archives/{name[:2]}/{name}"
