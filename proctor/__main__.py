"""`proctor` and `python -m proctor`: reads the environment, runs one command, exits with a documented code."""

import sys

from pydantic import ValidationError

from proctor.cli import app
from proctor.codes import Code, code_of
from proctor.render import problem
from proctor.screen import errors
from wire.errors import ProctorError


def main() -> None:
    """Run one command; every error of ours is one line, and its class decides the exit code."""
    try:
        app(prog_name="proctor")
    except ProctorError as error:
        errors.print(problem(str(error)))
        sys.exit(code_of(error))
    except ValidationError as error:
        for found in error.errors():
            errors.print(problem(f"PROCTOR_{'_'.join(map(str, found['loc'])).upper()}: {found['msg']}"))
        sys.exit(Code.INPUT)
    except KeyboardInterrupt:
        sys.exit(Code.INTERRUPTED)


if __name__ == "__main__":
    main()
