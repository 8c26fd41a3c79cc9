"""`python -m hub.gateway`: serves the gateway stub. Settings come from GATEWAY_* in the environment."""

import sys

from pydantic import ValidationError

from hub.gateway.app import Settings, create_app
from hub.serving import serve
from hub.settings import complaint, read_key
from hub.telemetry import set_up_logs
from wire.errors import ProctorError


def main() -> int:
    """Serve until a signal."""
    set_up_logs()
    try:
        settings = Settings()  # type: ignore[call-arg]  # from the environment
        serve(create_app(read_key(settings.installation_key), settings.database_url), settings.listen)
    except ValidationError as error:
        print(f"gateway: {complaint('GATEWAY', error)}", file=sys.stderr)  # noqa: T201 - a program's last words
        return 2
    except ProctorError as error:
        print(f"gateway: {error}", file=sys.stderr)  # noqa: T201 - a program's last words
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
