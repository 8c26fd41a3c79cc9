"""The command line: bad input ends in one clear error and a documented code, before anything starts."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cluster import Kind, Object
from proctor.codes import Code, code_of
from proctor.documents import read_documents
from proctor.local.control import grant, serve_control, wish
from proctor.local.memory import MemoryCluster
from wire.errors import Broken, InvalidInput, NotReady, ProctorError, Refused

RUN = """
apiVersion: proctor.dev/v1alpha1
kind: BenchmarkRun
metadata: {name: quick}
spec:
  suite: engram-transfer
  arms:
  - {name: nop, agent: {kind: nop}}
"""


def proctor(*words: str, home: Path) -> "subprocess.CompletedProcess[str]":
    environment = {"PROCTOR_HOME": str(home), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "proctor", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=Path(__file__).parents[2]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(":\n-", "is not YAML", id="no YAML"),
        pytest.param("", "holds no document", id="empty"),
        pytest.param("[]", "is not an object", id="a list"),
        pytest.param("kind: Pod", "kind: 'Pod' is not one of", id="foreign kind"),
        pytest.param(RUN.replace("v1alpha1", "v9"), "apiVersion", id="other version"),
        pytest.param(RUN.replace("{name: quick}", "{}"), "metadata.name", id="no name"),
        pytest.param(RUN.replace("nop}}", "wizard}}"), "spec.arms[0].agent.kind", id="unknown agent"),
        pytest.param(RUN + "status: {}\n", "status: is not a field", id="status"),
        pytest.param(RUN + "---" + RUN.replace("suite:", "sweet:"), "document 2: ", id="the second one"),
    ],
)
def test_a_bad_file_is_refused_naming_document_and_field(tmp_path: Path, text: str, said: str) -> None:
    """One error that says where and what."""
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_documents(file)
    assert said in str(refused.value)


def test_every_problem_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    """Nobody has to try again for the next one."""
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("nop}}", "wizard}}") + "---\nkind: Pod\n---" + RUN)
    with pytest.raises(InvalidInput) as refused:
        read_documents(file)
    assert str(refused.value).count("document") == 2


def test_the_shipped_example_is_good() -> None:
    """What README names can be run."""
    documents = read_documents(Path(__file__).parents[2] / "examples" / "quickstart.yaml")
    assert [document.kind for document in documents] == [Kind.BenchmarkRun]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["run", "--local", "nowhere.yaml"], Code.INPUT, "nowhere.yaml", id="no file"),
        pytest.param(["run"], Code.INPUT, "FILE", id="no argument"),
        pytest.param(["dance"], Code.INPUT, "dance", id="no such command"),
        pytest.param(["cancel", "quick"], Code.UNREACHABLE, "no local run", id="no launcher"),
        pytest.param(["push", "nowhere"], Code.INPUT, "task.toml", id="no task folder"),
    ],
)
def test_an_error_is_one_line_and_a_code(tmp_path: Path, words: list[str], code: Code, said: str) -> None:
    """No trace, no half-done work."""
    done = proctor(*words, home=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_states_the_exit_codes(tmp_path: Path) -> None:
    """They are part of the interface."""
    done = proctor("--help", home=tmp_path)
    assert "130 interrupted" in " ".join(done.stdout.split())


def test_a_home_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    """Before a service fails with something stranger."""
    done = proctor("ls", home=tmp_path / ("x" * 100))
    assert (done.returncode, "PROCTOR_HOME" in done.stderr) == (Code.INPUT, True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("x"), Code.INPUT),
        (Refused("x"), Code.REFUSED),
        (NotReady("x"), Code.UNREACHABLE),
        (Broken("x"), Code.BROKEN),
        (ProctorError("x"), Code.BROKEN),
    ],
)
def test_the_class_of_an_error_decides_the_code(error: ProctorError, code: Code) -> None:
    """Every class has one."""
    assert code_of(error) is code


def world() -> MemoryCluster:
    """A run with an errored and a graded trial."""
    cluster = MemoryCluster()
    cluster.objects.create(Kind.BenchmarkRun, body("quick", {"cancel": False}))
    for name, phase in (("bad", "Errored"), ("good", "Graded")):
        made = cluster.objects.create(Kind.Trial, body(name, {"runRef": {"name": "quick"}, "retries": 0}))
        cluster.objects.set_status(Kind.Trial, made, {"phase": phase, "sandbox": 1})
    return cluster


def body(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name, "namespace": "runs"}, "spec": spec}


def no_pod(name: str) -> int:
    raise InvalidInput(f"the pod {name} does not run")


def test_cancel_asks_the_run_for_its_end() -> None:
    """The operator does the rest."""
    cluster = world()
    grant(cluster.objects, "cancel", "quick", no_pod)
    run = cluster.objects.get(Kind.BenchmarkRun, "runs", "quick")
    assert run is not None
    assert run["spec"]["cancel"] is True


@pytest.mark.parametrize("name", ["quick", "bad"])
def test_retry_touches_errored_trials_alone(name: str) -> None:
    """A verdict is never asked for again."""
    cluster = world()
    grant(cluster.objects, "retry", name, no_pod)
    retries = {t["metadata"]["name"]: t["spec"]["retries"] for t in cluster.objects.all(Kind.Trial)}
    assert retries == {"bad": 1, "good": 0}


def test_retry_of_a_graded_trial_is_refused() -> None:
    """It says why."""
    with pytest.raises(InvalidInput, match="only errored ones"):
        grant(world().objects, "retry", "good", no_pod)


def test_a_shell_marks_the_trial_first_and_needs_a_running_sandbox() -> None:
    """Without a sandbox nobody can have touched it, so nothing is marked."""
    cluster = world()
    with pytest.raises(InvalidInput, match="bad-1-sandbox"):
        grant(cluster.objects, "shell", "bad", no_pod)
    assert grant(cluster.objects, "shell", "bad", lambda _: 4711) == "4711"
    marks = [t["status"].get("notFormal") for t in cluster.objects.all(Kind.Trial)]
    assert marks == [["shell"], None]


@pytest.mark.parametrize(("verb", "name"), [("cancel", "x"), ("retry", "x"), ("shell", "x"), ("burn", "quick")])
def test_a_wish_that_means_nothing_is_refused(verb: str, name: str) -> None:
    """Unknown names and unknown wishes."""
    with pytest.raises(InvalidInput):
        grant(world().objects, verb, name, no_pod)


def test_wishes_travel_over_the_socket(tmp_path: Path) -> None:
    """A granted one comes back as text, a refused one as an error, and nonsense does not end the launcher."""

    async def scenario() -> None:
        socket = tmp_path / "control.sock"
        async with serve_control(socket, world(), no_pod):
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b"nonsense\n")
            assert "error" in json.loads(await reader.readline())
            writer.close()
            assert "cancelled" in await asyncio.to_thread(wish, socket, "cancel", "quick")
            with pytest.raises(InvalidInput, match="knows no"):
                await asyncio.to_thread(wish, socket, "cancel", "other")

    asyncio.run(scenario())
