"""From a manifest to the words that start it, and back to a status: the pure part of local pods."""

from pathlib import Path

import pytest

from controller.cluster import Object
from proctor.local.bwrap import Places, start_words
from proctor.local.image import image_env
from proctor.local.links import Addresses, driver_side
from proctor.local.mode import Mode
from proctor.local.podspec import Container, Mount, peer_address, read_pod
from proctor.local.podstatus import Ended, PodFacts, Started, State, Waiting, phase, pod_status
from wire.errors import InvalidInput

ADDRESS = "10.213.0.1"
PLACES = Places(
    root=Path("/image"),
    folder=Path("/pods/box"),
    volumes={"work": Path("/pods/volumes/work"), "keys": Path("/pods/volumes/keys")},
    library={"runner": Path("/checkout/runner")},
    groups={},
)


def box(uid: int = 1000, **changes: object) -> Container:
    fields: dict[str, object] = {
        "name": "box",
        "argv": ("tini", "-s", "--", "true"),
        "env": {"A": "1"},
        "mounts": (),
        "uid": uid,
        "memory_bytes": 1 << 30,
        "cwd": None,
    }
    return Container(**{**fields, **changes})  # type: ignore[arg-type]


def pod(**changes: object) -> Object:
    container: Object = {"name": "box", "command": ["true"], "securityContext": {"runAsUser": 1000}, **changes}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": "a-pod", "namespace": "runs", "uid": "u"}, "spec": spec}


def capabilities(words: list[str]) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == "--cap-add"]


def test_a_daemon_keeps_six_capabilities() -> None:
    """As the cluster gives it."""
    words = start_words(box(uid=0), PLACES, Mode.ROOT, "pod")
    assert capabilities(words) == [
        f"CAP_{name}" for name in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETUID", "SETGID")
    ]
    assert "setpriv" not in words


def test_a_driver_becomes_its_user_and_keeps_no_capability() -> None:
    """What it takes to become the user is gone with the change."""
    words = start_words(box(), PLACES, Mode.ROOT, "pod")
    assert capabilities(words) == ["CAP_SETUID", "CAP_SETGID"]
    assert words[words.index("setpriv") :] == [
        *("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--"),
        *("tini", "-s", "--", "true"),
    ]


def test_a_user_with_one_id_tells_the_daemon_so() -> None:
    """Nothing is kept, and nobody believes in another user."""
    words = start_words(box(uid=0), PLACES, Mode.SINGLE, "pod")
    assert capabilities(words) == []
    assert words[words.index("PROCTOR_OWN_USER") + 1] == "true"


def test_every_container_is_cut_off_from_the_host() -> None:
    """Own processes, hostname, IPC, devices and environment, and an end with its parent."""
    words = start_words(box(), PLACES, Mode.ROOT, "pod")
    for word in ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--clearenv", "--as-pid-1"):
        assert word in words


def test_volumes_are_bound_as_the_manifest_says_with_open_folders_above() -> None:
    """Read-only where asked; the folders above a mount are for everyone, bwrap's own would be root's alone."""
    mounts = (
        Mount(volume="keys", path="/run/secrets/proctor", read_only=True),
        Mount(volume="work", path="/workspace"),
    )
    words = start_words(box(mounts=mounts), PLACES, Mode.ROOT, "pod")
    at = words.index("/pods/volumes/keys")
    assert words[at - 1 : at + 2] == ["--ro-bind", "/pods/volumes/keys", "/run/secrets/proctor"]
    assert words[at - 5 : at - 1] == ["--perms", "755", "--dir", "/run/secrets"]
    at = words.index("/pods/volumes/work")
    assert words[at - 1 : at + 2] == ["--bind", "/pods/volumes/work", "/workspace"]
    assert words[words.index("/checkout/runner") - 1] == "--ro-bind"


@pytest.mark.parametrize("grouped", [True, False])
def test_memory_is_bounded_one_way_or_the_other(grouped: bool) -> None:
    """By the control group, shown to the container as its own, else for each process."""
    groups = {"/sys/fs/cgroup/memory": Path("/groups/memory/box")} if grouped else {}
    places = Places(root=PLACES.root, folder=PLACES.folder, volumes={}, library={}, groups=groups)
    words = start_words(box(), places, Mode.ROOT, "pod")
    assert ("prlimit" in words) is not grouped
    assert ("/groups/memory/box" in words) is grouped


