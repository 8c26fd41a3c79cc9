"""`python -m runner ROLE`: one program for every pod of a trial."""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from typing import Final

import structlog
from pydantic import ValidationError

from runner.settings import (
    AgentSettings,
    EvaluateSettings,
    GateSettings,
    PodSettings,
    SandboxSettings,
    SessionSettings,
)
from wire.errors import InvalidInput

EXIT_USAGE: Final = 2
# Role → settings, what it is. The module has the role's name; a role imports nothing of the others.
ROLES: Final[dict[str, tuple[type[PodSettings], str]]] = {
    "sandbox": (SandboxSettings, "daemon of an untrusted pod: runs commands as the agent's user"),
    "receive": (SandboxSettings, "init step of a sut pod: takes the one archive it was told to expect"),
    "agent": (AgentSettings, "drives the coding agent through the sandbox's daemon"),
    "user": (SessionSettings, "the simulated user: leads the conversation and ends it"),
    "gate": (GateSettings, "runs install, build and the public checker on a candidate"),
    "evaluate": (EvaluateSettings, "runs one shard of the hidden suite on a submission"),
}


def main(arguments: Sequence[str]) -> int:
    """Read the settings of a role and run it."""
    role = _parser().parse_args(arguments).role
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    kind, _ = ROLES[role]
    try:
        settings = kind()
        return int(importlib.import_module(f"runner.{role}").main(settings))
    except ValidationError as error:
        for problem in error.errors():
            field = "_".join(str(part) for part in problem["loc"]).upper()
            sys.stderr.write(f"PROCTOR_{field}: {problem['msg']}\n")
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
    return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runner",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The roles inside a trial's pods. Settings come from PROCTOR_* (docs/architecture.md).",
        epilog="roles:\n" + "\n".join(f"  {role:9} {what}" for role, (_, what) in ROLES.items()),
    )
    parser.add_argument("role", choices=list(ROLES), metavar="ROLE", help="see below")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
