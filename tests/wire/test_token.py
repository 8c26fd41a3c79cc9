"""Tokens: repeatable, bound to one attempt and role, worthless when changed."""

import pytest

from wire.digest import sign
from wire.errors import Refused
from wire.token import SCOPES, Role, Scope, Token, daemon_bearer, mint, verify

KEY = b"k" * 32
TOKEN = Token(trial="2b1c6f0e-8a7f-4c0e-9c52-0a3d0c5b9a11", attempt=3, role=Role.GATE)


def test_minting_is_repeatable_and_verifies() -> None:
    """A crashed operator mints the same text again."""
    assert mint(KEY, TOKEN) == mint(KEY, TOKEN)
    assert verify(KEY, mint(KEY, TOKEN)) == TOKEN


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace(".3.", ".4."), id="another attempt"),
        pytest.param(lambda text: text.replace("gate", "operator"), id="another role"),
        pytest.param(lambda text: text.replace("2b1c", "3b1c"), id="another trial"),
        pytest.param(lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"), id="another signature"),
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: "a.b.c", id="too few parts"),
        pytest.param(lambda text: "é" + text, id="not ASCII"),
    ],
)
def test_a_changed_token_is_refused(change: object) -> None:
    """Nothing of a token can be changed by who holds it."""
    assert callable(change)
    with pytest.raises(Refused):
        verify(KEY, change(mint(KEY, TOKEN)))


@pytest.mark.parametrize("body", ["prt1.t.1.conductor", "prt1.t.one.gate"])
def test_a_signed_token_of_another_release_is_refused(body: str) -> None:
    """What this release cannot read is refused like any other token, not an error of ours."""
    with pytest.raises(Refused):
        verify(KEY, f"{body}.{sign(KEY, body.encode())}")


def test_another_installation_refuses_it() -> None:
    """The key is the installation."""
    with pytest.raises(Refused):
        verify(b"x" * 32, mint(KEY, TOKEN))


def test_a_sandbox_may_only_ask_models_and_guides() -> None:
    """An agent can read its sandbox's token, so that is all it may ever hold."""
    assert SCOPES[Role.SANDBOX] == {Scope.MODEL, Scope.GUIDE}


def test_daemon_bearers_differ_by_pod_and_are_no_tokens() -> None:
    """A daemon's bearer opens one daemon and nothing at the hub."""
    bearer = daemon_bearer(KEY, TOKEN.trial, "a-1-sandbox")
    assert bearer != daemon_bearer(KEY, TOKEN.trial, "a-2-sandbox")
    with pytest.raises(Refused):
        verify(KEY, bearer)
