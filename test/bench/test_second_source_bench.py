"""The second source's benchmark: what it compares, and that what is done is not done again."""

import argparse
import json
from pathlib import Path

from crbo_ros.bench import second_source


def test_each_source_is_a_row_against_the_same_seed_without(tmp_path: Path) -> None:
    args = argparse.Namespace(repeats=1, episodes=6, seed=3, out=tmp_path, quick=False, minutes=9.0)
    assert second_source.run(args) == 0
    files = sorted((tmp_path / "runs").glob("*.json"))
    records = [json.loads(file.read_text()) for file in files]
    assert [row[:3] for row in second_source.table(records)[1:]] == [
        [problem, source, "1"] for problem in second_source.PROBLEMS for source in ("good", "mirrored")
    ]
    assert all(record["plain"]["start"] == record["good"]["start"] for record in records)
    stamps = [file.stat().st_mtime_ns for file in files]
    second_source.run(args)
    assert [file.stat().st_mtime_ns for file in files] == stamps
