"""Starting runs and reading what they left, here or in a cluster: what the commands `run`, `logs` and `retry` do."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from controller.cluster import Kind, Object
from proctor.codes import Code
from proctor.documents import Document, read_documents
from proctor.hub_client import HubClient
from proctor.local.home import Home
from proctor.local.image import find_image
from proctor.local.launch import check_isolation, launch, with_bundled
from proctor.local.nest import lacking
from proctor.local.services import serve
from proctor.progress import Progress
from proctor.remote import Remote
from proctor.settings import Settings
from proctor.where import bearer, local_client
from wire.errors import InvalidInput
from wire.names import LABEL_ROLE, LABEL_TRIAL
from wire.report import RunReport


@dataclass(kw_only=True)
class Ended:
    """What became of the runs of a file."""

    code: Code
    said: list[str] = field(default_factory=list)
    reports: list[RunReport] = field(default_factory=list)


def run_local(file: Path, settings: Settings, progress: Progress) -> Ended:
    """Run a file on this machine to its end."""
    documents = with_bundled(_runs_in(file))
    check_isolation(documents)
    if missing := lacking():
        raise InvalidInput(f"this machine lacks {', '.join(missing)}: apt-get install {' '.join(missing)}")
    home = Home(settings.home)
    home.prepare()
    image = find_image()
    with home.alone(), _operator_log(home), serve(home):
        progress.say(f"hub, gateway and database are up; state is in {home.root}")
        outcome = asyncio.run(launch(documents, home, image, progress))
        with local_client(home) as hub:
            reports = [hub.report(uid) for uid in outcome.runs if not outcome.refused]
    if outcome.refused:
        return Ended(code=Code.INPUT, said=outcome.refused)
    code = Code.OK if outcome.complete else Code.INCOMPLETE
    return Ended(code=Code.INTERRUPTED if outcome.interrupted else code, reports=reports)


@contextmanager
def _operator_log(home: Home) -> Iterator[None]:
    """Send the operator's log to a file: the screen belongs to the progress."""
    with (home.logs / "operator.log").open("w") as log:
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            logger_factory=structlog.WriteLoggerFactory(log),
        )
        yield
        structlog.reset_defaults()


def run_remote(file: Path, settings: Settings, progress: Progress, wait: bool) -> Ended:
    """Apply a file to the cluster; on request wait for the end of its runs."""
    documents = _runs_in(file)
    remote = Remote(settings)
    for document in documents:
        remote.apply(document)
    names = [document.name for document in documents if document.kind is Kind.BenchmarkRun]
    if not wait:
        return Ended(
            code=Code.OK, said=[f"run {name} is applied; `proctor run --wait` or kubectl follow it" for name in names]
        )
    ended = Ended(code=Code.OK)
    for name in names:
        run = _wait(remote, name, progress)
        if refusal := _refusal(run):
            return Ended(code=Code.INPUT, said=[f"run {name}: {refusal}"])
        counts = run["status"]["trials"]
        if counts.get("graded") != counts.get("total"):
            ended.code = Code.INCOMPLETE
        if settings.hub_url:
            with HubClient(settings.hub_url, bearer(settings)) as hub:
                ended.reports.append(hub.report(run["metadata"]["uid"]))
        else:
            ended.said.append(f"run {name}: {counts}; set PROCTOR_HUB_URL to read the report")
    return ended


def retry_remote(remote: Remote, name: str) -> str:
    """Send errored trials of the cluster back."""
    trial = remote.get(Kind.Trial, name)
    if trial is not None:
        chosen = [trial]
    elif (run := remote.get(Kind.BenchmarkRun, name)) is not None:
        chosen = remote.trials_of(run["metadata"]["uid"])
    else:
        raise InvalidInput(f"neither a run nor a trial is named {name!r} in namespace {remote.namespace}")
    errored = [each for each in chosen if (each.get("status") or {}).get("phase") == "Errored"]
    if not errored:
        raise InvalidInput("none of these trials is errored; only errored ones are tried again")
    for each in errored:
        retries = each["spec"].get("retries", 0) + 1
        remote.patch(Kind.Trial, each["metadata"]["name"], {"spec": {"retries": retries}})
    return f"{len(errored)} trials are tried again"


def local_logs(settings: Settings, trial: str, role: str) -> dict[str, str]:
    """Return what a trial's pods of a role printed here, by pod and container."""
    folder = Home(settings.home).logs / "pods"
    files = sorted(
        file for file in folder.glob(f"{trial}-*/*.log") if role in file.parent.name[len(trial) :].split("-")
    )
    if not files:
        raise InvalidInput(f"no pod of role {role!r} of this trial has left a log in {folder}")
    return {f"{file.parent.name}/{file.stem}": file.read_text(errors="replace") for file in files}


def remote_logs(settings: Settings, trial: str, role: str) -> dict[str, str]:
    """Return what a trial's living pods of a role have printed in the cluster."""
    texts = Remote(settings).pod_logs(f"{LABEL_TRIAL}={trial},{LABEL_ROLE}={role}")
    if not texts:
        raise InvalidInput(f"no pod of role {role!r} of this trial lives; the journal stays: leave --role out")
    return texts


def _runs_in(file: Path) -> Sequence[Document]:
    documents = read_documents(file)
    if not any(document.kind is Kind.BenchmarkRun for document in documents):
        raise InvalidInput(f"{file}: holds no BenchmarkRun")
    return documents


def _wait(remote: Remote, name: str, progress: Progress) -> Object:
    for run, trials in remote.follow(name):
        for trial in trials:
            progress.trial(trial)
        if _refusal(run) or _condition(run, "Complete").get("status") == "True":
            return run
    raise InvalidInput(f"run {name} was deleted")


def _refusal(run: Object) -> str:
    accepted = _condition(run, "Accepted")
    passing = accepted.get("reason") == "HubUnreachable"
    return str(accepted.get("message", "")) if accepted.get("status") == "False" and not passing else ""


def _condition(run: Object, kind: str) -> Object:
    for condition in (run.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            found: Object = condition
            return found
    return {}
