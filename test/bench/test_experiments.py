"""The experiments: the paper's settings, every bench's plan, and documents from results."""

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench.problems import main_setting, study_settings
from crbo_ros.core.space import Space
from crbo_ros.registry import make_method

SWEEPS = ("synthetic", "basketball", "gym", "furuta")


def options(name: str, *words: Any) -> tuple[Any, ...]:
    module = import_module(f"crbo_ros.bench.{name}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module, parser.parse_args(list(words))


@pytest.mark.parametrize(
    ("task", "gamma", "sigma_0", "length"),
    [("basketball", 0.6, 0.05, 0.2), ("pendulum", 0.3, 0.02, 0.1), ("cartpole", 0.6, 0.02, 0.1)],
)
def test_the_main_settings_are_the_paper_s(task: str, gamma: float, sigma_0: float, length: float) -> None:
    assert main_setting(task, "crbo-paper")[1] == {"preset": "paper", "gamma": gamma}
    assert main_setting(task, "cma_es")[1] == {"sigma_0": sigma_0}
    assert main_setting(task, "turbo")[1] == {"length": length}


def test_the_furuta_settings_are_the_paper_s() -> None:
    assert main_setting("furuta", "crbo-paper")[1] == {"preset": "paper", "gamma": 0.5}
    assert main_setting("furuta", "cma_es")[1] == {"sigma_0": 0.05}


def test_the_basketball_study_has_the_appendix_s_values() -> None:
    values = {m: [s for _, s in study_settings("basketball", m)] for m in ("crbo-paper", "cma_es", "turbo", "local_bo")}
    assert [s["gamma"] for s in values["crbo-paper"]] == [0.4, 0.6, 0.9]
    assert [s["sigma_0"] for s in values["cma_es"]] == [0.01, 0.05, 0.1]
    assert [s["length"] for s in values["turbo"]] == [0.05, 0.2, 0.8]
    assert [s["sigma_0"] for s in values["local_bo"]] == [0.025, 0.05, 0.1]


def test_a_sweep_goes_repeat_by_repeat_so_that_a_part_of_it_is_a_comparison() -> None:
    module, args = options("synthetic", "--repeats", "3")
    seeds = [run.seed for run in module.plan(args)]
    assert seeds == sorted(seeds)
    assert set(seeds) == {5000, 5001, 5002}
    methods = {run.method for run in module.plan(args) if run.seed == 5000}
    assert {"crbo", "bo", "cma_es", "turbo"} <= methods


@pytest.mark.parametrize("name", [*SWEEPS, "region", "furuta_trajectories", "time", "bound", "paper"])
def test_every_bench_has_a_quick_version(name: Any) -> None:
    _, args = options(name, "--quick")
    assert args.quick


@pytest.mark.parametrize("method", ["crbo", "bo", "turbo", "gibo", "local_bo"])
def test_timing_asks_a_method_that_holds_the_data_that_it_was_given(method: str) -> None:
    from crbo_ros.bench.time import feed

    rng = np.random.default_rng(0)
    thetas = rng.uniform(-0.2, 0.2, (12, 4))
    made = make_method(method, Space(-np.ones(4), np.ones(4)), thetas[0])
    feed(made, thetas, thetas.sum(1))
    assert made.n == 12
    assert made.ask().kind in ("acquisition", "sample")
    np.testing.assert_allclose(made.data()[1], thetas.sum(1))


def test_results_without_runs_say_so_and_name_the_command(tmp_path: Path) -> None:
    module, args = options("results", "--results", str(tmp_path / "none"), "--docs", str(tmp_path))
    module.run(args)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "No runs yet: `./crbo bench paper`" in text
    assert "Not run yet" in text


def test_a_part_that_was_not_run_again_stays_in_the_document_and_says_so(tmp_path: Path) -> None:
    module, args = options("results", "--results", str(tmp_path / "none"), "--docs", str(tmp_path))
    (tmp_path / "RESULTS.md").write_text("# Results\n\n## Computation time\n\n12 ms\n\n## Ablation\n\nnothing\n")
    for _ in range(2):  # said once, however often
        module.run(args)
        text = (tmp_path / "RESULTS.md").read_text()
        assert f"## Computation time\n\n{module.EARLIER}\n\n12 ms\n" in text
    assert f"{module.NOT_RUN}" in text


@pytest.mark.slow
def test_a_quick_furuta_comparison_goes_from_runs_to_a_document(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "furuta"), "--methods", "crbo,cma_es", "--repeats", "1", "--episodes", "12"]
    module, args = options("furuta", *words, "--jobs", "1")
    assert module.run(args) == 0
    assert {"summary.md", "runs.csv", "episodes.csv", "furuta.png", "furuta.svg", "runs"} <= {
        path.name for path in (tmp_path / "furuta").iterdir()
    }
    module, args = options("bound", "--results", str(tmp_path), "--out", str(tmp_path / "bound"))
    module.run(args)
    assert json.loads((tmp_path / "bound" / "bound.json").read_text())["bound"][1][:3] == ["furuta", "crbo", "1"]
    module, args = options("results", "--results", str(tmp_path), "--docs", str(tmp_path / "docs"))
    module.run(args)
    text = (tmp_path / "docs" / "RESULTS.md").read_text()
    assert "| furuta | " in text
    for picture in ("furuta.png", "overview.png"):
        assert (tmp_path / "docs" / "images" / "results" / picture).stat().st_size > 5000


@pytest.mark.slow
def test_the_region_s_picture_shows_it_growing(tmp_path: Path) -> None:
    module, args = options("region", "--quick", "--out", str(tmp_path))
    module.run(args)
    shares = [float(line.split(",")[2]) for line in (tmp_path / "region.csv").read_text().splitlines()[1:]]
    assert shares == sorted(shares)
    assert (tmp_path / "region.png").exists()
