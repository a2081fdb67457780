"""`crbo bench plants`: metrics where a plant can be made, reasons where not; and `crbo bench parts`."""

import json
from pathlib import Path

import pytest

from crbo_ros.cli import main


def test_it_measures_what_can_be_made_and_says_why_not_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plants.json"
    assert main(["bench", "plants", "--tasks", "furuta", "gym", "--episodes", "3", "--out", str(out)]) == 0
    rows = {(row["task"], row["plant"]): row for row in json.loads(out.read_text())["rows"]}
    assert rows["furuta", "stand_in"]["times_real_time"] > 1.0
    assert rows["furuta", "stand_in"]["episode_s_mean"] == 20.0
    assert "hardware" in rows["furuta", "qube_hardware"]["skipped"]
    assert any("skipped" in row for (task, _), row in rows.items() if task == "gym")
    assert "load average" in capsys.readouterr().out


def test_every_part_that_has_to_keep_up_is_measured_against_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parts.json"
    assert main(["bench", "parts", "--episodes", "20", "30", "--seconds", "0.5", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["allowed_ms"] for row in rows if "allowed_ms" in row][:2] == [4.0, 1.0]
    assert all(min(row["cpu_ms"]) >= 0.0 for row in rows if "allowed_ms" in row)
    said = capsys.readouterr().out
    for part in ("RunView and its curves", "a refresh of the window"):
        for episodes in (20, 30):
            assert f"{part}, {episodes} episodes" in said
