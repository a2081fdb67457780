"""The campaign: nothing is found in a small part of it, what it finds is counted, and it writes its own part only."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crbo_ros.bench import campaign


def test_it_writes_its_own_part_of_the_page_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "RELIABILITY.md"
    monkeypatch.setattr(campaign, "REPORT", page)
    page.write_text(f"# Stops\n\nothers\n\n{campaign.BEGIN}\nthe former table\n{campaign.END}\n\n## After\n")
    campaign.write({"bit flips": Counter({"done": 7, "silent": 1})}, 3)
    text = page.read_text()
    assert text.startswith("# Stops\n\nothers\n")
    assert text.endswith("## After\n")
    assert "the former table" not in text
    assert "| bit flips | 7 | 1,000 | 0 | 0 | 0 | 1 |" in text


def test_one_broken_promise_fails_the_campaign() -> None:
    assert not campaign.bad(Counter({"done": 5, "refused": 2}))
    assert all(campaign.bad(Counter({"done": 5, name: 1})) for name in campaign.BROKEN)


@pytest.mark.slow
def test_the_quick_campaign_finds_nothing() -> None:
    words = [sys.executable, "-m", "crbo_ros.cli", "bench", "campaign", "--quick", "--seed", "5"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:]
    for part in campaign.PARTS:
        assert f"| {part.name} |" in done.stdout
