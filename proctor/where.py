"""Which hub and which cluster a command means: that of the settings, else local mode's own.

`PROCTOR_HUB_URL` set = a cluster's hub. Otherwise the hub of PROCTOR_HOME: the one a running launcher serves, or one
that is started for the length of the command.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from proctor.hub_client import HubClient
from proctor.local.home import Home
from proctor.local.services import answers, serve
from proctor.settings import Settings
from wire.errors import InvalidInput
from wire.token import operator_token


def is_local(settings: Settings, *, asked: bool) -> bool:
    """Tell whether a command works on this machine alone."""
    return asked or not settings.hub_url


@contextmanager
def hub_of(settings: Settings, *, local: bool) -> Iterator[HubClient]:
    """Open the hub that the settings mean."""
    if is_local(settings, asked=local):
        with local_hub(Home(settings.home)) as client:
            yield client
        return
    with HubClient(settings.hub_url, bearer(settings)) as client:
        yield client


@contextmanager
def local_hub(home: Home) -> Iterator[HubClient]:
    """Open local mode's hub, starting it when no launcher serves it."""
    home.prepare()
    if answers(home.socket("hub"), "/readyz"):
        with local_client(home) as client:
            yield client
        return
    with home.alone(), serve(home), local_client(home) as client:
        yield client


def local_client(home: Home) -> HubClient:
    """Return a client of the hub that serves a home."""
    return HubClient("http://hub", operator_token(home.key.read_bytes().strip()), home.socket("hub"))


def bearer(settings: Settings) -> str:
    """Return the bearer for a cluster's hub."""
    if token := settings.token.get_secret_value():
        return token
    if settings.installation_key_file is None:
        raise InvalidInput("set PROCTOR_TOKEN or PROCTOR_INSTALLATION_KEY_FILE to use the hub at PROCTOR_HUB_URL")
    try:
        return operator_token(settings.installation_key_file.read_bytes().strip())
    except OSError as error:
        raise InvalidInput(f"PROCTOR_INSTALLATION_KEY_FILE: {error}") from error
