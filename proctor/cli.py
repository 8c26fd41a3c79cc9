"""The commands of `proctor`: arguments in, one call, one page or one JSON value out."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from controller.cluster import Kind
from proctor import runs
from proctor.codes import HELP, Code
from proctor.doctor import Finding, examine
from proctor.local.control import wish
from proctor.local.home import Home
from proctor.progress import Progress
from proctor.remote import Remote
from proctor.render import journal_line, report_page, runs_table, trial_page, trials_table
from proctor.screen import errors, output, show
from proctor.settings import Settings
from proctor.shell import open_local, open_remote
from proctor.where import hub_of, is_local
from wire.errors import InvalidInput
from wire.packing import pack

app = typer.Typer(
    help=f"Run long-horizon coding-agent benchmarks and read their verdicts.\n\n{HELP}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Local = Annotated[bool, typer.Option("--local", help="This machine alone, whatever PROCTOR_HUB_URL says.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Name or UID of a run; of several the latest.")]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="Name or UID of a trial.")]
Name = Annotated[str, typer.Argument(metavar="RUN|TRIAL", help="Name or UID of a run or of a trial.")]


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="BenchmarkRuns, and TaskSuites they need, as YAML.")],
    local: Annotated[bool, typer.Option("--local", help="Run it here, without a cluster; implies --wait.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress until it is over, then the report.")] = False,
    as_json: Json = False,
) -> None:
    """Start the runs of a file; with --local or --wait show progress and the report."""
    settings = Settings()
    with Progress(errors, time.monotonic) as progress:
        ended = runs.run_local(file, settings, progress) if local else runs.run_remote(file, settings, progress, wait)
    for said in ended.said:
        errors.print(Text(said))
    if as_json:
        show("", [*ended.reports], as_json=True)
    else:
        for found in ended.reports:
            show(report_page(found), found, as_json=False)
    raise typer.Exit(ended.code)


@app.command(name="ls")
def list_runs(
    name: Annotated[str, typer.Argument(metavar="[RUN]", help="List this run's trials instead of all runs.")] = "",
    local: Local = False,
    as_json: Json = False,
) -> None:
    """List runs, or the trials of one."""
    with hub_of(Settings(), local=local) as hub:
        if name:
            trials = hub.trials(hub.find_run(name).uid)
            show(trials_table(trials), trials, as_json=as_json)
        else:
            found = hub.runs()
            show(runs_table(found), found, as_json=as_json)


@app.command(name="show")
def show_one(name: Name, local: Local = False, as_json: Json = False) -> None:
    """Show a run's trials, or one trial with every case."""
    with hub_of(Settings(), local=local) as hub:
        if trial := hub.find_trial(name):
            facts = hub.trial(trial.uid)
            show(trial_page(facts), facts, as_json=as_json)
            return
        trials = hub.trials(hub.find_run(name).uid)
        show(trials_table(trials), trials, as_json=as_json)


@app.command()
def logs(
    name: Trial,
    role: Annotated[
        str,
        typer.Option("--role", help="Print what the pods of a role printed: sandbox, session, gate, sut, evaluate."),
    ] = "",
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Print a trial's journal, or what its pods printed."""
    settings = Settings()
    with hub_of(settings, local=local) as hub:
        trial = hub.find_trial(name)
        if trial is None:
            raise InvalidInput(f"no trial is named {name!r}; `proctor ls RUN` lists them")
        if not role:
            rows = list(hub.journal(trial.uid))
            for row in () if as_json else rows:
                output.print(journal_line(row.entry))
            if as_json:
                show("", rows, as_json=True)
            return
    here = is_local(settings, asked=local)
    texts = runs.local_logs(settings, trial.name, role) if here else runs.remote_logs(settings, trial.name, role)
    if as_json:
        show("", [{"container": name, "text": text} for name, text in texts.items()], as_json=True)
        return
    for container, text in texts.items():
        output.print(Text(f"── {container}", "bold"))
        output.print(Text(text.rstrip()))


@app.command()
def report(name: Run, local: Local = False, as_json: Json = False) -> None:
    """Print a run's report."""
    with hub_of(Settings(), local=local) as hub:
        found = hub.report(hub.find_run(name).uid)
    show(report_page(found), found, as_json=as_json)


@app.command()
def cancel(name: Run, local: Local = False, as_json: Json = False) -> None:
    """End every unfinished trial of a run as cancelled. There is no way back."""
    settings = Settings()
    if is_local(settings, asked=local):
        said = wish(Home(settings.home).socket("control"), "cancel", name)
    else:
        Remote(settings).patch(Kind.BenchmarkRun, name, {"spec": {"cancel": True}})
        said = f"run {name} is being cancelled"
    show(Text(said), {"said": said}, as_json=as_json)


@app.command()
def retry(name: Name, local: Local = False, as_json: Json = False) -> None:
    """Try errored trials again: one, or all of a run. Verdicts are never tried again."""
    settings = Settings()
    if is_local(settings, asked=local):
        said = wish(Home(settings.home).socket("control"), "retry", name)
    else:
        said = runs.retry_remote(Remote(settings), name)
    show(Text(said), {"said": said}, as_json=as_json)


@app.command()
def shell(name: Trial, local: Local = False) -> None:
    """Open a shell in a running trial's sandbox, as the agent's user. Marks the trial as not formal."""
    settings = Settings()
    raise typer.Exit(open_local(settings, name) if is_local(settings, asked=local) else open_remote(settings, name))


@app.command()
def push(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER…", help="Task folders, each with a task.toml.")],
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Store task packages in the hub and print what a TaskSuite says of them."""
    packed = [(folder.resolve().name, pack(folder.resolve())) for folder in folders]
    with hub_of(Settings(), local=local) as hub:
        entries = [{"name": name, "package": hub.push(each)} for name, each in packed]
    page = Text("\n".join(f"- name: {entry['name']}\n  package: {entry['package']}" for entry in entries))
    show(page, entries, as_json=as_json)


@app.command()
def doctor(local: Local = False, as_json: Json = False) -> None:
    """Look for what is missing on this machine or in the cluster, and for objects left behind."""
    found = examine(Settings(), local=local)
    page = Text("\n").join(_finding_line(finding) for finding in found)
    show(page, [finding.dump() for finding in found], as_json=as_json)
    raise typer.Exit(Code.OK if all(finding.good for finding in found) else Code.INCOMPLETE)


def _finding_line(finding: Finding) -> Text:
    mark = ("ok   ", "green") if finding.good else ("FIX  ", "red")
    return Text.assemble(mark, (finding.what, "bold"), f"  {finding.said}")
