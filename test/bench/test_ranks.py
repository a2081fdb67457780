"""Tables over all problems say what the runs did, and statistics what a textbook says of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")

from crbo_ros.bench import ranks


def record(problem: str, method: str, seed: int, average: float, final: float, regret: float | None = None) -> Any:
    rows = [{"return": average - 0.5, "regret": regret}, {"return": None, "regret": regret}, {"return": average + 0.5}]
    run = {"problem": problem, "method": method, "seed": seed}
    return {"run": run, "rows": rows, "start": [1.0, 1.0], "final": [final, None]}


def runs() -> list[Any]:
    found = []
    for seed in range(4):
        for problem, offset in (("a", 0.0), ("b", 10.0)):
            found.append(record(problem, "crbo", seed, 2.0 + 0.1 * seed, 3.0, regret=4.0 if problem == "a" else None))
            found.append(record(problem, "cma_es", seed, 1.5 + 0.1 * seed, 3.5, regret=4.0 if problem == "a" else None))
            if seed == 0:
                found.append(record(problem, "rare", seed, 99.0 + offset, 2.0))
    return found


def test_a_share_is_of_the_way_to_the_optimum_or_to_the_best_known_return() -> None:
    table = ranks.measures([r for r in runs() if r["run"]["method"] != "rare"])
    a = table[(table["problem"] == "a") & (table["method"] == "crbo") & (table["seed"] == 0)].iloc[0]
    b = table[(table["problem"] == "b") & (table["method"] == "crbo") & (table["seed"] == 0)].iloc[0]
    assert a["share"] == pytest.approx((2.0 - 1.0) / 4.0)  # J* = J0 + the start's regret
    assert b["share"] == pytest.approx((2.0 - 1.0) / (3.5 - 1.0))  # the best final of all runs
    assert b["final_share"] == pytest.approx(2.0 / 2.5)
    assert a["area"] == pytest.approx((np.mean([1.5, 1.5, 2.5]) - 1.0) / 4.0)  # the best so far, through the failure
    assert a["below"] == pytest.approx(1.0 / 3.0)  # the episode that gave no return


def test_only_methods_that_ran_everywhere_are_ranked() -> None:
    table = ranks.rank_table(ranks.measures(runs()), "share")
    assert set(table.columns) == {"crbo", "cma_es"}
    assert (table["crbo"] == 1.0).all()


def test_where_no_method_ran_everywhere_there_are_no_ranks_and_that_is_said(tmp_path: Path) -> None:
    once = [found for found in runs() if found["run"]["seed"] == 0]
    assert "No method was run on all 2 problems with at least 3 seeds" in ranks.standing(ranks.measures(once), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_critical_difference_is_the_published_one() -> None:
    """Demsar 2006, Table 5: q_0.05 for 2 to 5 classifiers is 1.960, 2.343, 2.569, 2.728."""
    for k, q in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728)):
        assert ranks.critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / (6.0 * 14)), rel=2e-3)


def test_the_number_of_seeds_that_a_difference_needs() -> None:
    assert ranks.seeds_needed(np.array([0.0, 2.0])) == math.ceil(2.8**2 * 2.0)  # mean 1, variance 2
    assert ranks.seeds_needed(np.array([1.0, 1.0])) == 2
    assert math.isinf(ranks.seeds_needed(np.array([-1.0, 1.0])))


def test_pairs_are_of_the_same_seed() -> None:
    rows = ranks.paired_rows(ranks.measures(runs()))
    assert ["b", "CMA-ES", "4", "+0.200 +- 0.000"] in [row[:4] for row in rows]
    assert not any("rare" in row for row in rows)
