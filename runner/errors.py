"""The runner's own errors below the three branches of `wire.errors`."""

from wire.errors import Broken, InvalidInput, NotReady


class NotNow(NotReady):
    """The server asks to be asked again."""

    reason = "NotNow"


class Unreachable(NotReady):
    """The server did not answer for as long as its callers have patience."""

    reason = "Unreachable"


class SandboxLost(NotReady):
    """The untrusted pod does not answer any more."""

    reason = "SandboxLost"


class Missing(InvalidInput):
    """The server does not know what was asked for."""

    reason = "NotFound"


class Conflict(InvalidInput):
    """The server holds something else under this name."""

    reason = "Conflict"


class Unprocessable(InvalidInput):
    """The server understood and refused the content itself."""

    reason = "InvalidInput"


class TooLarge(Unprocessable):
    """A tree is over the limits of archives."""

    reason = "TooLarge"


class PackageMalformed(InvalidInput):
    """The task's package does not hold what it must."""

    reason = "PackageMalformed"


class SuiteCannotStart(InvalidInput):
    """The hidden suite does not even collect."""

    reason = "SuiteCannotStart"


class CanaryAnswered(Broken):
    """An untrusted pod can reach what it must not, or not what it must."""

    reason = "CanaryAnswered"
