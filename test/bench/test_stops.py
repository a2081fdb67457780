"""`crbo bench stops`: calls in parts add up to one table. The stops themselves are tried by the command."""

import json
from pathlib import Path

import pytest

from crbo_ros.bench import stops
from crbo_ros.bench.stops import Cell, Stop
from crbo_ros.cli import main


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    cells: list[Cell] = []

    def try_cell(cell: Cell) -> list[Stop]:
        cells.append(cell)
        return [Stop(0.012, "safe", "CONFIRMED")] * cell.repeats

    monkeypatch.setattr(stops, "try_cell", try_cell)
    return cells


def test_calls_for_one_plant_after_the_other_add_up_to_the_whole_table(tried: list[Cell], tmp_path: Path) -> None:
    out = tmp_path / "stops.json"
    for plant in ("arm", "tuning", "qube", "action"):
        assert main(["bench", "stops", "--resume", "--plants", plant, "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"][1:]
    whole = [*stops.qube_cells(100), *stops.ros_cells()]
    assert [tuple(row[:2]) for row in rows] == [(cell.plant, cell.fault) for cell in whole]
    assert len(tried) == len(rows)
    assert out.with_suffix(".md").read_text().count("\n") >= len(rows)


def test_after_its_minutes_it_begins_no_row_and_says_how_to_go_on(
    tried: list[Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "stops", "--plants", "arm", "--out", str(tmp_path / "stops.json")]
    assert main([*arguments, "--minutes", "0"]) == 0
    assert not tried
    assert "8 rows are left: the same command with --resume goes on" in capsys.readouterr().out
