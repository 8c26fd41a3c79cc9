"""Nothing runs in an untrusted pod before it has shown what it cannot reach."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from runner.canaries import is_good, settle
from runner.errors import CanaryAnswered
from runner.settings import Canary
from tests.runner.fakes import serving
from tests.runner.processes import BEARER, Box, box, free_port
from wire.sandbox import CommandSpec


@pytest.fixture
def gateway() -> Iterator[str]:
    """An address that answers as a gateway does."""
    app = Starlette(routes=[Route("/healthz", lambda _: PlainTextResponse("ok"))])
    with serving(app) as url:
        yield url.removeprefix("http://")


def closed() -> str:
    """Return an address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


def test_all_is_well_when_only_the_gateway_answers(gateway: str) -> None:
    """Commands may run."""
    wanted = Canary(refused={"hub": closed(), "api": closed()}, gateway=gateway)
    seen = asyncio.run(settle(wanted, "pod", 20))
    assert (seen.refused, seen.gateway_answers) == ({"hub": True, "api": True}, True)
    assert is_good(seen, wanted)


@pytest.mark.parametrize("gone", ["gateway", "policy"])
def test_what_is_not_as_it_should_be_is_told_after_a_while(gateway: str, gone: str) -> None:
    """A network that is not there looks like a perfect policy; a policy that is not there like no policy."""
    wanted = Canary(refused={"hub": closed() if gone == "gateway" else gateway}, gateway=gateway)
    if gone == "gateway":
        wanted = wanted.model_copy(update={"gateway": closed()})
    assert not is_good(asyncio.run(settle(wanted, "pod", limit_seconds=0.1)), wanted)


def test_a_policy_that_bites_late_is_waited_for(gateway: str) -> None:
    """What answers at first and is refused later has settled well."""

    async def run() -> bool:
        async def drop(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        late = await asyncio.start_server(drop, "127.0.0.1", 0)
        wanted = Canary(refused={"hub": f"127.0.0.1:{late.sockets[0].getsockname()[1]}"}, gateway=gateway)
        settling = asyncio.create_task(settle(wanted, "pod", limit_seconds=20))
        await asyncio.sleep(0.2)
        assert not settling.done()
        late.close()
        return is_good(await settling, wanted)

    assert asyncio.run(run())


def test_a_daemon_runs_nothing_before_and_nothing_if_something_answers(tmp_path: Path, gateway: str) -> None:
    """503 while it looks, 403 for good once it knows; the driver gets the one error that names what answered."""
    told = json.dumps({"refused": {"hub": gateway}, "gateway": gateway})
    with box(tmp_path / "box", canaries=told, settle_seconds=2) as sandbox:
        head = {"Authorization": f"Bearer {BEARER}"}
        body = CommandSpec(argv=["touch", "ran"], cwd=str(sandbox.workspace)).model_dump_json(by_alias=True)
        early = httpx2.put(f"{sandbox.url}/v1/commands/early", headers=head, content=body)
        assert early.status_code == 503
        daemon = sandbox.client()
        with pytest.raises(CanaryAnswered, match="hub"):
            daemon.canaries()
        with pytest.raises(CanaryAnswered):
            daemon.put_command("late", CommandSpec.model_validate_json(body))
        assert list(sandbox.workspace.iterdir()) == []


def test_without_targets_the_answer_says_that_nothing_was_checked(own_sandbox: Box) -> None:
    """Local tests have no policies to prove."""
    seen = own_sandbox.client().canaries()
    assert (seen.refused, seen.gateway_answers) == ({}, False)
