"""A suite's status says whether its packages are in the hub: written when something happened, never by the clock."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller.cluster import Kind, Object
from tests.controller.fakes import NAMESPACE, PACKAGE, run, settings, suite
from tests.controller.lab import Lab
from wire.digest import of_bytes

OTHER = PACKAGE.model_copy(update={"mutants": []})


def suite_of_two() -> Object:
    """Return a suite whose second package is another."""
    body = suite(tasks=("lease", "other"))
    body["spec"]["tasks"][1]["package"] = OTHER.digest()
    return body


def verified(lab: Lab) -> Object:
    """Return the suite's one condition, and the generation that its status is about."""
    found = lab.cluster.objects.get(Kind.TaskSuite, NAMESPACE, "lab") or {}
    status = found.get("status") or {}
    (condition,) = status.get("conditions") or [{}]
    return {**condition, "observed": status.get("observedGeneration")}


def tell(story: Callable[[Lab], Awaitable[None]], **changes: object) -> None:
    """Tell a story in a lab whose operator has just been started."""

    async def whole() -> None:
        lab = Lab(chosen=settings(**changes))
        await lab.start()
        await story(lab)
        await lab.stop()

    asyncio.run(whole())


def writes(lab: Lab) -> int:
    """Return how often the status of a suite was written."""
    return lab.killer.log.count("patch TaskSuite status")


def test_a_whole_suite_is_verified_once() -> None:
    """One write, about the generation that was looked at."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.TaskSuite, suite())
        await lab.until(lambda: verified(lab).get("type") == "Verified")
        await lab.settle_down()
        assert verified(lab) | {"status": "True", "reason": "PackagesFound", "observed": 1} == verified(lab)
        assert writes(lab) == 1

    tell(story)


def test_a_missing_package_is_named_and_found_again_when_the_suite_is_edited() -> None:
    """False names the task, the digest and the fix; an edit that removes it makes it True, with the new generation."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.TaskSuite, suite_of_two())
        await lab.until(lambda: verified(lab).get("status") == "False")
        assert (verified(lab)["reason"], verified(lab)["observed"]) == ("PackageMissing", 1)
        for words in ("'other'", OTHER.digest(), "proctor push", "TaskSuite 'lab'"):
            assert words in verified(lab)["message"]
        await lab.settle_down()
        assert writes(lab) == 1
        found = lab.cluster.objects.get(Kind.TaskSuite, NAMESPACE, "lab")
        assert found is not None
        lab.cluster.objects.patch(Kind.TaskSuite, found, {"spec": suite()["spec"]})
        await lab.until(lambda: verified(lab).get("status") == "True")
        assert verified(lab)["observed"] == 2

    tell(story)


def test_a_package_that_a_run_finds_later_verifies_its_suite() -> None:
    """Nobody tells the operator about uploads, but a run that waits for one asks."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.TaskSuite, suite_of_two())
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.condition("Accepted").get("reason") == "PackageMissing")
        assert verified(lab)["status"] == "False"
        lab.hub.packages[OTHER.digest()] = OTHER
        await lab.until(lambda: lab.run_phase() == "Complete")
        assert verified(lab)["status"] == "True"

    tell(story)


@pytest.mark.parametrize("there", [True, False])
def test_a_hub_that_is_away_leaves_the_status_until_it_answers(there: bool) -> None:
    """Nothing is claimed meanwhile; then it is written once."""

    async def story(lab: Lab) -> None:
        lab.hub.down = True
        if not there:
            lab.hub.packages = {of_bytes(b"another"): PACKAGE}
        await lab.apply(Kind.TaskSuite, suite())
        await lab.settle_down()
        assert writes(lab) == 0
        lab.hub.down = False
        await lab.until(lambda: verified(lab).get("status") == str(there))
        assert writes(lab) == 1

    tell(story)


def test_an_operator_that_starts_again_writes_nothing_new() -> None:
    """The same suite and the same hub give the same status, transition time included."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.TaskSuite, suite())
        await lab.until(lambda: verified(lab).get("status") == "True")
        before = verified(lab)
        await lab.stop()
        lab.clock.move(3600)
        await lab.start()
        await lab.settle_down()
        assert (verified(lab), writes(lab)) == (before, 0)

    tell(story)
