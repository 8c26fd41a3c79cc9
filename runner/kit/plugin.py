"""The pytest plugin: collects cases, takes this shard's share, and reports each case as it ends.

Loaded with `-p runner.kit.plugin --kit CONFIG`. Which fixtures a suite may use is in `fixtures.py`.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from runner.kit.blame import Phase, outcome_of, verdict
from runner.kit.casefile import CaseFile, cut
from runner.kit.cases import MARK, Case, is_selected, shard_order
from runner.kit.faults import KitFailed
from runner.kit.reporting import MESSAGE_CHARS, KitConfig, Planned, Ran
from runner.kit.stashes import CONFIG, FILE, MESSAGES, PHASES
from wire.journal import CaseOutcome

pytest_plugins: Final = ["runner.kit.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the path of the configuration."""
    parser.addoption("--kit", required=True, help="the kit's configuration, a JSON file")


def pytest_configure(config: pytest.Config) -> None:
    """Read the configuration, or stop."""
    config.stash[CONFIG] = KitConfig.model_validate_json(Path(config.getoption("--kit")).read_bytes())
    config.addinivalue_line("markers", f"{MARK}(case): a case of a hidden suite; written as `@case(…)`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write the plan; keep what this shard has to run, in order."""
    kit = config.stash[CONFIG]
    by_id = _by_id(items)
    cases = {id: _case(item) for id, item in by_id.items()}
    selected = [case for case in cases.values() if is_selected(case.plan, kit.tags)]
    mine = shard_order(selected, kit.shard, kit.shards)
    plans = [case.plan.model_copy(update={"selected": case in selected}) for case in cases.values()]
    _write(kit, Planned(cases=sorted(plans, key=lambda plan: plan.id), mine=mine))
    wanted = [id for id in mine if id not in kit.settled and (not kit.only or id in kit.only)]
    items[:] = [] if kit.plan_only else [by_id[id] for id in wanted]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run one case under its deadline and report it."""
    case, kit = _case(item), item.config.stash[CONFIG]
    folder = Path(kit.scratch) / f"case-{case.plan.id}"
    folder.mkdir(parents=True, exist_ok=True)
    item.stash[FILE] = CaseFile(folder)
    item.stash[PHASES] = {}
    item.stash[MESSAGES] = []
    begun = time.monotonic()
    try:
        return (yield)
    finally:
        _write(kit, _ran(item, case, time.monotonic() - begun))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Interrupt a case that outlives its deadline: why is not known, so it counts as the kit's failure."""
    seconds = _case(item).deadline_seconds

    def strike(signum: int, frame: FrameType | None) -> None:
        raise KitFailed(f"the case has not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attribute what a phase raised."""
    report = yield
    phase = Phase(call.when)
    if (raised := call.excinfo) is None:
        item.stash[PHASES][phase] = CaseOutcome.PASSED
        return report
    in_suite = Path(str(raised.traceback[-1].path)).is_relative_to(item.config.rootpath)
    item.stash[PHASES][phase] = outcome_of(raised.value, phase, in_suite)
    shown = f"[{phase}] {raised.typename}: {raised.value}"
    if item.stash[PHASES][phase] is CaseOutcome.UNRESOLVED:
        shown += f"\n{raised.getrepr(style='short')}"
    item.stash[MESSAGES].append(shown)
    return report


def _by_id(items: list[pytest.Item]) -> dict[str, pytest.Item]:
    by_id: dict[str, pytest.Item] = {}
    for item in items:
        mark = item.get_closest_marker(MARK)
        if mark is None:
            raise pytest.UsageError(f"{item.nodeid} is not a case: mark it with @case(…)")
        id = _case(item).plan.id
        if id in by_id:
            raise pytest.UsageError(f"case {id!r} is declared twice: {by_id[id].nodeid} and {item.nodeid}")
        by_id[id] = item
    if not by_id:
        raise pytest.UsageError("the suite has no case")
    return by_id


def _case(item: pytest.Item) -> Case:
    mark = item.get_closest_marker(MARK)
    assert mark is not None
    case = mark.args[0]
    assert isinstance(case, Case)
    return case


def _ran(item: pytest.Item, case: Case, seconds: float) -> Ran:
    file, messages = item.stash[FILE], item.stash[MESSAGES]
    return Ran(
        case=case.plan.id,
        outcome=verdict(item.stash[PHASES]),
        seconds=round(seconds, 3),
        message=cut("\n".join(messages), MESSAGE_CHARS),
        evidence=file.evidence(),
        pictures=file.pictures,
    )


def _write(kit: KitConfig, line: Planned | Ran) -> None:
    with Path(kit.reports).open("a") as out:
        out.write(line.model_dump_json(by_alias=True) + "\n")
