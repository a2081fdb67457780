"""Within-model functions in 2 and 5 dimensions (paper, "Low-dimensional Synthetic Functions"): simple regret.

Draws of a Matern-5/2 Gaussian process (sigma_f = 1, l = 0.3 on [-1, 1]^d, J(0) = 3), theta_0 at distance 0.3 from the
optimum, observation noise 1e-3. Hyperparameters are fitted, and for CRBO and BO also known ("-known").
"""

from __future__ import annotations

import argparse
from typing import Any

from crbo_ros.bench import figures
from crbo_ros.bench.problems import main_setting
from crbo_ros.bench.sweep import Run, add_sweep_arguments, sweep
from crbo_ros.bench.tables import load, write_results

METHODS = ("crbo", "bo", "crbo-paper", "cma_es", "turbo", "crbo-known", "bo-known", "gibo", "safe_opt")
QUICK = ("crbo", "bo", "cma_es", "crbo-paper")
EPISODES = {2: 50, 5: 200}
COLUMNS = {
    "simple_regret_100": "simple regret at 100 (2-D: 50)",
    "simple_regret": "simple regret at the end",
    "final_regret": "regret of the recommended",
    "average": "average observed return",
    "cpu_per_proposal": "CPU s per proposal",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sweep_arguments(parser, "synthetic", 50)
    parser.add_argument("--methods", default=None, help=f"comma-separated (default {','.join(METHODS)})")
    parser.add_argument("--dims", default="2,5", help="comma-separated")
    parser.add_argument("--episodes", type=int, default=None, help="evaluations a run (default: 50 in 2-D, 200 in 5-D)")


def plan(args: argparse.Namespace) -> list[Run]:
    repeats = args.repeats if args.repeats is not None else 5 if args.quick else 50
    methods = args.methods.split(",") if args.methods else list(QUICK if args.quick else METHODS)
    runs = []
    for repeat in range(repeats):
        for dim in (int(word) for word in args.dims.split(",")):
            for method in methods:
                problem = f"synthetic-{dim}d"
                episodes = args.episodes or (min(100, EPISODES[dim]) if args.quick else EPISODES.get(dim, 200))
                label, settings = main_setting(problem, method)
                runs.append(Run(problem, method, label, args.seed + repeat, episodes, settings))
    return runs


def run(args: argparse.Namespace) -> int:
    folder = args.out
    paths = sweep(plan(args), folder, jobs=args.jobs, backend=args.backend, minutes=args.minutes)
    records = load(paths)
    notes = "Regret without noise; one function per repeat, the same for all methods."
    episodes, runs = write_results(folder, records, "Synthetic functions", COLUMNS, notes)
    if not len(runs):
        return 0
    problems = list(dict.fromkeys(runs["problem"]))
    made, axes = figures.figure(len(problems) + 1)
    function_picture(axes[0][0], args.seed)
    for axis, problem in zip(axes[0][1:], problems, strict=True):
        figures.curves(axis, episodes[episodes["problem"] == problem], "simple_regret", log=True)
        axis.set_title(problem)
        axis.set_ylabel("simple regret")
        axis.set_ylim(1e-6, 1e4)  # room for the legend above the curves
        axis.legend(fontsize=6, loc="upper right", ncols=2)
    figures.save(made, folder / "synthetic")
    return 0


def function_picture(axis: Any, seed: int) -> None:
    """One of the 2-D functions, its optimum and the start."""
    import numpy as np

    from crbo_ros.bench.synthetic_functions import within_model

    function = within_model(2, seed)
    line = np.linspace(-1.0, 1.0, 81)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    axis.contourf(line, line, function(grid).reshape(81, 81), levels=20, cmap="viridis")
    axis.plot(*function.theta_0, "rx", label="theta_0")
    axis.plot(*function.optimum, "w*", label="optimum")
    axis.set_title(f"function {seed}")
    axis.legend(fontsize=6)
