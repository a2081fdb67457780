"""Several runs on one page, with paired statistics."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from crbo_ros import cli
from crbo_ros.commands.compare import Paired, groups
from crbo_ros.view.record import read_run


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=12), rng.normal(0.3, size=12)
    interval = ttest_rel(b, a).confidence_interval(0.95)
    found = Paired.of(b - a)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.pairs == 12


def test_one_pair_has_no_interval_and_says_so() -> None:
    assert str(Paired.of([0.5])) == "+0.5, 1 pair"


def test_runs_are_compared_in_the_terminal_in_a_csv_and_in_a_picture(
    make_store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = [make_store(episodes=5, name="one"), make_store(episodes=7, vetoes=(4,), name="two")]
    assert cli.main(["compare", *map(str, stores), "--output", str(tmp_path / "found")]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("one", "two", "recommended", "average"))
    with open(tmp_path / "found.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["experiment"], row["episodes"], row["vetoes"]) for row in rows] == [
        ("one", "5.0", "0.0"), ("two", "6.0", "1.0"),
    ]  # fmt: skip
    assert (tmp_path / "found.png").stat().st_size > 5_000


def test_robots_with_names_are_told_apart(make_store: Any) -> None:
    runs = [read_run(make_store(episodes=2, name=name)) for name in ("one", "two", "three")]
    for run, robot in zip(runs, ("base 7 on lab", "base 8 on lab", "host lab"), strict=True):
        run.manifest = {"robots": [{"at": "", "runner": "/r", "robot": robot}]}
    assert list(groups(runs)) == ["crbo on toy, toy, base 7", "crbo on toy, toy, base 8", "crbo on toy, toy"]


def test_a_run_without_a_return_is_named(make_store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", str(make_store(episodes=0, name="empty"))]) == 1
    assert "empty: no episode was completed" in capsys.readouterr().err
