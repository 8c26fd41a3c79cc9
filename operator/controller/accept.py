"""May this run start? A run and its suite → what is pinned, or one problem that names the field and the fix. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.views import RunView, SuiteView
from wire.digest import Digest, of_json
from wire.package import PackageManifest
from wire.run import AgentKind, BenchmarkRunSpec
from wire.suite import SuiteTask


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a run is not accepted (yet)."""

    reason: str
    message: str
    passing: bool = False
    """It may mend itself: ask again."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What an accepted run is pinned to."""

    suite_digest: Digest
    packages: dict[str, Digest]


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What the hub says about packages: by digest, None = it has no such package."""

    manifests: Mapping[str, PackageManifest | None]
    unreachable: str = ""


def suite_digest(suite: SuiteView) -> Digest:
    """Return the digest of a suite's spec."""
    return of_json(suite.spec.dump())


def wanted(run: RunView, suite: SuiteView) -> list[SuiteTask]:
    """Return the suite's tasks that this run runs, in the suite's order."""
    return [task for task in suite.spec.tasks if not run.spec.tasks or task.name in run.spec.tasks]


def judge(run: RunView, suite: SuiteView | None, packages: Packages) -> Accepted | Problem:
    """Return what the run is pinned to, or the first problem with it."""
    if wrong := _wrong_arms(run.spec):
        return wrong
    if suite is None:
        fix = "apply the TaskSuite or correct the name; the run starts by itself then"
        where = f"namespace {run.meta.namespace}"
        message = f"spec.suite: there is no TaskSuite {run.spec.suite!r} in {where}; {fix}"
        return Problem(reason="UnknownSuite", message=message)
    names = [task.name for task in suite.spec.tasks]
    if unknown := [name for name in run.spec.tasks if name not in names]:
        there = ", ".join(names)
        message = f"spec.tasks: {unknown[0]!r} is not in suite {run.spec.suite!r}, which has: {there}"
        return Problem(reason="UnknownTask", message=message)
    if informal := _not_formal(run, suite):
        return informal
    return _pin(run, suite, packages)


def missing_package(suite: SuiteView, tasks: Iterable[SuiteTask], packages: Packages) -> Problem | None:
    """Return the first task's package of which the hub said that it is not there."""
    for task in tasks:
        if task.package in packages.manifests and packages.manifests[task.package] is None:
            fix = f"run `proctor push` on the task's folder, or correct the digest in TaskSuite {suite.meta.name!r}"
            message = f"the hub has no package {task.package} of task {task.name!r}; {fix}"
            return Problem(reason="PackageMissing", message=message, passing=True)
    return None


def _pin(run: RunView, suite: SuiteView, packages: Packages) -> Accepted | Problem:
    if missing := missing_package(suite, wanted(run, suite), packages):
        return missing
    if packages.unreachable:
        return Problem(reason="HubUnreachable", message=packages.unreachable, passing=True)
    if unknown := _unknown_mutant(run, suite, packages):
        return unknown
    pinned = {task.name: task.package for task in wanted(run, suite)}
    return Accepted(suite_digest=suite_digest(suite), packages=pinned)


def _unknown_mutant(run: RunView, suite: SuiteView, packages: Packages) -> Problem | None:
    """Refuse an arm whose mutant one of its tasks does not have."""
    for task in wanted(run, suite):
        manifest = packages.manifests.get(task.package)
        mutants = manifest.mutants if manifest else []
        for arm in run.spec.arms:
            if arm.agent.mutant is not None and arm.agent.mutant not in mutants:
                there = f"which has: {', '.join(mutants)}" if mutants else "which has none"
                field = f"spec.arms[{arm.name}].agent.mutant"
                message = f"{field}: {arm.agent.mutant!r} is no mutant of task {task.name!r}, {there}"
                return Problem(reason="UnknownMutant", message=message)
    return None


def _wrong_arms(spec: BenchmarkRunSpec) -> Problem | None:
    """Repeat what the CRD demands, for objects that came by another way."""
    names = [arm.name for arm in spec.arms]
    if len(set(names)) != len(names):
        return Problem(reason="InvalidSpec", message="spec.arms: two arms have the same name; rename one")
    for arm in spec.arms:
        if (arm.agent.kind is AgentKind.MUTANT) != (arm.agent.mutant is not None):
            fix = "give `mutant` exactly when `kind` is mutant"
            return Problem(reason="InvalidSpec", message=f"spec.arms[{arm.name}].agent.mutant: {fix}")
    if unknown := [name for name in spec.suspended_arms if name not in names]:
        return Problem(reason="InvalidSpec", message=f"spec.suspendedArms: {unknown[0]!r} is no arm of this run")
    return None


def _not_formal(run: RunView, suite: SuiteView) -> Problem | None:
    """Refuse a formal run what would make its result not formal."""
    if not run.spec.formal:
        return None
    if run.spec.evaluation.tags:
        message = "spec.evaluation.tags: a formal run grades all cases; leave the tags out or set formal to false"
        return Problem(reason="NotFormal", message=message)
    for task in wanted(run, suite):
        if task.certificate is None:
            fix = "certify the task and add the certificate to the suite, or set formal to false"
            return Problem(reason="NotFormal", message=f"task {task.name!r} has no certificate; {fix}")
    return None
