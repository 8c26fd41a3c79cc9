"""Role `sandbox`: the daemon of an untrusted pod. Routes only; see `wire.sandbox` for what they promise.

It is root with few capabilities, runs commands as the agent's user, keeps their output and exit codes, and never
touches a file of the workspace itself: `runner.tree` does that in a process that has become the user.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runner import cgroup
from runner.canaries import is_good, settle
from runner.commands import Command, Commands
from runner.errors import CanaryAnswered, Missing
from runner.settings import SandboxSettings
from runner.trees import Trees
from runner.web import Bearer, answer, answer_error, body, number, refusal, seconds, server
from wire.errors import InvalidInput, NotReady, ProctorError
from wire.journal import Canaries
from wire.sandbox import END_HEADER, CommandSpec, SignalRequest

POLL_LIMIT_SECONDS: Final = 60.0


class Sandbox:
    """The daemon's state: commands, trees, and what the canaries saw."""

    def __init__(self, settings: SandboxSettings) -> None:
        account = settings.account(cgroup.data_limit_bytes())
        self.settings = settings
        self.commands = Commands(account, settings.spool, cgroup.memory_kills)
        self.trees = Trees(account, settings.python, settings.stall_seconds)
        self.canaries: Canaries | None = None

    def may_run(self) -> None:
        """Pass when commands may run.

        Raises:
            NotReady: the canaries are not settled.
            CanaryAnswered: the pod reaches what it must not; it will never run anything.
        """
        if self.canaries is None:
            raise NotReady("the canaries are not settled yet")
        if self.settings.canaries is not None and not is_good(self.canaries, self.settings.canaries):
            raise CanaryAnswered("this pod reaches what it must not, or not the gateway: it runs nothing")

    def command(self, request: Request) -> Command:
        """Return the command that a request names."""
        known = self.commands.get(request.path_params["id"])
        if known is None:
            raise Missing("this command was never started")
        return known


def sandbox_of(request: Request) -> Sandbox:
    """Return the daemon that serves a request."""
    found = request.app.state.sandbox
    assert isinstance(found, Sandbox)
    return found


async def healthz(_: Request) -> Response:
    """Tell that this is the daemon and not the receiver."""
    return JSONResponse({"role": "sandbox"})


async def canaries(request: Request) -> Response:
    """Tell what the pod could reach."""
    seen = sandbox_of(request).canaries
    if seen is None:
        raise NotReady("the canaries are not settled yet")
    return answer(seen)


async def put_command(request: Request) -> Response:
    """Start a command once."""
    sandbox = sandbox_of(request)
    try:
        spec = CommandSpec.model_validate_json(await body(request))
    except ValidationError as error:
        raise InvalidInput(f"the command: {error}") from error
    sandbox.may_run()
    command = sandbox.commands.start(request.path_params["id"], spec)
    if command.spec != spec:
        return JSONResponse({"error": {"reason": "Conflict", "message": f"{command.id} is another command"}}, 409)
    return answer(command.status())


async def get_command(request: Request) -> Response:
    """Tell how a command stands, after waiting for its end."""
    command = sandbox_of(request).command(request)
    await command.wait_until(lambda: not command.is_running, seconds(request, "wait", POLL_LIMIT_SECONDS))
    return answer(command.status())


async def get_output(request: Request) -> Response:
    """Give a piece of output, after waiting for its first byte."""
    command = sandbox_of(request).command(request)
    offset = int(number(request, "offset"))
    if offset < 0:
        raise InvalidInput("offset: not below 0")
    wait = seconds(request, "wait", POLL_LIMIT_SECONDS)
    await command.wait_until(lambda: not command.is_running or command.output_bytes > offset, wait)
    piece = command.read(offset)
    is_over = not command.is_running and offset + len(piece) >= command.output_bytes
    return Response(piece, headers={END_HEADER: "true" if is_over else "false"}, media_type="application/octet-stream")


async def post_signal(request: Request) -> Response:
    """Send a signal to a command's process group."""
    sandbox = sandbox_of(request)
    try:
        wanted = SignalRequest.model_validate_json(await body(request)).signal
        number = signal.Signals[wanted]
    except (ValidationError, KeyError) as error:
        raise InvalidInput("signal: not a name such as SIGTERM") from error
    sandbox.commands.signal(sandbox.command(request), number)
    return Response(status_code=204)


async def post_stop(request: Request) -> Response:
    """End every process of the agent's user."""
    await sandbox_of(request).commands.stop()
    return Response(status_code=204)


async def get_tree(request: Request) -> Response:
    """Give a deterministic tar."""
    query = request.query_params
    reading = await sandbox_of(request).trees.read(query.getlist("root"), query.getlist("exclude"))
    return StreamingResponse(reading, media_type="application/x-tar")


async def put_tree(request: Request) -> Response:
    """Unpack a tar as the agent's user."""
    sandbox = sandbox_of(request)
    query = request.query_params
    await sandbox.trees.write(query.get("root", ""), request.stream(), clean=query.get("clean") == "true")
    return Response(status_code=204)


async def get_digest(request: Request) -> Response:
    """Give the digest of the tar that `GET /v1/tree` would give."""
    query = request.query_params
    found = await sandbox_of(request).trees.digest(query.get("root", ""), query.getlist("exclude"))
    return JSONResponse({"digest": found})


async def answer_missing(_: Request, error: Exception) -> Response:
    """Answer 404."""
    assert isinstance(error, ProctorError)
    return refusal(error, 404)


async def answer_canary(_: Request, error: Exception) -> Response:
    """Answer 403, for good."""
    assert isinstance(error, ProctorError)
    return refusal(error, 403)


ROUTES: Final = [
    Route("/healthz", healthz),
    Route("/v1/canaries", canaries),
    Route("/v1/commands/{id}", put_command, methods=["PUT"]),
    Route("/v1/commands/{id}", get_command),
    Route("/v1/commands/{id}/output", get_output),
    Route("/v1/commands/{id}/signal", post_signal, methods=["POST"]),
    Route("/v1/stop", post_stop, methods=["POST"]),
    Route("/v1/tree", get_tree),
    Route("/v1/tree", put_tree, methods=["PUT"]),
    Route("/v1/digest", get_digest),
]


def create_app(settings: SandboxSettings) -> Starlette:
    """Build the daemon; the canaries begin when it starts to listen."""
    sandbox = Sandbox(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.sandbox = sandbox

        async def watch() -> None:
            sandbox.canaries = await settle(settings.canaries, settings.pod_name, settings.settle_seconds)

        watching = asyncio.create_task(watch())
        yield
        watching.cancel()
        await sandbox.commands.stop()

    return Starlette(
        routes=ROUTES,
        middleware=[Middleware(Bearer, bearer=settings.secret("daemon"))],
        exception_handlers={
            Missing: answer_missing,
            CanaryAnswered: answer_canary,
            ProctorError: answer_error,
        },
        lifespan=lifespan,
    )


def main(settings: SandboxSettings) -> int:
    """Serve until the pod ends."""
    os.umask(0o077)
    app = create_app(settings)
    if settings.uid is not None:
        prepare(Path(settings.workspace), settings.uid)
    server(app, settings.listen_host, settings.listen_port).run()
    return 0


def prepare(workspace: Path, uid: int) -> None:
    """Give a fresh workspace volume to the agent's user."""
    if workspace.stat().st_uid != uid:
        os.chown(workspace, uid, uid, follow_symlinks=False)
        workspace.chmod(0o755)
