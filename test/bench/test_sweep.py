"""Sweeps: finished runs are not repeated, a killed one leaves nothing half-written, tables say what the runs did."""

import importlib
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench import problems, sweep, tables
from crbo_ros.bench.problems import BenchProblem, Rollout
from crbo_ros.bench.sweep import Run
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput


@pytest.fixture
def bowl(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A problem whose return falls with the distance from 0.3, and which refuses what is far away."""
    from contextlib import contextmanager

    counts = {"opened": 0}

    @contextmanager
    def open_bowl(name: str, seed: int) -> Iterator[BenchProblem]:
        counts["opened"] += 1

        def rollout(theta: Any, rng: np.random.Generator) -> Rollout:
            if theta[1] > 0.6:
                return Rollout(math.nan, "failed", "too far")
            return Rollout(1.0 - float(np.sum((theta - 0.3) ** 2)) + 1e-3 * rng.standard_normal(), "completed")

        yield BenchProblem(name, Space([0.0, 0.0], [1.0, 1.0]), np.array([0.5, 0.5]), rollout)

    facts = {"gamma": 0.5, "gammas": (0.3,), "exploration": {}, "episodes": 10, "dim": 2, "fingerprint": "x"}
    monkeypatch.setattr(sweep, "open_problem", open_bowl)
    monkeypatch.setattr(problems, "task_facts", lambda name: facts)
    return counts


def plan(repeats: int = 2) -> list[Any]:
    return [
        Run("bowl", method, *setting, 8, {})
        for repeat in range(repeats)
        for method, setting in (("cma_es", ("default", 7 + repeat)), ("bo", ("default", 7 + repeat)))
    ]


def test_a_problem_with_failures_has_a_table(tmp_path: Path) -> None:
    run = Run("hard-failures", "sobol", "default", 7, 30, {})
    runs = tables.runs_table([json.loads(json.dumps(sweep.play(run)))])
    assert runs["refused"].iloc[0] > 0
    assert math.isfinite(runs["simple_regret"].iloc[0])


def test_finished_runs_are_not_repeated(bowl: dict[str, Any], tmp_path: Path) -> None:
    first = sweep.sweep(plan(1), tmp_path)
    assert len(first) == 2
    assert bowl["opened"] == 2
    assert len(sweep.sweep(plan(2), tmp_path)) == 4
    assert bowl["opened"] == 4


def test_a_comparison_holds_the_longest_runs_in_the_main_setting(bowl: dict[str, Any], tmp_path: Path) -> None:
    label, settings = problems.main_setting("bowl", "cma_es")
    runs = [Run("bowl", "cma_es", label, seed, episodes, settings) for seed, episodes in ((7, 4), (7, 8), (8, 4))]
    sweep.sweep([*runs, Run("bowl", "cma_es", "sigma_0 0.5", 9, 8, {"sigma_0": 0.5})], tmp_path)
    assert [(r["run"]["seed"], r["run"]["episodes"]) for r in tables.load_main(tmp_path)] == [(7, 8)]


def test_a_run_that_dies_leaves_no_file_and_is_run_again(
    bowl: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sweep.play

    def dies(run: Any) -> Any:
        if run.method == "bo":
            raise KeyboardInterrupt
        return whole(run)

    monkeypatch.setattr(sweep, "play", dies)
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(plan(1), tmp_path)
    assert [path.name.split(".")[1] for path in (tmp_path / "runs").iterdir()] == ["cma_es"]
    monkeypatch.setattr(sweep, "play", whole)
    assert len(sweep.sweep(plan(1), tmp_path)) == 2
    assert not list((tmp_path / "runs").glob("*.tmp"))


def test_a_run_that_fails_is_named_and_the_others_go_on(
    bowl: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sweep.play

    def fails(run: Any) -> Any:
        if run.method == "cma_es":
            raise FloatingPointError("no such number")
        return whole(run)

    monkeypatch.setattr(sweep, "play", fails)
    assert len(sweep.sweep(plan(1), tmp_path)) == 1
    assert "#7: FloatingPointError: no such number" in capsys.readouterr().err


def test_no_run_is_started_after_the_time_limit(bowl: dict[str, Any], tmp_path: Path) -> None:
    assert sweep.sweep(plan(1), tmp_path, minutes=0.0) == []
    assert bowl["opened"] == 0


def test_the_same_run_gives_the_same_record(bowl: dict[str, Any]) -> None:
    runs = [sweep.play(plan(1)[1]) for _ in range(2)]
    assert [row["return"] for row in runs[0]["rows"]] == [row["return"] for row in runs[1]["rows"]]
    assert runs[0]["final"] == runs[1]["final"]
    assert len(runs[0]["final"]) == 10


def test_a_changed_setting_or_preset_is_another_file(bowl: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("bowl", "crbo", "default", 1, 8, {"gamma": 0.5})
    name = run.file
    assert Run("bowl", "crbo", "default", 1, 8, {"gamma": 0.6}).file != name
    from crbo_ros.core import settings as presets

    assert Run("bowl", "crbo", "default", 1, 8, {"gamma": 0.5, "recipe": {"sideways": False}}).file != name
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "default": {"beta": 1.5}})
    assert run.file != name


def test_a_record_read_from_its_file_finds_that_file_again(bowl: dict[str, Any]) -> None:
    """JSON has no tuples."""
    run = sweep.Run("bowl", "crbo", "known", 7, 3, {"hyperparameters": (0.15, 1.0, 1e-6)})
    assert sweep.Run(**json.loads(json.dumps(asdict(run)))).file == run.file


def test_a_method_s_changed_code_is_another_fingerprint_and_its_comments_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    from types import SimpleNamespace

    marks = []
    for text in ("x = 1\n", '"""Words."""\nx = 1  # one\n', "x = 2\n"):
        (tmp_path / "own.py").write_text(text)
        monkeypatch.setitem(sys.modules, "own", SimpleNamespace(__file__=str(tmp_path / "own.py")))
        monkeypatch.setattr("crbo_ros.registry.load", lambda kind, name: SimpleNamespace(__module__="own"))
        problems.code_fingerprint.cache_clear()
        marks.append(problems.code_fingerprint("own"))
    problems.code_fingerprint.cache_clear()
    assert marks[0] == marks[1] != marks[2]


def test_refused_episodes_count_towards_the_budget_and_not_the_average(bowl: dict[str, Any]) -> None:
    record = sweep.play(Run("bowl", "bo", "default", 3, 12, {}))
    refused = [row for row in record["rows"] if row["end"] == "failed"]
    assert refused
    row = tables.runs_table([record]).iloc[0]
    assert row["episodes"] == 12
    assert row["refused"] == len(refused)
    values = [r["return"] for r in record["rows"] if r["return"] is not None]
    assert row["average"] == pytest.approx(np.mean(values))
    episodes = tables.episodes_table([record])
    assert episodes["average"].iloc[-1] == pytest.approx(np.mean(values))
    assert episodes["best"].iloc[-1] == max(values)


def test_records_are_plain_json_and_bounds_are_scored(bowl: dict[str, Any], tmp_path: Path) -> None:
    (path,) = sweep.sweep([Run("bowl", "crbo", "default", 1, 8, {})], tmp_path)
    record = json.loads(path.read_text())
    pairs = [(r["return"], r["worst_case"]) for r in record["rows"] if r["worst_case"] is not None]
    row = tables.runs_table([record]).iloc[0]
    assert row["coverage"] == np.mean([value >= bound for value, bound in pairs])
    assert len(record["kept"]["8"]) == 2


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="carrier_pigeon"):
        sweep.sweep([], tmp_path, jobs=2, backend="carrier_pigeon")


@pytest.mark.slow
def test_parallel_processes_give_the_same_as_one(tmp_path: Path) -> None:
    runs = [Run("furuta", "cma_es", "sigma_0 0.05", seed, 6, {"sigma_0": 0.05}) for seed in (1, 2)]
    one = [json.loads(p.read_text()) for p in sweep.sweep(runs, tmp_path / "one")]
    two = [json.loads(p.read_text()) for p in sweep.sweep(runs, tmp_path / "two", jobs=2)]
    for a, b in zip(one, two, strict=True):
        assert [row["return"] for row in a["rows"]] == [row["return"] for row in b["rows"]]


def test_median_and_quartiles_are_written_for_people() -> None:
    assert tables.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.000 [2.000, 4.000]"
    assert tables.quartiles([2e-5]) == "2.0e-05 [2.0e-05, 2.0e-05]"
    assert tables.quartiles([math.nan]) == "-"
    assert tables.markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def small(count: int) -> list[Run]:
    return [Run("hard-bowl-2", "random_search", "default", seed, 3, {}) for seed in range(7, 7 + count)]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_results_come_home_from_two_processes_and_one_that_dies_costs_its_run_alone(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if backend != "loky":
        pytest.importorskip({"dask": "distributed"}.get(backend, backend))
    paths = sweep.sweep(small(4), tmp_path / "whole", jobs=2, backend=backend)
    assert sorted(json.loads(path.read_text())["run"]["seed"] for path in paths) == [7, 8, 9, 10]
    if backend == "ray":  # whose workers cannot import this file
        importlib.import_module("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(sweep, "attempt", attempt_that_dies)
    paths = sweep.sweep(small(4), tmp_path / "cut", jobs=2, backend=backend)
    assert sorted(json.loads(path.read_text())["run"]["seed"] for path in paths) == [7, 9, 10]
    assert "hard-bowl-2 #8" in capsys.readouterr().err


def attempt_that_dies(run: Run, deadline: float) -> Any:
    """A stand-in for `attempt` that ends its process on one of the runs."""
    if run.seed == 8:
        os._exit(1)
    return run, {"run": asdict(run)}, ""
