"""Pages that newcomers go by: what they list is all there is."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from controller.failures import BLOCKED, TABLE
from hub.gateway.app import Settings as GatewaySettings
from proctor.codes import Code
from proctor.settings import Settings as CommandLineSettings
from tests.test_layout import tracked

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
COMMAND_LINE = (ROOT / "docs" / "cli.md").read_text()
DECISIONS = ROOT / "docs" / "decisions"
# The kubelet alternates between the two; the other one is told.
NEVER_TOLD = {"ErrImagePull"}


def told(settings: type[BaseSettings]) -> Iterable[str]:
    """Return the variables that settings are read from."""
    prefix = settings.model_config["env_prefix"]
    return [str(field.validation_alias or f"{prefix}{name.upper()}") for name, field in settings.model_fields.items()]


def folders() -> set[str]:
    """Return the repository's folders as the page spells the beginning of their rows."""
    return {f"| `{path.relative_to(ROOT).parts[0]}/" for path in tracked() if path.parent != ROOT} - {"| `.ci/"}


def conditions() -> set[str]:
    """Return the reasons that the operator's decisions write into conditions, by their spelling in the source."""
    found: set[str] = set()
    for name in ("accept", "run_status", "suite_status"):
        text = (ROOT / "operator" / "controller" / f"{name}.py").read_text()
        found |= set(re.findall(r'reason="(\w+)"', text))
        found |= set(re.findall(r'met\.set\("\w+", "(?:True|False)", "(\w+)"', text))
    return found


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({str(reason) for reason in TABLE}, id="failures"),
        pytest.param(set(BLOCKED) - NEVER_TOLD, id="what keeps a pod from starting"),
        pytest.param(conditions(), id="conditions"),
        pytest.param(set(told(GatewaySettings)), id="the gateway's settings"),
        pytest.param(folders(), id="folders"),
    ],
)
def test_the_architecture_page_names_all(words: set[str]) -> None:
    """A reason in a status or a setting in a pod can be looked up."""
    assert words
    assert {word for word in words if word not in ARCHITECTURE} == set()


def test_the_command_line_page_has_every_code_and_setting() -> None:
    """What `proctor` reads and returns."""
    assert {code.value for code in Code} == {int(found) for found in re.findall(r"^\| (\d+) \|", COMMAND_LINE, re.M)}
    assert {name for name in told(CommandLineSettings) if name not in COMMAND_LINE} == set()


def test_decisions_are_numbered_and_listed() -> None:
    """The index links every page, in order, under its own title."""
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", (DECISIONS / "README.md").read_text(), re.M)
    titles = [(page.read_text().splitlines()[0].removeprefix("# "), page.name) for page in pages]
    assert listed == titles
    assert [int(title.split(".")[0]) for title, _ in titles] == list(range(1, len(pages) + 1))
    assert all(int(page.name[:4]) == number for number, page in enumerate(pages, 1))


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links of README.md and docs/ point at files of the repository."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert links
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
