"""Role `agent`: serves turns to the `user` container of the same pod (`wire.turn`) and drives the sandbox."""

import threading
import time
from typing import Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runner.agents.scene import Scene
from runner.daemon import Daemon
from runner.ending import failure_of, write_outcome
from runner.hub import Hub
from runner.session import Session
from runner.settings import AgentSettings
from runner.web import answer, answer_error, body, seconds, server
from wire.errors import Broken, InvalidInput, ProctorError
from wire.turn import TurnRequest

POLL_LIMIT_SECONDS: Final = 60.0


def session_of(request: Request) -> Session:
    """Return the session that a request is about."""
    found = request.app.state.session
    assert isinstance(found, Session)
    return found


async def healthz(request: Request) -> Response:
    """Hear that the user lives."""
    session_of(request).heard = time.monotonic()
    return JSONResponse({"role": "agent"})


async def put_turn(request: Request) -> Response:
    """Begin a turn, or join it."""
    try:
        wanted = TurnRequest.model_validate_json(await body(request))
    except ValidationError as error:
        raise InvalidInput(f"the turn: {error}") from error
    return answer(session_of(request).begin(wanted))


async def get_turn(request: Request) -> Response:
    """Tell how a turn stands, after waiting for its end."""
    wait = seconds(request, "wait", POLL_LIMIT_SECONDS)
    return answer(await run_in_threadpool(session_of(request).status, int(request.path_params["turn"]), wait))


async def interrupt(request: Request) -> Response:
    """End the agent's processes."""
    await run_in_threadpool(session_of(request).interrupt)
    return Response(status_code=204)


async def checkpoint(request: Request) -> Response:
    """Store the sandbox's state."""
    return answer(await run_in_threadpool(session_of(request).checkpoint))


async def candidate(request: Request) -> Response:
    """Store the delivery."""
    return answer(await run_in_threadpool(session_of(request).candidate))


async def finish(request: Request) -> Response:
    """End once the hub has the journal."""
    await run_in_threadpool(session_of(request).finish)
    return Response(status_code=204)


ROUTES: Final = [
    Route("/healthz", healthz),
    Route("/v1/turns/{turn:int}", put_turn, methods=["PUT"]),
    Route("/v1/turns/{turn:int}", get_turn),
    Route("/v1/interrupt", interrupt, methods=["POST"]),
    Route("/v1/checkpoint", checkpoint, methods=["POST"]),
    Route("/v1/candidate", candidate, methods=["POST"]),
    Route("/v1/finish", finish, methods=["POST"]),
]


def create_app(session: Session) -> Starlette:
    """Build the server."""
    app = Starlette(routes=ROUTES, exception_handlers={ProctorError: answer_error})
    app.state.session = session
    return app


def main(settings: AgentSettings) -> int:
    """Serve until the user is done, silent for too long, or something fails."""
    hub = Hub(settings.hub_url, settings.secret("token"), settings.trial_uid, settings.spool / "agent")
    daemon = Daemon(
        settings.daemon_url,
        settings.secret("daemon"),
        first_seconds=settings.first_seconds,
        silence_seconds=settings.lost_seconds,
    )
    session = Session(lambda: scene_of(settings, hub, daemon), settings.agent_home)
    serving = server(create_app(session), "127.0.0.1", settings.agent_port)
    session.end = lambda: setattr(serving, "should_exit", True)
    threading.Thread(target=watch, args=(session, settings.silence_seconds), name="silence", daemon=True).start()
    serving.run()
    if session.is_finished:
        return 0
    failed, code = failure_of(session.failure or Broken("the agent's server ended by itself"))
    write_outcome(settings.termination_log, failed)
    return code


def scene_of(settings: AgentSettings, hub: Hub, daemon: Daemon) -> Scene:
    """Gather what an agent works with."""
    return Scene(
        daemon=daemon,
        hub=hub,
        spec=settings.spec,
        manifest=hub.manifest(settings.spec.package),
        sandbox_attempt=settings.sandbox_attempt,
        workspace=settings.workspace,
    )


def watch(session: Session, silence_seconds: float) -> None:
    """End the container when its user is silent: then nobody will ever ask for the rest."""
    while time.monotonic() - session.heard < silence_seconds:
        time.sleep(min(5.0, silence_seconds))
    session.give_up(Broken(f"the user container was silent for {silence_seconds:.0f} s"))
