"""Where the plugin keeps what belongs to a run or a case, under keys that only the kit has."""

from typing import Final

import pytest

from runner.kit.blame import Phase
from runner.kit.casefile import CaseFile
from runner.kit.reporting import KitConfig
from wire.journal import CaseOutcome

CONFIG: Final = pytest.StashKey[KitConfig]()
FILE: Final = pytest.StashKey[CaseFile]()
PHASES: Final = pytest.StashKey[dict[Phase, CaseOutcome]]()
MESSAGES: Final = pytest.StashKey[list[str]]()
