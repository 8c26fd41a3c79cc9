"""What a local pod can and cannot do, shown on real ones."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.cluster import Kind, Object
from proctor.local.image import Image
from proctor.local.mode import Mode
from proctor.local.nest import find_mode
from proctor.shell import local_words
from tests.local.conftest import NAMESPACE, Lab, Play
from wire.names import GATEWAY_PORT, HUB_PORT
from wire.outcome import MESSAGE_LIMIT_BYTES

pytestmark = pytest.mark.local
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
ASK = "curl -sS -m 3 -o /dev/null -w %{{http_code}} http://{0} 2>/dev/null"
several_users = pytest.mark.skipif(
    find_mode() is Mode.SINGLE, reason="this user has one id only: nobody to protect from"
)


@pytest.fixture
def sockets(tmp_path: Path) -> dict[int, Path]:
    """A hub and a gateway on the host, as far as a pod can tell."""
    return {HUB_PORT: tmp_path / "hub.sock", GATEWAY_PORT: tmp_path / "gateway.sock"}


@asynccontextmanager
async def listening(lab: Lab) -> AsyncIterator[None]:
    """Answer on both sockets."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    hub = await asyncio.start_unix_server(accept, lab.folder / "hub.sock")
    async with hub, await asyncio.start_unix_server(accept, lab.folder / "gateway.sock"):
        yield


@pytest.mark.parametrize(("tier", "hub"), [("untrusted", "000"), ("driver", "200")])
def test_only_drivers_reach_the_hub_and_nobody_anything_else(play: Play, tier: str, hub: str) -> None:
    """The gateway answers everybody, the hub trusted pods alone, and there is no way out and no address to route to."""

    async def scenario(lab: Lab) -> None:
        targets = (
            f"127.0.0.1:{HUB_PORT}",
            f"127.0.0.1:{GATEWAY_PORT}",
            "169.254.169.254",
            "10.213.0.9:7070",
            "1.1.1.1",
        )
        asks = "; ".join(f"{ASK.format(target)}; echo" for target in targets)
        lab.pod("ask", f"{asks}; grep -c . /proc/net/route; tail -n +3 /proc/net/dev | cut -d: -f1", tier=tier)
        async with listening(lab):
            lines = [line for line in await lab.printed("ask") if line]
        assert lines[0] == hub
        assert lines[1] == "200"
        assert lines[2:5] == 3 * ["000"]
        assert lines[5] == "1", "the route table has more than its header"
        assert [line.strip() for line in lines[6:]] == ["lo"]

    play(scenario)


@several_users
def test_the_agents_user_has_no_power_over_the_daemon(play: Play) -> None:
    """It cannot end or read a root process beside it, nor become root, nor read its secrets."""

    async def scenario(lab: Lab) -> None:
        attack = (
            "kill -9 $p; kill -9 -1; cat /proc/$p/environ; python3 -c 'import os; os.setuid(0)'; ls /root; "
            "cat /run/secrets/key"
        )
        become = "setpriv --reuid=1000 --regid=1000 --clear-groups sh -c"
        script = f'SECRET=x sleep 100 & export p=$!; {become} "{attack}"; kill -0 $p && echo alive'
        key = {"metadata": {"name": "keys", "namespace": NAMESPACE}, "data": {"key": b64encode(b"hidden").decode()}}
        lab.cluster.objects.create(Kind.Secret, key)
        volume = {"name": "v", "secret": {"secretName": "keys", "defaultMode": 0o400}}
        mounts = [{"name": "v", "mountPath": "/run/secrets", "readOnly": True}]
        lab.pod("attack", script, uid=0, tier="untrusted", volumes=[volume], mounts=mounts)
        printed = "\n".join(await lab.printed("attack"))
        assert printed.endswith("alive")
        assert "hidden" not in printed
        assert "SECRET" not in printed
        assert printed.count("ermission denied") + printed.count("not permitted") >= 4

    play(scenario)


