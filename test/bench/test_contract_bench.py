"""The contract's benchmark: what it counts, and that a run that was stopped goes on."""

import argparse
import json
from pathlib import Path

from crbo_ros.bench import contract


def test_a_pair_of_runs_becomes_a_row_with_both_sides_counted_against_the_same_threshold(tmp_path: Path) -> None:
    args = argparse.Namespace(
        tasks="cliffs-5d", risks="0.1", gammas="0.95", repeats=1, episodes=10, seed=3, out=tmp_path, quick=False
    )
    assert contract.run(args) == 0
    files = sorted(path.name for path in (tmp_path / "runs").glob("*.json"))
    assert len(files) == 3, "with, without, and the liar"
    records = [json.loads((tmp_path / "runs" / name).read_text()) for name in files]
    rows = contract.table(records)
    assert [row[0] for row in rows[1:]] == ["cliffs-5d", "cliffs-5d, liar"]
    kept = next(r for r in records if r["case"]["contract"] and r["case"]["method"] == "crbo")
    fallen = sum(value < kept["contract"]["threshold"] for value in contract.values_of(kept))
    assert fallen == kept["contract"]["violations"] <= 1
    assert rows[1][rows[0].index("budget")] == "1"
    assert (tmp_path / "contract.svg").exists()
    stamps = [(tmp_path / "runs" / name).stat().st_mtime for name in files]
    contract.run(args)
    assert [(tmp_path / "runs" / name).stat().st_mtime for name in files] == stamps, "what is there is not run again"
