"""A small task and its trial: everything a session or a gate needs, in Python and shell."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from runner.clock import now
from tests.runner.fakes import FakeHub
from tests.runner.processes import BEARER, Box, Running, free_port, secrets_folder, start_role
from wire.archive import tree_bytes
from wire.digest import Digest, of_bytes
from wire.journal import TurnSealed
from wire.package import Operations, PackageManifest, PartName, Scenario, SuiteInfo, TaskInfo
from wire.run import AgentKind, AgentSpec, Arm, Evaluation, Limits, UserSpec
from wire.trial import RunRef, TrialSpec

SCENARIO = """
opening = "Please build it."
gate_failed = "The gate says: {report}"

[[milestones]]
id = "first"
message = "Now the first milestone."
"""
# Counts its starts where no checkpoint looks, and prints enough for several journal rows.
INSTALL = ["sh", "-c", "echo x >> ../starts; mkdir -p deps; seq 1 2000; sleep ${PAUSE:-0}; date > deps/when"]
PATCH = """\
--- a/app.py
+++ b/app.py
@@ -1,1 +1,1 @@
-print("right")
+print("wrong")
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def add_package(
    hub: FakeHub, folder: Path, operations: Operations | None = None, checker: str = "checker"
) -> PackageManifest:
    """Give a hub a package."""
    files = {"scaffold/app.py": 'print("scaffold")\n', "README.md": "contract", "plan.md": "plan"}
    files |= {"checker/check.mjs": checker}
    parts: dict[PartName, dict[str, str]] = {
        "public": files,
        "user": {"scenario.toml": SCENARIO},
        "oracle": {
            "solution/app.py": 'print("right")\n',
            "mutants/wrong.patch": PATCH,
            "mutants/bad.patch": "no patch",
        },
    }
    digests: dict[PartName, Digest] = {}
    for name, content in parts.items():
        packed = tree_bytes(write(folder / name, content))
        hub.parts[name], digests[name] = packed, of_bytes(packed)
    task = TaskInfo(
        id="small",
        title="Small",
        version="1",
        tags=[],
        excluded=["deps"],
        operations=operations or operations_of(),
        suite=SuiteInfo(applicable=1, scheduled=1),
    )
    hub.manifest = PackageManifest(task=task, parts=digests)
    return hub.manifest


def operations_of(install: list[str] | None = None, api: list[str] | None = None) -> Operations:
    """Return a task's operations."""
    nothing = ["true"]
    return Operations(
        install=install or INSTALL, build=nothing, migrate=nothing, api=api or nothing, worker=nothing, test=nothing
    )


def trial_spec(manifest: PackageManifest, agent: AgentSpec, limits: Limits | None = None) -> TrialSpec:
    """Return a trial's spec."""
    return TrialSpec(
        run_ref=RunRef(name="run", uid="u"),
        index=0,
        task="small",
        package=manifest.digest(),
        arm=Arm(name="arm", agent=agent),
        repetition=1,
        user=UserSpec(),
        limits=limits or Limits(),
        evaluation=Evaluation(),
        formal=False,
    )


def sealed(
    turn: int, conversation: int = 1, *, seconds: int = 60, deaths: int = 0, rolled_back: bool = False
) -> TurnSealed:
    """Return a sealed turn that took so long."""
    return TurnSealed(
        turn=turn,
        conversation=conversation,
        attempt=1,
        sandbox=1,
        reply="",
        started_at="2026-01-01T00:00:00.000Z",
        ended_at=f"2026-01-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.000Z",
        checkpoint=of_bytes(str(turn).encode()),
        resource_deaths=deaths,
        rolled_back=rolled_back,
    )


@dataclass
class Pod:
    """A session pod: an agent and a user that find each other on a port of their own."""

    agent: Running
    user: Running
    folder: Path
    port: int

    def outcome(self, role: str) -> dict[str, object]:
        """Return the termination message of a container."""
        found: dict[str, object] = json.loads((self.folder / f"{role}.outcome").read_text())
        return found

    def kill(self) -> None:
        """End the pod as a lost node does."""
        self.agent.kill()
        self.user.kill()


@dataclass
class Trial:
    """One trial on this machine: hub, sandbox, and what its pods are told."""

    hub: FakeHub
    box: Box
    spec: TrialSpec
    folder: Path
    sandbox_attempt: int = 1
    pods: list[Pod] = field(default_factory=list)

    def driver(self, role: str, attempt: int) -> dict[str, object]:
        """Return the settings that all drivers share."""
        place = self.folder / f"{role}-{attempt}-{now().replace(':', '')}"
        secrets = secrets_folder(place / "secrets", token="token", daemon=BEARER)
        return {
            "hub_url": self.hub.url,
            "spec": json.dumps(self.spec.dump()),
            "trial_uid": "uid",
            "attempt": attempt,
            "secrets": secrets,
            "spool": place / "spool",
            "workspace": self.box.workspace,
            "agent_home": self.box.home,
        }

    def session(self, attempt: int = 1, conversation: int = 1, **settings: object) -> Pod:
        """Start a session pod."""
        place = self.folder / f"pod-{attempt}-{conversation}-{os.urandom(3).hex()}"
        place.mkdir()
        port = free_port()
        shared = {
            "sandbox_attempt": self.sandbox_attempt,
            "conversation": conversation,
            "agent_port": port,
            "daemon_url": self.box.url,
            "lost_seconds": 1,
        }
        started = {
            role: start_role(
                role,
                place,
                self.driver(role, attempt) | shared | {"termination_log": place / f"{role}.outcome"} | settings,
            )
            for role in ("agent", "user")
        }
        self.pods.append(Pod(started["agent"], started["user"], place, port))
        return self.pods[-1]


def agent_of(kind: str, mutant: str | None = None) -> AgentSpec:
    """Return an arm's agent."""
    return AgentSpec(kind=AgentKind(kind), mutant=mutant)


def scenario() -> Scenario:
    """Return a scenario of two messages."""
    return Scenario.model_validate(
        {"opening": "open", "milestones": [{"id": "one", "message": "more"}], "gateFailed": "failed: {report}"}
    )
