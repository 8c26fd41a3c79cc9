"""Values → tables for people. Pure: returns what rich prints; `--json` never comes here.

Text of agents and submissions is shown as it is, never as markup.
"""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wire.journal import AnyEntry, CaseOutcome, Evidence
from wire.report import ArmLine, CaseResult, Rate, RunReport, RunSummary, TrialFacts, TrialLine, TrialSummary

STYLES = {"Graded": "green", "Errored": "red", "Cancelled": "yellow", "Unfinished": "cyan"}
SHOWN_CASES = 64


def runs_table(runs: Iterable[RunSummary]) -> RenderableType:
    """Return the list of runs."""
    table = _table("RUN", "NAMESPACE", "TRIALS", "GRADED", "ERRORED", "CANCELLED", "UNFINISHED", "UID")
    for run in runs:
        counts = run.counts
        numbers = (counts.trials, counts.graded, counts.errored, counts.cancelled, counts.unfinished)
        table.add_row(Text(run.name), Text(run.namespace), *(str(number) for number in numbers), Text(run.uid))
    return table


def trials_table(trials: Iterable[TrialSummary]) -> RenderableType:
    """Return the list of a run's trials."""
    table = _table("TRIAL", "TASK", "ARM", "REP", "ATTEMPT", "STANDING", "PASSED")
    for trial in trials:
        result = trial.result
        passed = f"{result.passed}/{result.applicable}" if result else "–"
        standing = Text(trial.standing, STYLES[trial.standing])
        place = (Text(trial.name), Text(trial.task), Text(trial.arm), str(trial.repetition), str(trial.attempt))
        table.add_row(*place, standing, passed)
    return table


def trial_page(facts: TrialFacts) -> RenderableType:
    """Return one trial with every case."""
    spec = facts.record.spec
    head = [
        Text.assemble((facts.record.name, "bold"), "  ", (facts.standing, STYLES[facts.standing])),
        Text(f"task {spec.task}, arm {spec.arm.name}, repetition {spec.repetition}, attempt {facts.record.attempt}"),
        Text(f"package {spec.package}"),
    ]
    if facts.settlement and facts.settlement.failure_class:
        said = f"{facts.settlement.failure_class}: {facts.settlement.reason} {facts.settlement.message}"
        head.append(Text(said, "red"))
    for attempt in facts.settlement.attempts if facts.settlement else ():
        said = f"attempt {attempt.number} ended while {attempt.stage}: {attempt.failure_class}: {attempt.reason}"
        head.append(Text(f"{said} {attempt.message}", "yellow"))
    if facts.verdict is None:
        return Group(*head, Text("no verdict yet"))
    submission = facts.verdict.submission
    gate = "passed the gate" if submission.gate_passed else "did not pass the gate"
    head.append(Text(f"submission {submission.digest} {gate} ({submission.end_reason})"))
    return Group(*head, cases_table(facts.verdict.cases))


def cases_table(cases: Iterable[CaseResult]) -> RenderableType:
    """Return the cases that were selected, then how many were not."""
    table = _table("CASE", "OUTCOME", "SECONDS", "TITLE", "MESSAGE")
    left_out = 0
    for case in cases:
        if not case.selected:
            left_out += 1
            continue
        seconds = "" if case.seconds is None else f"{case.seconds:.1f}"
        outcome = Text(case.outcome or "–", "green" if case.outcome == CaseOutcome.PASSED else "red")
        table.add_row(case.id, outcome, seconds, Text(case.title), Text(case.message.strip()[:200]))
    return Group(table, Text(f"{left_out} cases were not selected", "dim")) if left_out else table


def report_page(report: RunReport) -> RenderableType:
    """Return the report of a run."""
    counts = report.counts
    standing = f"{counts.graded} graded, {counts.errored} errored, {counts.cancelled} cancelled"
    if counts.unfinished:
        standing += f", {counts.unfinished} unfinished"
    head = Text.assemble(
        (f"run {report.name}", "bold"), f"  suite {report.suite}  {counts.trials} trials: {standing}  ",
        "formal" if report.formal else ("not formal", "yellow"),
    )  # fmt: skip
    arms = _table("ARM", "AGENT", "GRADED", "CCPF", "CONFIRMED PASSES")
    for arm in report.arms:
        arms.add_row(*_arm_row(arm))
    cells = _table("TASK", "ARM", "GRADED", "CCPF", "COVERAGE")
    for cell in report.cells:
        graded = f"{cell.counts.graded}/{cell.counts.trials}"
        cells.add_row(Text(cell.task), Text(cell.arm), graded, rate(cell.ccpf), Text(cell.coverage))
    trials = [Padding(_trial_lines(trial), (0, 0, 0, 2), expand=False) for trial in report.trials]
    return Group(head, Text(), arms, Text(), cells, Text(), Text("trials", "bold"), *trials)


def rate(value: Rate | None) -> str:
    """Write a rate with its denominator; a bound where cases are unresolved."""
    if value is None:
        return "–"
    share = f"{100 * value.low:.1f} %"
    if value.unresolved:
        share = f"{100 * value.low:.1f} to {100 * value.high:.1f} %"
    return f"{share} ({value.passed} of {value.of})"


def journal_line(entry: AnyEntry) -> Text:
    """Return one entry of a journal as one line."""
    fields = entry.dump()
    kind = str(fields.pop("kind"))
    said = "  ".join(f"{name}={_short(value)}" for name, value in fields.items() if not isinstance(value, Evidence))
    return Text.assemble((kind, "bold"), "  ", said)


def _arm_row(arm: ArmLine) -> tuple[RenderableType, ...]:
    graded = f"{arm.counts.graded}/{arm.counts.trials}"
    return Text(arm.arm), Text(arm.agent), graded, rate(arm.ccpf), rate(arm.confirmed)


def _trial_lines(trial: TrialLine) -> Text:
    """Return what there is to say about one trial in a report: one line, and one more for what went wrong."""
    gates = {True: "gate passed", False: "gate not passed", None: "no gate"}[trial.gate_passed]
    seconds = f"{'' if trial.coding_complete else '≥'}{trial.coding_seconds:.0f} s coding"
    line = Text.assemble(
        (trial.name, "bold"), f"  {trial.task} / {trial.arm} / {trial.repetition}  ",
        (trial.standing, STYLES[trial.standing]),
    )  # fmt: skip
    if trial.standing == "Graded":
        line.append(f"  {rate(trial.ccpf)}  {gates}, {trial.turns} turns, {seconds}")
        failed = [case.id for case in trial.cases if case.outcome not in (None, CaseOutcome.PASSED)]
        if failed:
            more = f" and {len(failed) - SHOWN_CASES} more" if len(failed) > SHOWN_CASES else ""
            line.append(f"\n  not passed: {' '.join(failed[:SHOWN_CASES])}{more}", "dim")
    if trial.standing != "Graded" and (trial.reason or trial.message):
        line.append(f"\n  {trial.failure_class or ''} {trial.reason}: {trial.message}", "red")
    if trial.failures:
        ends = ", ".join(f"{a.number}: {a.reason} ({a.failure_class})" for a in trial.attempts)
        line.append(f"\n  {trial.failures} failed attempts: {ends}", "yellow")
    return line


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _short(value: object, limit: int = 160) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= limit else f"{text[:limit]}…"


def problem(text: str) -> str:
    """Return an error for the console, safe to print as markup."""
    return f"[red]proctor:[/red] {escape(text)}"
