"""From journal entries to a verdict. Pure: the same entries give the same document, whenever they are counted.

Effective outcome of a case = its report of the highest attempt. A case that was selected and never reported, or last
ended unresolved, is unresolved. Reports of a shard that found the submission or the prepared tree altered count as not
made.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from wire.digest import of_json
from wire.errors import InvalidInput
from wire.journal import AnyEntry, CaseOutcome, CasePlan, CaseReported, SubmissionChecked, SuitePlanned, TrialRecord
from wire.package import SuiteInfo
from wire.report import CaseResult, Verdict
from wire.trial import Result, Submission

MESSAGE_LIMIT: Final = 512
NOT_APPLICABLE: Final = frozenset({CaseOutcome.EXCLUDED, CaseOutcome.DIAGNOSTIC})


class SuiteMissing(InvalidInput):
    """A graded settlement without a planned suite: nothing can be counted."""

    reason = "SuiteMissing"


def count_verdict(
    record: TrialRecord, submission: Submission, entries: Sequence[AnyEntry], published: SuiteInfo
) -> Verdict:
    """Return the verdict on a submission; `published` is the complete suite's size by its task.

    Raises:
        SuiteMissing: no evaluator has planned the suite for this very submission.
    """
    plan = next((entry for entry in entries if isinstance(entry, SuitePlanned)), None)
    if plan is None:
        raise SuiteMissing(f"trial {record.name} cannot be graded: no suite was planned")
    if plan.submission != submission.digest:
        raise SuiteMissing(f"trial {record.name}: the suite was planned for {plan.submission}, not {submission.digest}")
    reports = _trusted_reports(entries, submission)
    cases = [_case(case, reports.get(case.id, [])) for case in sorted(plan.cases, key=lambda case: case.id)]
    counts = Counter(case.outcome for case in cases if case.outcome is not None)
    selected = counts.total()
    applicable = selected - sum(counts[outcome] for outcome in NOT_APPLICABLE)
    return Verdict(
        trial=record.uid,
        task=record.spec.task,
        package=record.spec.package,
        arm=record.spec.arm.name,
        repetition=record.spec.repetition,
        submission=submission,
        cases=cases,
        planned=len(cases),
        selected=selected,
        scheduled=max(published.scheduled, len(cases)),
        coverable=max(published.applicable, applicable),
        applicable=applicable,
        passed=counts[CaseOutcome.PASSED],
        failed=counts[CaseOutcome.FAILED],
        blocked=counts[CaseOutcome.BLOCKED],
        unresolved=counts[CaseOutcome.UNRESOLVED],
        excluded=counts[CaseOutcome.EXCLUDED],
        diagnostic=counts[CaseOutcome.DIAGNOSTIC],
    )


def result_of(verdict: Verdict) -> Result:
    """Return the figures that go into the trial's status."""
    return Result(
        applicable=verdict.applicable,
        passed=verdict.passed,
        failed=verdict.failed,
        blocked=verdict.blocked,
        unresolved=verdict.unresolved,
        scheduled=verdict.scheduled,
        digest=of_json(verdict.dump()),
    )


def _trusted_reports(entries: Iterable[AnyEntry], submission: Submission) -> dict[str, list[CaseReported]]:
    """Return each case's reports by attempt, without those of shards whose digests disagreed."""
    entries = list(entries)
    altered = {
        (entry.attempt, entry.shard)
        for entry in entries
        if isinstance(entry, SubmissionChecked) and entry.is_altered(submission)
    }
    reports: dict[str, list[CaseReported]] = {}
    for entry in entries:
        if isinstance(entry, CaseReported) and (entry.attempt, entry.shard) not in altered:
            reports.setdefault(entry.case, []).append(entry)
    return {case: sorted(found, key=lambda entry: entry.attempt) for case, found in reports.items()}


def _case(plan: CasePlan, reports: Sequence[CaseReported]) -> CaseResult:
    known = CaseResult(id=plan.id, dimension=plan.dimension, title=plan.title, selected=plan.selected)
    if not plan.selected:
        return known
    if not reports:
        return known.model_copy(update={"outcome": CaseOutcome.UNRESOLVED, "message": "never reported"})
    last = reports[-1]
    return known.model_copy(
        update={
            "outcome": last.outcome,
            "runs": len(reports),
            "seconds": last.seconds,
            "message": last.message[:MESSAGE_LIMIT],
        }
    )