def test_a_driver_reads_its_secrets_and_cannot_change_them(play: Play) -> None:
    """Files of the chosen keys under the chosen names, readable by the group, mounted read-only."""

    async def scenario(lab: Lab) -> None:
        data = {"token-gate": b64encode(b"t0ken").decode(), "other": b64encode(b"no").decode()}
        secret = {"metadata": {"name": "keys", "namespace": NAMESPACE}, "data": data}
        lab.cluster.objects.create(Kind.Secret, secret)
        items = [{"key": "token-gate", "path": "token"}]
        volume = {"name": "v", "secret": {"secretName": "keys", "items": items, "defaultMode": 0o440}}
        lab.pod(
            "read",
            "cat /run/secrets/proctor/token; echo; ls /run/secrets/proctor; echo x >/run/secrets/proctor/token",
            volumes=[volume],
            mounts=[{"name": "v", "mountPath": "/run/secrets/proctor", "readOnly": True}],
            securityContext={"fsGroup": 1000},
        )
        printed = await lab.printed("read")
        assert printed[:2] == ["t0ken", "token"]
        assert "cannot create" in printed[2]

    play(scenario)


def test_init_containers_come_first_and_hand_over_a_volume(play: Play) -> None:
    """What the init step wrote is there for the main container, which cannot write to its read-only mount."""

    async def scenario(lab: Lab) -> None:
        init = {
            "name": "receive",
            "command": ["sh", "-c", "echo frozen >/submission/file"],
            "securityContext": {"runAsUser": 1000},
            "volumeMounts": [{"name": "submission", "mountPath": "/submission"}],
        }
        lab.pod(
            "sut",
            "cat /submission/file; touch /submission/x || echo read-only",
            initContainers=[init],
            volumes=[{"name": "submission", "emptyDir": {}}],
            mounts=[{"name": "submission", "mountPath": "/submission", "readOnly": True}],
        )
        printed = await lab.printed("sut")
        assert (printed[0], printed[-1]) == ("frozen", "read-only")

    play(scenario)


def test_a_failed_init_container_ends_the_pod(play: Play) -> None:
    """The main container never starts."""

    async def scenario(lab: Lab) -> None:
        init = {"name": "receive", "command": ["sh", "-c", "exit 9"], "securityContext": {"runAsUser": 1000}}
        lab.pod("sut", "echo never", initContainers=[init])
        pod = await lab.until("sut", lambda found: found is not None and found["status"]["phase"] == "Failed")
        assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
        assert not lab.log("sut").exists()

    play(scenario)


def test_exit_code_and_termination_message_come_through(play: Play) -> None:
    """The message is cut at its limit, like a kubelet's."""

    async def scenario(lab: Lab) -> None:
        lab.pod("small", "printf done >/dev/termination-log; exit 75")
        lab.pod("large", "head -c 9000 /dev/zero | tr '\\0' x >/dev/termination-log")
        lab.pod("shot", "kill -9 $$")
        small, large, shot = [await lab.ended(name) for name in ("small", "large", "shot")]
        assert (small["exitCode"], small["message"]) == (75, "done")
        assert (large["exitCode"], len(large["message"])) == (0, MESSAGE_LIMIT_BYTES)
        assert shot["exitCode"] == 137

    play(scenario)


def test_a_hog_dies_alone(play: Play) -> None:
    """The memory limit ends the process that goes over it; the container reports, the pod lives on."""

    async def scenario(lab: Lab) -> None:
        hog = "python3 -c 'print(len(bytearray(600 << 20)))' || echo over; echo still here"
        lab.pod("hog", hog, memory="300Mi")
        assert (await lab.printed("hog"))[-2:] == ["over", "still here"]

    play(scenario)


