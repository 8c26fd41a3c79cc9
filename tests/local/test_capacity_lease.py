"""CapacityLease's quick suite measures what it claims: graded in a pod of the real sandbox image.

The solution passes everything, the untouched scaffold nothing that needs work, and every mutant fails the cases that
are declared for it and none of five others.
"""

import asyncio
import json
import random
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.local.bwrap import LIBRARY
from proctor.local.cgroups import Groups
from proctor.local.image import Image
from proctor.local.kubelet import Kubelet
from proctor.local.memory import MemoryCluster, wall_clock
from proctor.local.nest import Nest, find_mode
from proctor.local.pods import Machine
from tests.local.conftest import Lab

pytestmark = pytest.mark.local
ROOT = Path(__file__).parents[2]
TASK = "tasks/transfer/capacity-lease"
QUICK = [f"A-{number:02d}" for number in (1, 5, 8, 9, 11, 15)]
QUICK += ["B-01", "B-02", "B-06", "B-07", "B-09", "C-02", "C-05", "C-07", "D-01", "D-02", "D-07", "E-07"]
STARTUP: frozenset[str] = frozenset()
"""Cases that an untouched scaffold may pass: the kinds that only start it."""
SAMPLED = 5
PATIENCE_SECONDS = 2400.0
Outcomes = Mapping[str, tuple[str, str]]


def declared() -> dict[str, list[str]]:
    """Return each mutant's declared failures."""
    document = tomllib.loads((ROOT / TASK / "private" / "mutants.toml").read_text())
    return {mutant["id"]: mutant["fails"] for mutant in document["mutants"]}


def cases_for(mutant: str) -> list[str]:
    """Return what a mutant is graded by: its declared cases and some others, always the same ones."""
    others = [case for case in QUICK if case not in declared()[mutant]]
    # Without the longest case, but where it is declared: it runs the submission's own tests five times.
    others.remove("D-07") if "D-07" in others else None
    return sorted([*declared()[mutant], *random.Random(mutant).sample(others, SAMPLED)])


@pytest.fixture(scope="module")
def graded(image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcomes]:
    """Grade everything in one pod; return the outcomes by subject."""
    subjects = {"solution": [], "scaffold": [], **{mutant: cases_for(mutant) for mutant in declared()}}
    return asyncio.run(_grade(image, tmp_path_factory.mktemp("grade"), subjects))


async def _grade(image: Image, folder: Path, subjects: dict[str, list[str]]) -> dict[str, Outcomes]:
    library = {**image.library, "tests": ROOT / "tests", "tasks": ROOT / "tasks"}
    cluster = MemoryCluster()
    async with Nest(find_mode()) as nest:
        machine = Machine(
            nest=nest, groups=Groups(), root=image.root, library=library, folder=folder / "pods", logs=folder / "logs"
        )
        async with Kubelet(cluster.objects, machine, {}, image.env, wall_clock) as kubelet:
            lab = Lab(cluster, kubelet, folder)
            lab.patience_seconds = PATIENCE_SECONDS
            script = f"exec python3 -m tests.local.grade {LIBRARY}/{TASK} '{json.dumps(subjects)}'"
            lab.pod("grade", script, uid=0, memory="3Gi", tier="untrusted", env=image.env)
            ended = await lab.ended("grade")
            printed = lab.log("grade").read_text()
            assert ended["exitCode"] == 0, printed[-3000:]
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"subject"')]
    return {line["subject"]: {case: tuple(said) for case, said in line["cases"].items()} for line in lines}


def test_the_solution_passes_every_case(graded: dict[str, Outcomes]) -> None:
    """All of the quick suite."""
    assert {case: said for case, said in graded["solution"].items() if said[0] != "passed"} == {}
    assert sorted(graded["solution"]) == QUICK


def test_the_untouched_scaffold_passes_nothing_that_needs_work(graded: dict[str, Outcomes]) -> None:
    """It starts, and that is all."""
    assert {case for case, said in graded["scaffold"].items() if said[0] != "failed"} <= STARTUP


@pytest.mark.parametrize("mutant", sorted(declared()))
def test_a_mutant_fails_exactly_its_declared_cases(graded: dict[str, Outcomes], mutant: str) -> None:
    """Among the cases that it is graded by."""
    failed = sorted(case for case, said in graded[mutant].items() if said[0] == "failed")
    assert failed == sorted(declared()[mutant]), graded[mutant]
    assert not [case for case, said in graded[mutant].items() if said[0] == "unresolved"]


def test_every_case_is_killed_by_a_mutant() -> None:
    """A case that no mistake can fail proves nothing."""
    assert {case for fails in declared().values() for case in fails} == set(QUICK)
