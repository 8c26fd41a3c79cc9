"""`python -m hub serve` and `python -m hub migrate`. Exit codes: 0 done, 2 bad settings or usage, 75 try again."""

import argparse
import sys

from pydantic import ValidationError

from hub.app import create_app
from hub.database import migrate
from hub.serving import serve
from hub.settings import Settings, complaint
from hub.telemetry import set_up_logs
from wire.errors import NotReady, ProctorError


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="hub", description="Journal, archives, verdicts and reports of Proctor.")
    parser.add_argument("command", choices=["serve", "migrate"], help="settings come from HUB_* in the environment")
    command = parser.parse_args().command
    set_up_logs()
    try:
        settings = Settings()  # type: ignore[call-arg]  # from the environment
        if command == "migrate":
            migrate(settings.database_url)
        else:
            serve(create_app(settings), settings.listen)
    except ValidationError as error:
        print(f"hub: {complaint('HUB', error)}", file=sys.stderr)  # noqa: T201 - a program's last words
        return 2
    except ProctorError as error:
        print(f"hub: {error.reason}: {error}", file=sys.stderr)  # noqa: T201 - a program's last words
        return 75 if isinstance(error, NotReady) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