def test_deletion_asks_first_and_insists_after_the_grace(play: Play) -> None:
    """SIGTERM reaches the container's own process; what ignores it is killed; then the object is gone."""

    async def scenario(lab: Lab) -> None:
        kind = lab.pod("kind", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        deaf = lab.pod("deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done")
        for pod in (kind, deaf):
            await lab.running(pod["metadata"]["name"])
            await lab.says(pod["metadata"]["name"], "up")
        began = time.monotonic()
        for pod in (kind, deaf):
            lab.cluster.objects.delete(Kind.Pod, pod)
        await lab.gone("kind")
        assert time.monotonic() - began < 1.9, "the kind pod waited for its grace"
        await lab.gone("deaf")
        assert time.monotonic() - began > 1.9
        assert lab.log("kind").read_text().splitlines()[-1] == "bye"

    play(scenario)


def test_a_pod_over_its_deadline_ends(play: Play) -> None:
    """Failed, with the reason a kubelet gives."""

    async def scenario(lab: Lab) -> None:
        lab.pod("slow", "sleep 100", activeDeadlineSeconds=1)
        pod = await lab.until("slow", lambda found: found is not None and found["status"]["phase"] == "Failed")
        assert pod["status"]["reason"] == "DeadlineExceeded"

    play(scenario)


def test_a_driver_meets_its_sandbox_again_and_again_and_no_other_trials(play: Play) -> None:
    """Each session in turn finds the same sandbox at the same address; another trial's driver finds nothing."""

    async def scenario(lab: Lab) -> None:
        lab.pod("sandbox", "exec python3 -m http.server 7070 -d /opt", tier="untrusted")
        address = (await lab.running("sandbox"))["status"]["podIP"]
        told = {"PROCTOR_DAEMON_URL": f"http://{address}:7070"}
        get = f"curl -sf -m 2 -o /dev/null http://{address}:7070"
        ask = f"for n in 1 2 3 4 5 6 7 8; do {get} && echo met && exit; sleep 0.3; done"
        for turn in range(2):
            lab.pod(f"session-{turn}", ask, env=told)
            assert await lab.printed(f"session-{turn}") == ["met"]
        lab.pod("stranger", ask, env=told, trial="other")
        assert await lab.printed("stranger") == []

    play(scenario)


def test_a_job_runs_one_pod_for_each_index(play: Play) -> None:
    """Each knows its index; the Job is complete when all are."""

    async def scenario(lab: Lab) -> None:
        box: Object = {
            "name": "box",
            "command": ["sh", "-c", "echo index $JOB_COMPLETION_INDEX"],
            "securityContext": {"runAsUser": 1000},
        }
        spec = {"restartPolicy": "Never", "containers": [box]}
        body = {
            "metadata": {"name": "job", "namespace": NAMESPACE},
            "spec": {"completions": 2, "template": {"spec": spec}},
        }
        lab.cluster.objects.create(Kind.Job, body)
        names = [pod["metadata"]["name"] for pod in lab.cluster.objects.all(Kind.Pod)]
        assert [await lab.printed(name) for name in names] == [["index 0"], ["index 1"]]
        job = lab.cluster.objects.get(Kind.Job, NAMESPACE, "job")
        assert job is not None
        assert job["status"]["conditions"][0]["type"] == "Complete"

    play(scenario)


def test_a_manifest_that_cannot_be_honoured_fails_with_the_field(play: Play) -> None:
    """Nothing runs as something else than its manifest says."""

    async def scenario(lab: Lab) -> None:
        lab.pod("odd", "echo never", volumes=[{"name": "v", "hostPath": {"path": "/"}}])
        pod = await lab.until("odd", lambda found: found is not None and found["status"]["phase"] == "Failed")
        assert "volumes[v]" in pod["status"]["message"]

    play(scenario)


def test_a_shell_opens_inside_the_sandbox_as_the_agents_user(play: Play) -> None:
    """In the pod's own files, processes and network; as the user that commands run as."""

    async def scenario(lab: Lab) -> None:
        script = "mkdir -p /workspace; echo here >/workspace/mark; echo up; sleep 100"
        lab.pod("sandbox", script, uid=0, tier="untrusted")
        await lab.running("sandbox")
        await lab.says("sandbox", "up")
        words = local_words(lab.kubelet.first_process("sandbox"), find_mode())
        shell = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        look = b"id -u; cat mark; tail -n +3 /proc/net/dev | cut -d: -f1; hostname; cat /proc/1/comm"
        printed, _ = await shell.communicate(look)
        assert printed.decode().split() == ["1000", "here", "lo", "sandbox", "tini"]

    play(scenario)


def test_a_killed_launcher_leaves_no_process(image: Image, tmp_path: Path) -> None:
    """SIGKILL of the launcher ends every pod with all that ran in it, sessions of their own and deaf ones too."""
    mark = f"{100000 + os.getpid() % 100000}.5"
    command = [sys.executable, "-m", "tests.local.launcher", str(tmp_path), str(image.root), mark]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"up\n"
        assert len(_with_words(mark, launcher.pid)) >= 2
        launcher.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while _with_words(mark, launcher.pid):
        assert time.monotonic() < deadline, "processes of the pod live on"
        time.sleep(0.02)


def _with_words(mark: str, besides: int) -> list[int]:
    """Return the processes whose command line holds the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (os.getpid(), besides):
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(entry.name))
    return found
