"""A suite's status: does the hub have its packages? Pure."""

from datetime import datetime

from controller.accept import Packages, missing_package
from controller.conditions import Conditions
from controller.views import SuiteView
from wire.suite import TaskSuiteStatus


def verified(suite: SuiteView, packages: Packages, now: datetime) -> TaskSuiteStatus:
    """Return the status that follows from what the hub said about every package; the first missing one is named."""
    met = Conditions(suite.meta, suite.status.conditions, now)
    if problem := missing_package(suite, suite.spec.tasks, packages):
        met.set("Verified", "False", problem.reason, problem.message)
    else:
        met.set("Verified", "True", "PackagesFound", "the hub has the package of every task")
    return TaskSuiteStatus(observed_generation=suite.meta.generation, conditions=met.list())
