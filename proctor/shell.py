"""A person's shell in a running trial's sandbox, as the agent's user. The trial is marked before the shell opens."""

import os
import shutil
import subprocess

from controller.cluster import Kind
from proctor.local.control import SHELL, wish
from proctor.local.home import Home
from proctor.local.image import PATH
from proctor.local.mode import Mode
from proctor.local.nest import find_mode
from proctor.remote import Remote
from proctor.settings import Settings
from wire.errors import InvalidInput
from wire.names import AGENT_UID, WORKSPACE, pod_name

CONTAINER = "sandbox"


def open_local(settings: Settings, trial: str) -> int:
    """Enter the sandbox of a local run that is going on."""
    pid = int(wish(Home(settings.home).socket("control"), "shell", trial))
    return subprocess.run(local_words(pid, find_mode()), check=False).returncode


def local_words(pid: int, mode: Mode) -> list[str]:
    """Return the words that open a shell beside process `pid`: in all its namespaces and its root, as the agent."""
    enter = ["nsenter", f"--target={pid}", "--mount", "--pid", "--net", "--uts", "--ipc", f"--root=/proc/{pid}/root"]
    if mode is not Mode.ROOT:
        enter += ["--user", "--preserve-credentials"]
    become = (
        [] if mode is Mode.SINGLE else ["setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups"]
    )
    environment = ["env", "-i", f"PATH={PATH}", "HOME=/home/dev", f"TERM={_terminal()}", "LANG=C.UTF-8"]
    return [*enter, "--", *become, *environment, "sh", "-c", f"cd {WORKSPACE}; exec bash"]


def open_remote(settings: Settings, trial: str) -> int:
    """Enter the sandbox in the cluster through kubectl, with the caller's own right to do so."""
    if shutil.which("kubectl") is None:
        raise InvalidInput("kubectl is needed for a shell in a cluster; install it")
    remote = Remote(settings)
    found = remote.get(Kind.Trial, trial)
    if found is None:
        raise InvalidInput(f"there is no Trial {trial!r} in namespace {remote.namespace}")
    status = found.get("status") or {}
    marks = [*status.get("notFormal", ())]
    if SHELL not in marks:
        remote.patch(Kind.Trial, trial, {"status": {"notFormal": [*marks, SHELL]}}, status=True)
    pod = pod_name(trial, status.get("sandbox", 0), "sandbox")
    become = ["setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups", "env", "HOME=/home/dev"]
    words = ["kubectl", "exec", "-it", "-n", remote.namespace, pod, "-c", CONTAINER, "--", *become]
    return subprocess.run([*words, "sh", "-c", f"cd {WORKSPACE}; exec bash"], check=False).returncode


def _terminal() -> str:
    return os.environ.get("TERM", "dumb")  # noqa: TID251 - handed on to the shell
