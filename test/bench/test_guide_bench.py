"""The guide's benchmark: wrong guides are wrong, and what is done is not done again."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from crbo_ros.bench import guide
from crbo_ros.registry import make_task


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with a path of furuta that nobody had to simulate."""
    task = make_task("furuta")
    way = np.outer(np.linspace(0.0, 0.12, 4), np.eye(65)[0])
    points, returns = task.space.to_unit(task.theta_0) + way, [0.6, 0.7, 0.75, 0.78]
    (tmp_path / "paths").mkdir()
    file = tmp_path / "paths" / "furuta.nominal.json"
    file.write_text(json.dumps({"points": points.tolist(), "returns": returns, "cpu": 1.0}))
    return tmp_path


@pytest.mark.parametrize(("name", "cosine"), [("mirrored", -1.0), ("random", 0.5), ("cliff", 1.0), ("nominal", 1.0)])
def test_wrong_guides_lead_elsewhere(out: Path, name: str, cosine: float) -> None:
    path = guide.make_path(guide.GuideCase("stand_in", name, 3), out)
    step = path.points[1] - path.points[0]
    found = float(step[0] / np.linalg.norm(step))
    assert abs(found) < cosine if name == "random" else found == pytest.approx(cosine)
    assert (path.length > 0.13) == (name == "cliff")


def test_a_pair_of_runs_becomes_a_row_and_is_not_run_again(out: Path) -> None:
    args = argparse.Namespace(
        robots="stand_in", guides="nominal", repeats=1, episodes=6, seed=3, out=out, quick=False, minutes=9.0
    )
    assert guide.run(args) == 0
    records = [json.loads(file.read_text()) for file in sorted((out / "runs").glob("*.json"))]
    assert [record["case"]["guide"] for record in records] == ["nominal", "plain"]
    assert records[0]["kinds"].count("guided") >= 1
    row = dict(zip(*guide.table(records), strict=True))
    assert (row["robot"], row["guide"], row["runs"]) == ("stand_in", "nominal", "1")
    stamps = [file.stat().st_mtime_ns for file in sorted((out / "runs").glob("*.json"))]
    guide.run(args)
    assert [file.stat().st_mtime_ns for file in sorted((out / "runs").glob("*.json"))] == stamps
