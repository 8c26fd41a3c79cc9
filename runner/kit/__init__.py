"""The evaluator's pytest plugin: what a hidden suite is written with.

A suite marks its tests with `@case(…)` and takes the fixtures of `fixtures.py`; it imports from `runner.kit` alone.
What a suite may conclude is in `blame.py`: only what the submission did counts against it.
"""

from runner.kit.answers import Answer
from runner.kit.cases import case
from runner.kit.faults import KitFailed, SubmissionFailed, require
from runner.kit.patience import eventually

__all__ = ["Answer", "KitFailed", "SubmissionFailed", "case", "eventually", "require"]