def test_what_a_pod_is_told_is_resolved() -> None:
    """Plain values, the downward API, and the image's environment below both."""
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    plan = read_pod(pod(env=env), ADDRESS, {"PATH": "/bin", "PLAIN": "image"})
    told = plan.containers[0].env
    assert {name: told[name] for name in ("PLAIN", "NAME", "IP", "PATH")} == {
        "PLAIN": "x",
        "NAME": "a-pod",
        "IP": ADDRESS,
        "PATH": "/bin",
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"securityContext": {}}, "runAsUser", id="no user"),
        pytest.param({"command": []}, "command", id="no command"),
        pytest.param({"resources": {"limits": {"memory": "lots"}}}, "memory", id="bad quantity"),
        pytest.param({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {}}}]}, "env[X]", id="unknown source"),
        pytest.param({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}]}, "subPath", id="subPath"),
    ],
)
def test_what_local_pods_do_not_know_is_refused(changes: dict[str, object], said: str) -> None:
    """A pod never runs as something else than its manifest says."""
    with pytest.raises(InvalidInput) as refused:
        read_pod(pod(**changes), ADDRESS, {})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("env", "address"),
    [
        pytest.param({"PROCTOR_DAEMON_URL": "http://10.213.0.5:7070"}, "10.213.0.5", id="session and gate"),
        pytest.param(
            {"PROCTOR_SUTS": '["http://10.213.0.1:7070", "http://10.213.0.9:7070"]', "JOB_COMPLETION_INDEX": "1"},
            "10.213.0.9",
            id="evaluator's own shard",
        ),
        pytest.param({}, None, id="drives nobody"),
    ],
)
def test_a_driver_is_joined_to_whom_it_is_told_to_drive(env: dict[str, str], address: str | None) -> None:
    """The environment says it; nothing else does."""
    told = [{"name": name, "value": value} for name, value in env.items()]
    assert peer_address(pod(env=told)) == address


def test_addresses_are_handed_out_in_turn() -> None:
    """A block that was given back is not the next one taken."""
    addresses = Addresses()
    first = addresses.claim()
    addresses.release(first)
    second = addresses.claim()
    assert (first.untrusted, second.untrusted) == ("10.213.0.1", "10.213.0.5")
    assert driver_side(first.untrusted) == first.driver == "10.213.0.2"


def over(code: int = 0, *, hungry: bool = False) -> Ended:
    return Ended(exit_code=code, message="", out_of_memory=hungry, started="s", at="e")


@pytest.mark.parametrize(
    ("inits", "containers", "expected"),
    [
        pytest.param({}, {"a": Waiting()}, "Pending", id="not started"),
        pytest.param({"i": Started(at="s")}, {"a": Waiting()}, "Pending", id="init step runs"),
        pytest.param({"i": over(1)}, {"a": Waiting()}, "Failed", id="init step failed"),
        pytest.param({"i": over()}, {"a": Started(at="s")}, "Running", id="runs"),
        pytest.param({}, {"a": over(), "b": Started(at="s")}, "Running", id="one of two runs"),
        pytest.param({}, {"a": over(), "b": over()}, "Succeeded", id="all well"),
        pytest.param({}, {"a": over(), "b": over(75)}, "Failed", id="one failed"),
    ],
)
def test_the_phase_follows_from_the_containers(
    inits: dict[str, State], containers: dict[str, State], expected: str
) -> None:
    """As a kubelet derives it, with restartPolicy Never."""
    assert phase(PodFacts(address=ADDRESS, started="s", inits=inits, containers=containers)) == expected


def test_a_kill_by_the_memory_limit_is_told_apart() -> None:
    """Only a container that died by SIGKILL while the limit ended something was ended by it."""
    states: dict[str, State] = {"a": over(137, hungry=True), "b": over(137), "c": over(1, hungry=True)}
    status = pod_status(PodFacts(address=ADDRESS, started="s", inits={}, containers=states))
    reasons = [found["state"]["terminated"]["reason"] for found in status["containerStatuses"]]
    assert reasons == ["OOMKilled", "Error", "Error"]


def test_the_images_environment_is_that_of_its_stage() -> None:
    """ENV lines of other stages and of the build are not its own."""
    dockerfile = "FROM x AS tools\nENV A=1\nFROM x AS root\nENV B=2 \\\n    C=3\nRUN y\nFROM root\nENV D=4\n"
    found = image_env(dockerfile, "root")
    assert {name: found.get(name) for name in "ABCD"} == {"A": None, "B": "2", "C": "3", "D": None}
