"""What the hub reads from its environment, once, at start."""

from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from wire.errors import InvalidInput

KEY_LIMIT_BYTES = 16


class Settings(BaseSettings):
    """Everything the hub reads from its environment."""

    model_config = SettingsConfigDict(env_prefix="HUB_", frozen=True, use_attribute_docstrings=True)

    database_url: str
    """PostgreSQL, such as `postgresql://user:password@host/database`."""
    store: str
    """Where archives lie: a folder's path, or `s3://bucket` with credentials from AWS_ACCESS_KEY_ID and the like."""
    store_endpoint: str | None = None
    """Address of an S3 service that is not AWS."""
    installation_key: Path
    """File with the key that signs every token; white space around it does not count."""
    bundled_tasks: Path | None = None
    """A `tasks/` folder whose packages are stored at start."""
    listen: str = "0.0.0.0:8080"
    """`host:port`, or `unix:<path>` for a socket."""
    connections: int = Field(default=8, gt=0)
    """Connections to PostgreSQL at once."""
    wait_seconds: float = Field(default=3.0, gt=0)
    """How long a request waits for the database before it is sent away to try again."""


def complaint(prefix: str, error: ValidationError) -> str:
    """Return what is wrong with settings, by variable; never a value: addresses of databases hold passwords."""
    return "; ".join(f"{prefix}_{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors())


def read_key(file: Path) -> bytes:
    """Return the installation key.

    Raises:
        InvalidInput: it cannot be read or is too short to be a key.
    """
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise InvalidInput(f"the installation key cannot be read: {error}") from error
    if len(key) < KEY_LIMIT_BYTES:
        raise InvalidInput(f"the installation key in {file} is shorter than {KEY_LIMIT_BYTES} bytes")
    return key
