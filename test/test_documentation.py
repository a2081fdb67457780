"""What the documents say can be done: links lead somewhere, and every command line is one that the command takes.

Most commands are run by other tests (test/commands, test/integration, test/examples, `.ci/run` itself); this one sees
to it that a line which somebody copies is at least spelt as the command spells it.
"""

import argparse
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from crbo_ros import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md")])
pytestmark = pytest.mark.skipif(not (ROOT / "crbo").exists(), reason="only in a clone")


def links(page: Path) -> list[str]:
    text = re.sub(r"(?s)```.*?```", "", page.read_text())
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub and MyST name the headings."""
    found = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{page.name}: no heading {link}"


def commands() -> list[tuple[str, str]]:
    """(page, command line) of every `./crbo ...` line in a block of shell code."""
    found = []
    for page in PAGES:
        for block in re.findall(r"(?s)```(?:bash|sh|console)\n(.*?)```", page.read_text()):
            joined = block.replace("\\\n", " ")
            found += [(page.name, line.strip()) for line in joined.splitlines() if line.strip().startswith("./crbo ")]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_every_command_is_spelt_as_the_command_takes_it(page: str, line: str) -> None:
    words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)[1:]
    if words[-1] == "&":
        words.pop()
    module = import_module(str(cli.module_of(words)))
    parser = cli.parser_of(module, words[:1])
    parser.exit_on_error = False
    rest = words[2 if "{}" in cli.COMMANDS[words[0]].module else 1 :]
    try:
        _, unknown = parser.parse_known_args(rest)
    except (argparse.ArgumentError, SystemExit) as error:
        raise AssertionError(f"{page}: {line}: {error}") from None
    assert not unknown or getattr(module, "TAKES_UNKNOWN", False), f"{page}: {line}: unknown {unknown}"


def test_the_pictures_of_window_and_report_are_what_the_code_draws_today() -> None:
    line = [sys.executable, str(ROOT / "docs" / "images" / "stamp.py")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
