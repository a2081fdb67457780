"""A name that means two things makes a newcomer translate."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "crbo_ros"


@pytest.mark.parametrize("name", ["Answer", "Episode", "Presence", "Row", "RunView", "State", "Status", "Verdict"])
def test_a_name_stands_for_at_most_one_class(name: str) -> None:
    pattern = re.compile(rf"^class {name}\b", re.MULTILINE)
    homes = [str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text())]
    assert len(homes) <= 1, homes
