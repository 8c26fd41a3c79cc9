"""Whole lives of runs and trials over the memory cluster: what the operator promises, from the outside."""

import asyncio

from controller.cluster import Kind
from tests.controller.fakes import RESULT, run
from tests.controller.lab import ready


def test_a_trial_is_developed_checked_evaluated_and_graded() -> None:
    """One trial without faults ends graded, leaves no pod behind, and costs at most 36 calls."""

    async def story() -> None:
        lab = await ready()
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        await lab.settle_down()
        status = lab.trial()["status"]
        assert (status["phase"], status["attempt"], status["failures"]) == ("Graded", 1, 0)
        assert status["result"] == RESULT.dump()
        assert lab.left() == {"BenchmarkRun quick", f"Trial {lab.trial()['metadata']['name']}"}
        assert lab.trial()["metadata"].get("finalizers") in (None, [])
        calls = [what for what in lab.killer.log if not what.startswith("hub")]
        assert len(calls) <= 36, calls
        await lab.stop()

    asyncio.run(story())
